#include "base/system/fork_mark.h"

#include <pthread.h>

namespace fairlead {

ForkMark::ForkMark() noexcept {
  static const int kHandlers =
      ::pthread_atfork(nullptr, nullptr, [] { forks_.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(kHandlers);
  made_after_ = forks_.load(std::memory_order_relaxed);
}

}  // namespace fairlead
