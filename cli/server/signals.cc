#include "cli/server/signals.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

namespace fairlead::cli {

using std::chrono::steady_clock;

Result<UniqueFd> catch_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  if (::pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) return Status(Code::kInternal, "cannot block SIGTERM");
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return Status(Code::kResourceExhausted, "cannot create a signal descriptor");
  return fd;
}

bool end_is_pending() noexcept {
  sigset_t set;
  return ::sigpending(&set) == 0 && (::sigismember(&set, SIGTERM) == 1 || ::sigismember(&set, SIGINT) == 1);
}

int ServerSignals::poll_ms() const {
  if (signals_ == 0) return -1;
  constexpr std::int64_t kAgain = 50;  // whether an answer has arrived is no event
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(by_ - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, kAgain));
}

void ServerSignals::came() {
  signalfd_siginfo signal{};
  const std::size_t before = signals_;
  while (::read(fd_, &signal, sizeof signal) == sizeof signal) {
    if (signal.ssi_signo == SIGHUP) {
      served_.reload();
    } else {
      ++signals_;
    }
  }
  if (before != 0 || signals_ == 0) return;
  served_.drain();
  const auto after = [now = steady_clock::now()](double seconds) {
    return now + std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds));
  };
  not_before_ = after(seconds_.least);
  by_ = after(seconds_.most);
  if ((served_.busy() && seconds_.most > 0) || seconds_.least > 0) {
    const std::string least = seconds_.least > 0 ? fmt::format(", not before {:g} s", seconds_.least) : "";
    console_.line(
        fmt::format("ending when what is under way is finished{}, in {:g} s at most; a second signal ends it now",
                    least, seconds_.most));
  }
}

bool ServerSignals::now() const {
  if (signals_ == 0) return false;
  if (!served_.busy() && (signals_ > 1 || steady_clock::now() >= not_before_)) return true;
  if (signals_ < 2 && steady_clock::now() < by_) return false;
  console_.line("what was under way is dropped");
  return true;
}

}  // namespace fairlead::cli
