// A file descriptor that is closed when its owner goes. Move-only; -1 means none.
#pragma once

#include <unistd.h>

#include <utility>

#include "base/system/no_cancellation.h"

namespace fairlead {

class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  explicit operator bool() const noexcept { return valid(); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  /// Gives the descriptor away.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept {
    const int old = std::exchange(fd_, fd);
    if (old < 0 || old == fd) return;
    const NoCancellation in_destructors;
    ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace fairlead
