// What is to happen in one simulated run, as data: which transports there are, who posts what, and which trouble comes.
//
// A seed makes a plan; a plan can be made smaller (shrink.h), written down as code, and kept as a named test. Chance
// below it (how long each packet takes, who is looked at first) comes from `timing`. Any part of a plan is a plan: what
// cannot happen, since there is no path to be cut, say, is left out when it is run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fairlead/transfer.h"
#include "fake_transport.h"

namespace fairlead::simulation {

inline constexpr microseconds kNever{-1};

/// A transfer.
struct Post {
  /// kStrided: a write of a tensor whose rows lie apart at the target. kPrepared: a list that is posted again and
  /// again. kForbidden: a write to a region that its owner withdraws now and then. kAdd, kSwap: atomics, on a word
  /// each.
  enum class Kind : std::uint8_t { kWrite, kRead, kSend, kStrided, kPrepared, kForbidden, kAdd, kSwap };
  Kind kind = Kind::kWrite;
  std::uint64_t bytes = 0;
  std::uint64_t pieces = 1;  // operations; rows of a strided one
  bool notifies = false;
  TrafficClass traffic = TrafficClass::kBulk;
  bool follows = false;  // the one that was posted before it
  microseconds gap{0};   // since the one before it
  microseconds cancel_after = kNever;
  microseconds deadline = kNever;
};

/// What goes wrong. Ends are 0, active (the client) and 1, passive (the server).
struct Trouble {
  enum class Kind : std::uint8_t {
    kCut,     // a path carries nothing any more; each end is told after `notice`, or never
    kStall,   // a path stands still for `time`
    kFreeze,  // an engine does nothing for `time`
    kHangUp,  // the control connection breaks; each end is told after `notice`, or never
    kGarble,  // what an end hears on its control connection is noise from now on
    kKill,    // an engine's process is gone; what comes back at its address after `time` is another
    kClose    // an end closes the session, and gives what is under way `time`
  };
  Kind kind = Kind::kCut;
  std::size_t posts = 0;  // so many transfers are posted before it,
  microseconds delay{0};  // and so much time goes by
  std::size_t client = 0;
  std::size_t end = 0;
  microseconds time{0};
  std::array<microseconds, 2> notice{kNever, kNever};
  std::array<unsigned, 2> take_back{};  // transfers that each end cancels at that moment
  bool for_good = false;                // of a cut: the client's device makes no other path either
};

struct Plan {
  std::uint64_t timing = 1;
  std::vector<Habits> transports;
  std::uint64_t chunk_bytes = 4000;
  std::size_t paths = 1;                                // EngineConfig::paths
  std::size_t places = 1;                               // of the server: 1 or 2, and hanging up moves it to the other
  std::size_t lanes = 1;                                // of the server: 1 or 2, by turns for its sessions
  bool measured = false;                                // EngineConfig::choice
  bool principals = false;                              // each client is one, and its paths have their own domains
  std::uint64_t window = 60;                            // EngineConfig::max_pending_events
  std::uint64_t window_bytes = std::uint64_t{1} << 26;  // EngineConfig::max_pending_bytes
  std::uint64_t slot_bytes = 12'000;
  std::size_t slots = 10;
  bool survivable = true;                               // what is cut may be connected again: the session must live
  bool sleepy = false;                                  // who takes events sleeps now and then
  bool unpublishes = true;                              // regions are withdrawn and published again
  bool hasty = false;                                   // the session is closed while transfers are under way
  std::vector<std::array<std::vector<Post>, 2>> posts;  // of each client's session, of each end
  std::vector<Trouble> troubles;
};

/// `survivable`: see Plan.
[[nodiscard]] Plan make_plan(std::uint64_t seed, bool survivable);

/// How many sets of paths a session of it may come to have, which die and come back each by itself.
[[nodiscard]] std::size_t path_sets_of(const Plan& plan);

/// Transfers and troubles.
[[nodiscard]] std::size_t size_of(const Plan& plan);

/// As a test that can be kept in scenarios_test.cc.
[[nodiscard]] std::string to_test(const Plan& plan, const std::string& name);

}  // namespace fairlead::simulation
