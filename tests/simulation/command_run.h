// Carries a plan of command channels out (command_plan.h), on the engine's own sessions and the service's own: a server
// of two lanes whose service runs commands in its turn, clients, and trouble; and judges what comes of it.
//
// A session that was to live does. What a client is told is complete is right; what it reads back at the end is what
// its program comes to undisturbed; its devices got each command once and in order. A client whose session ended hears
// why; and of each that ended nothing is left at the server: memory, sessions, what its tenant has.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "command_plan.h"

namespace fairlead::simulation {

struct CommandOutcome {
  std::string wrong;  // empty: nothing is
  std::uint64_t sessions = 0, lost = 0, refused = 0, resumed = 0;
  std::uint64_t failovers = 0;                                   // paths that took the place of others
  std::uint64_t gone_on = 0;                                     // times that a session got another peer
  std::uint64_t lived_through = 0;                               // sessions that had trouble and came to their end
  std::uint64_t commands = 0, failures = 0;                      // of services;
  std::uint64_t recovered = 0;                                   // of those, that clients recovered from
  std::uint64_t graphs_run = 0, graphs_updated = 0, placed = 0;  // that came to devices; placed: allocations
  std::uint64_t across = 0;                                      // copies from one device to another
  std::array<std::uint64_t, CommandTrouble::kKinds> troubles{};  // that came while there was something to hit

  bool operator==(const CommandOutcome&) const = default;
  CommandOutcome& operator+=(const CommandOutcome& other);
};

[[nodiscard]] CommandOutcome run_commands(const CommandPlan& plan);

}  // namespace fairlead::simulation
