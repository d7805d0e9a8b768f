// What keeps the process of a session from others of its user, whoever has taken it over: it looks into none of them,
// and none but those with privileges into it.
//
// As far as the kernel goes: Landlock (5.13; signals from 6.12 on) for what it may do to others, PR_SET_DUMPABLE for
// what others may do to it. Sources: landlock(7), ptrace(2), "Ptrace access mode checking". Threads: holds for who
// calls it, and threads that begin afterwards.
#pragma once

namespace fairlead::datapath::command {

/// The least of Landlock's versions with which there is no signal for another process.
inline constexpr long kSignalsVersion = 6;

/// Of Landlock, as the kernel has it; 0: it has none, or does not let it be used.
[[nodiscard]] long landlock_version() noexcept;

/// Once, and for good. Afterwards the process opens files of its own in /proc no more that are not everybody's.
void keep_to_itself() noexcept;

}  // namespace fairlead::datapath::command
