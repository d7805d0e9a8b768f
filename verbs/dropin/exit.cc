// A process that ends by _exit runs no destructors (connections.cc has one for exit), yet its peers are told, as the
// kernel tells them of a process with devices of its own. Waiting for the devices' locks also lets the acknowledgements
// out of what the process has just been told that it received.
//
// Signal handlers may call _exit, and may have interrupted anything, malloc too, whose lock then nobody lets go of. So
// a process without devices leaves at once, and one with devices after a while, whatever telling the peers waits for.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "verbs/cm/device_cm.h"

namespace {

constexpr itimerval kPatience{{0, 0}, {1, 0}};  // 1 s, once

std::atomic<int> wanted_status{0};

[[noreturn]] void end(int status) noexcept {
  for (;;) ::syscall(SYS_exit_group, status);
}

void on_alarm(int) { end(wanted_status.load()); }

// Async-signal-safe. The program has no use for its own alarm any more.
void end_in_time(int status) noexcept {
  wanted_status.store(status);
  struct sigaction action{};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGALRM, &action, nullptr);  // an alarm that waits is not ours
  ::setitimer(ITIMER_REAL, &kPatience, nullptr);
  action.sa_handler = on_alarm;
  ::sigaction(SIGALRM, &action, nullptr);
  sigset_t alarm;
  ::sigemptyset(&alarm);
  ::sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
}

}  // namespace

extern "C" {

void _exit(int status) {
  if (fairlead::cm::serves_here()) {
    end_in_time(status);
    fairlead::cm::disconnect_everything();
  }
  end(status);
}

void _Exit(int status) noexcept { ::_exit(status); }

}  // extern "C"
