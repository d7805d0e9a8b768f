#include "cli/measure/interruption.h"

#include <csignal>

#include "cli/base/args.h"

namespace fairlead::cli {
namespace {

std::atomic<int> g_signal{0};

void note(int signal) { g_signal.store(signal); }

}  // namespace

std::atomic<int>& interruption() noexcept { return g_signal; }

void heed_interruption() {
  struct sigaction action{};
  action.sa_handler = &note;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

int exit_code_after_interruption() noexcept {
  constexpr int kBySignal = 128;
  return g_signal != 0 ? kBySignal + g_signal : kSuccess;
}

}  // namespace fairlead::cli
