// A file descriptor that a forked child does not share: in the child its number stands for /dev/null. So what the
// parent's device owns (an address, a place among those who share one) ends with the parent, and the child may still
// close its copy of the device. Move-only. Threads: any.
#pragma once

#include <atomic>

#include "base/unique_fd.h"

namespace fairlead {

class PrivateFd {
 public:
  PrivateFd() noexcept = default;
  explicit PrivateFd(UniqueFd fd);
  PrivateFd(PrivateFd&&) noexcept = default;
  PrivateFd& operator=(PrivateFd&& other) noexcept;
  ~PrivateFd() { reset(); }

  explicit operator bool() const noexcept { return fd_.valid(); }
  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  void reset() noexcept;

  /// Has fork() treat these descriptors as said above. Handlers that take locks under which descriptors are made must
  /// be registered after this, for fork() calls the last one first.
  static void watch_forks();
  /// How many forks lie behind this process since its ancestor first called watch_forks(): another number than before
  /// means that this is a child.
  [[nodiscard]] static unsigned forks() noexcept { return forks_.load(std::memory_order_relaxed); }

 private:
  static void in_child();

  static inline std::atomic<unsigned> forks_{0};
  UniqueFd fd_;
};

}  // namespace fairlead
