// One schedule: two engines' sessions in one thread, random transfers both ways, random trouble, and a judge.
//
// The judge knows what every transfer was to do. It checks that every byte is right where a completion or a
// notification says it is there, that every transfer ends once and truly, that notifications and messages are delivered
// once, in order and not before their bytes, that nothing is written after its transfer has ended, and that all is
// released.
#pragma once

#include <cstdint>
#include <string>

#include "sim_host.h"

namespace fairlead::simulation {

struct Options {
  std::uint64_t seed = 1;
  std::size_t transfers = 60;  // of each end
  bool survivable = true;      // never more trouble than there are paths: the session must live
  std::size_t max_transports = 4;
};

struct Outcome {
  std::string wrong;  // empty: nothing is
  std::uint64_t transfers = 0, ok = 0, failed = 0, notified = 0, messages = 0;
  std::uint64_t failovers = 0, replayed = 0, duplicates = 0, staged_bytes = 0, cancelled = 0, refused = 0;
  std::uint64_t stale_on_wire = 0;  // operations that landed on an end that a fence had closed
  PathPairs pairs[2]{};             // of the active end, of the passive end

  bool operator==(const Outcome&) const = default;
};

[[nodiscard]] Outcome run_schedule(const Options& options);

}  // namespace fairlead::simulation
