#include "memreg/cache/fork_mark.h"

#include <pthread.h>

#include <atomic>

namespace fairlead::memreg::cache {
namespace {

std::atomic<unsigned> forks{0};  // between the first process and this one

}  // namespace

ForkMark::ForkMark() noexcept {
  static const int kHandlers =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(kHandlers);
  made_in_ = forks.load(std::memory_order_relaxed);
}

bool ForkMark::inherited() const noexcept { return forks.load(std::memory_order_relaxed) != made_in_; }

}  // namespace fairlead::memreg::cache
