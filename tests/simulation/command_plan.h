// What is to happen in one simulated run of command channels, as data: the service's terms, each client's program, and
// which trouble comes. A seed makes a plan; chance below it comes from `timing`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fairlead/command_graph.h"
#include "fake_transport.h"

namespace fairlead::simulation {

/// One thing that a program does in one of its channels.
///
/// Programs are such that what they do does not depend on timing: a channel touches its own allocations, and others'
/// between fences both ways; where one fails, what is passed over is known, and it is recovered from once that is known
/// to its client.
struct Action {
  enum class Kind : std::uint8_t {
    kAllocate,
    kRelease,
    kFill,
    kCopyIn,
    kCopyOut,
    kCopyWithin,
    kCopyAcross,  // from the device of another's channel
    kLoad,
    kLaunch,  // mix: it does not do the same if it is done twice
    kUser,
    kUpload,       // Program::graphs[other]
    kUpdateGraph,  // command `number` of it: the mix is from `other` to `target` from then on
    kLaunchGraph,
    kReleaseGraph,
    kMark,
    kFence,    // on the mark that the action `other` made
    kFail,     // `value` says how
    kRecover,  // from what the action `other` did
    kSync      // waits for all of the channel
  };
  static constexpr std::uint8_t kWaysToFail = 5;
  Kind kind = Kind::kSync;
  std::uint16_t channel = 0;
  std::uint64_t handle = 0, other = 0;
  std::uint64_t at = 0, other_at = 0, bytes = 0;
  std::uint8_t value = 0;
  bool passed_over = false;  // it comes behind a failure
  std::uint32_t number = 0;
  std::uint64_t target = 0;
};

/// A handle of a program: which channel's, and the how manieth.
[[nodiscard]] constexpr std::uint64_t handle_of(std::uint16_t channel, std::uint64_t i) {
  return 100 * (channel + 1u) + i;
}
[[nodiscard]] constexpr std::size_t channel_of(std::uint64_t handle) { return handle / 100 - 1; }
inline constexpr std::uint64_t kFunction = 50, kNobody = 99;  // of each channel's

/// In a session with a range each allocation has a place of its own: an action's `at`.
inline constexpr std::uint64_t kPlaceBytes = 8192, kRangeBytes = 12 * kPlaceBytes;

struct Program {
  std::uint16_t channels = 1;
  std::uint32_t devices = 1;  // of the session's; a channel is of each in turn
  std::vector<Action> actions;
  std::vector<std::vector<Action>> graphs;  // fills, copies within and launches
  bool has_range = false;                   // its memory is placed
  std::vector<std::int32_t> priorities;     // of the channels
  std::uint32_t flush_bytes = 4000, flush_commands = 64;

  [[nodiscard]] std::uint32_t device_of(std::uint16_t channel) const { return channel % devices; }
};
inline constexpr std::uint32_t kDevices = 2;  // of the service

/// What goes wrong.
struct CommandTrouble {
  enum class Kind : std::uint8_t {
    kCut,         // a path carries nothing any more; each end is told after `notice`, or never
    kStall,       // a path stands still for `time`
    kHangUp,      // the control connection breaks; each end is told after `notice`, or never
    kFreeze,      // the client, or the server, does nothing for `time`
    kGarble,      // what an end hears on its control connection is noise from now on
    kLose,        // what the client's session has on a device is lost, as when the device faults
    kClose,       // the client ends its session in order, in mid-program
    kKillClient,  // its process is gone; another comes after `time`
    kKillLane,    // what the server's lane of that client had is gone; the service goes on
    kKillServer,  // its process is gone, and the service; another comes after `time`
    kDrop         // the engines' session is lost; each end is told after `notice`. Where sessions outlive that
  };
  static constexpr std::size_t kKinds = 11;
  Kind kind = Kind::kCut;
  std::size_t actions = 0;  // so many were begun by all clients before it,
  microseconds delay{0};    // and so much time goes by
  std::size_t client = 0;
  std::size_t end = 0;
  microseconds time{0};
  std::array<microseconds, 2> notice{microseconds(-1), microseconds(-1)};  // below 0: never
};

struct CommandPlan {
  std::uint64_t timing = 1;
  std::vector<Habits> transports;
  std::uint64_t chunk_bytes = 4000;
  std::uint64_t window = 60, window_bytes = std::uint64_t{1} << 26;  // EngineConfig::max_pending_events and _bytes
  std::size_t paths = 1;                                             // EngineConfig::paths
  bool late = false;                                                 // devices work by themselves
  bool principals = false;                                           // each client is a tenant with limits
  bool one_session = false;                                          // and may have one session at a time
  std::uint64_t bytes_per_second = 0;                                // of each tenant
  bool outlives = false;                                             // sessions go on over another peer
  std::uint32_t credits = 64;
  std::uint64_t payload_credit = 20'000, held_results = 20'000;
  std::vector<Program> programs;  // of each client
  std::vector<CommandTrouble> troubles;
};

inline constexpr std::uint64_t kMostMessage = 12'000;  // EngineConfig::max_message_bytes
inline constexpr std::uint64_t kMostCopy = 8000;       // bytes of one
inline constexpr std::uint64_t kMostMemory = 500'000;  // of a tenant's session

[[nodiscard]] CommandPlan make_command_plan(std::uint64_t seed);
/// The same programs, whose sessions are to outlive any number of engines' sessions, and nothing else happens to them.
[[nodiscard]] CommandPlan make_dropping_plan(std::uint64_t seed);

/// Of mix, which takes so many bytes of both.
[[nodiscard]] std::vector<std::byte> mix_parameters(std::uint64_t to, std::uint64_t from, std::uint64_t bytes);
/// As a client uploads it.
[[nodiscard]] command::Graph graph_of(const std::vector<Action>& actions);

/// The bytes that the action copies in, or gives as a user's command.
[[nodiscard]] std::vector<std::byte> bytes_of(const Action& action);

}  // namespace fairlead::simulation
