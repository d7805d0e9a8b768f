#include "base/guarded.h"

#include <signal.h>
#include <ucontext.h>

#include <cstring>
#include <mutex>

namespace fairlead {
namespace {

constexpr std::size_t kLeastPage = 4096;

struct Handled {
  int signal;
  struct sigaction before;
};
Handled handled[] = {{SIGSEGV, {}}, {SIGBUS, {}}};

bool is_ours(const detail::FaultScope& scope, const siginfo_t& info) noexcept {
  if (info.si_code <= 0) return false;         // another process's, or raise()
  if (info.si_code == SI_KERNEL) return true;  // no canonical address, so that none is told
  return reinterpret_cast<std::uintptr_t>(info.si_addr) - scope.begin < scope.length;
}

void die_of(int signal, const siginfo_t& info) noexcept {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  if (info.si_code <= 0) ::raise(signal);  // else the instruction runs again, and faults again
}

// What the kernel would do, had these handlers never been there.
void forward(const Handled& handled_signal, siginfo_t& info, void* context) noexcept {
  const struct sigaction& before = handled_signal.before;
  const int signal = handled_signal.signal;
  const bool takes_info = (before.sa_flags & SA_SIGINFO) != 0;
  if (!takes_info && before.sa_handler == SIG_DFL) return die_of(signal, info);
  if (!takes_info && before.sa_handler == SIG_IGN) {
    if (info.si_code > 0) die_of(signal, info);  // a fault cannot be ignored
    return;
  }
  sigset_t blocked = before.sa_mask;
  sigset_t mask;
  if ((before.sa_flags & SA_NODEFER) == 0) ::sigaddset(&blocked, signal);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &mask);
  if (takes_info) {
    before.sa_sigaction(signal, &info, context);
  } else {
    before.sa_handler(signal);
  }
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void on_fault(int signal, siginfo_t* info, void* context) noexcept {
  detail::FaultScope* scope = detail::fault_scope;
  if (scope != nullptr && is_ours(*scope, *info)) {
    detail::fault_scope = nullptr;
    // What the handler's start blocked: nothing by itself, everything where a sanitizer stands between.
    ::pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
    ::siglongjmp(scope->back, 1);
  }
  forward(handled[signal == SIGSEGV ? 0 : 1], *info, context);
}

}  // namespace

namespace detail {

thread_local FaultScope* volatile fault_scope = nullptr;
thread_local bool thread_takes_faults = false;

void take_faults_on_this_thread() noexcept {
  sigset_t faults;
  ::sigemptyset(&faults);
  for (const Handled& each : handled) ::sigaddset(&faults, each.signal);
  ::pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
  thread_takes_faults = true;
}

}  // namespace detail

void install_fault_handlers() noexcept {
  static const bool installed = [] {
    for (Handled& each : handled) {
      ::sigaction(each.signal, nullptr, &each.before);  // known before the first signal can come
      struct sigaction ours{};
      ours.sa_sigaction = &on_fault;
      // NODEFER: what forward() blocks is as the handler behind wants it. ONSTACK: it may want that too.
      ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | (each.before.sa_flags & SA_RESTART);
      ::sigemptyset(&ours.sa_mask);
      ::sigaction(each.signal, &ours, nullptr);
    }
    return true;
  }();
  static_cast<void>(installed);
}

bool readable(const std::byte* start, std::size_t length) noexcept {
  if (length == 0) return true;
  return attempt(start, length, [start, length] {
    for (std::size_t at = 0; at < length; at += kLeastPage) touch(start + at);
    touch(start + length - 1);
  });
}

bool guarded_copy(std::byte* to, const std::byte* from, std::size_t length, const void* may_be_gone) noexcept {
  return attempt(may_be_gone, length, [=] { std::memcpy(to, from, length); });
}

}  // namespace fairlead
