#include "datapath/lane/core_sharing.h"

#include <thread>

namespace fairlead::datapath {

CoreSharing::Clock::time_point CoreSharing::yield_now() noexcept {
  std::this_thread::yield();
  return Clock::now();
}

}  // namespace fairlead::datapath
