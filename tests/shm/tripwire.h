// A page whose first touch has something happen, in the middle of whatever touches it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstddef>
#include <functional>
#include <utility>

namespace fairlead::shm {

/// One at a time. After install_fault_handlers(), before which it would not be asked.
class Tripwire {
 public:
  static constexpr std::size_t kPage = 4096;

  /// `then` is called from a signal handler, but on the thread that touches the page.
  explicit Tripwire(std::function<void()> then) : then_(std::move(then)) {
    page_ = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(page_, MAP_FAILED);
    laid_ = this;
    struct sigaction ours{};
    ours.sa_sigaction = &on_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    EXPECT_EQ(::sigaction(SIGSEGV, &ours, &before_), 0);
  }
  Tripwire(const Tripwire&) = delete;
  Tripwire& operator=(const Tripwire&) = delete;
  ~Tripwire() {
    EXPECT_EQ(::sigaction(SIGSEGV, &before_, nullptr), 0);
    ::munmap(page_, kPage);
  }

  [[nodiscard]] std::byte* page() const { return static_cast<std::byte*>(page_); }

 private:
  static void on_fault(int signal, siginfo_t* info, void* context) {
    Tripwire& own = *laid_;
    const auto at = static_cast<std::byte*>(info->si_addr);
    if (at < own.page() || at >= own.page() + kPage) return own.before_.sa_sigaction(signal, info, context);
    ::mprotect(own.page_, kPage, PROT_READ | PROT_WRITE);
    own.then_();
  }

  static inline Tripwire* laid_ = nullptr;
  std::function<void()> then_;
  void* page_ = nullptr;
  struct sigaction before_{};
};

}  // namespace fairlead::shm
