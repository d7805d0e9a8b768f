// Whom an engine knows now: its keys file as it was read last. Threads: any.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "datapath/identity/principals.h"

namespace fairlead::datapath {

class KnownPrincipals {
 public:
  /// Others from now on; gives those until now.
  Principals replace(Principals now) {
    const std::lock_guard lock(mutex_);
    return std::exchange(known_, std::move(now));
  }
  [[nodiscard]] bool knows(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    return known_.key_of(name) != nullptr;
  }
  /// ok if each name is somebody's, or kEveryPrincipal.
  [[nodiscard]] Status check_audience(std::span<const std::string> audience) const {
    const std::lock_guard lock(mutex_);
    return known_.check_audience(audience);
  }

 private:
  mutable std::mutex mutex_;
  Principals known_;
};

}  // namespace fairlead::datapath
