// Ctrl-C of a measurement: the first one ends it with what there is, the second one ends the program.
// Threads: the flag from any thread.
#pragma once

#include <atomic>

namespace fairlead::cli {

/// 0, or the signal (SIGINT, SIGTERM) that came since heed_interruption().
[[nodiscard]] std::atomic<int>& interruption() noexcept;
/// From now on signals set it; the second of a kind does what it did before.
void heed_interruption();
/// kSuccess, or what shells expect of a program that a signal ended in order: 128 and its number.
[[nodiscard]] int exit_code_after_interruption() noexcept;

}  // namespace fairlead::cli
