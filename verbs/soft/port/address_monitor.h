// Notices that the host's addresses or interfaces changed (rtnetlink; no privilege needed).
//
// A forked child's copy notices nothing. Threads: any.
#pragma once

#include "base/private_fd.h"

namespace fairlead::soft {

class AddressMonitor {
 public:
  AddressMonitor();

  /// Readable when something changed; -1 where the system tells nobody.
  [[nodiscard]] int fd() const noexcept { return fd_ ? fd_.get() : -1; }
  /// Whether something may have changed since the last call.
  [[nodiscard]] bool changed() noexcept;

 private:
  PrivateFd fd_;
};

}  // namespace fairlead::soft
