// A thread of the library's: with a name, and without signals, which are the application's; but for those of its own
// faults, which whoever handles them wants to see.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace fairlead {

/// `name`: up to 15 characters. Throws std::system_error as std::thread does.
template <typename Body>
[[nodiscard]] std::thread quiet_thread(const char* name, Body body) {
  struct Blocked {
    sigset_t before{};
    Blocked() noexcept {
      sigset_t all;
      ::sigfillset(&all);
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) ::sigdelset(&all, fault);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  } const blocked;
  std::thread thread(std::move(body));
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace fairlead
