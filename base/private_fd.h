// A file descriptor that a forked child does not share: in the child its number stands for /dev/null. So what the
// parent's device owns (an address, a place among those who share one) ends with the parent, and the child may still
// close its copy of the device. Move-only. Threads: any.
#pragma once

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
  /// be registered after this, for fork() calls the last one first. In the child they may ask a ForkMark.
  static void watch_forks();

 private:
  UniqueFd fd_;
};

}  // namespace fairlead
