#include "command_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "world.h"

namespace fairlead::simulation {
namespace {

using Kind = Action::Kind;

constexpr std::uint64_t kAllocations = 3;                    // of a channel
constexpr std::uint64_t kFirstGraph = 60, kMostGraphs = 20;  // the same, one after the other

/// Writes a program; knows what each allocation has.
class Author {
 public:
  Author(World& dice, Program& program)
      : dice_(dice), program_(program), sizes_(program.channels), graphs_(program.channels) {
    for (std::uint16_t channel = 0; channel < program_.channels; ++channel) {
      add({.kind = Kind::kLoad, .channel = channel, .handle = handle_of(channel, kFunction)});
      for (std::uint64_t i = 0; i < kAllocations; ++i) allocate(channel, i);
    }
  }
  void write(std::size_t actions) {
    while (program_.actions.size() < actions) {
      const auto channel = static_cast<std::uint16_t>(below(program_.channels));
      const std::uint64_t dots = below(100);
      if (dots < 8 && program_.channels > 1) {
        exchange(channel);
      } else if (dots < 13) {
        fail(channel);
      } else if (dots < 18) {
        add({.kind = Kind::kSync, .channel = channel});
      } else if (dots < 22) {
        const std::uint64_t i = below(kAllocations);
        release_graphs(channel, i);
        add({.kind = Kind::kRelease, .channel = channel, .handle = handle_of(channel, i)});
        allocate(channel, i);
      } else if (dots < 34) {
        graph(channel);
      } else {
        add(plain(channel));
      }
    }
    // Every byte is read back.
    for (std::uint16_t channel = 0; channel < program_.channels; ++channel) {
      for (std::uint64_t i = 0; i < kAllocations; ++i) {
        add({.kind = Kind::kCopyOut, .channel = channel, .handle = handle_of(channel, i), .bytes = sizes_[channel][i]});
      }
    }
    for (std::uint16_t channel = 0; channel < program_.channels; ++channel) {
      add({.kind = Kind::kSync, .channel = channel});
    }
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return dice_.below(bound); }
  std::size_t add(const Action& action) {
    program_.actions.push_back(action);
    return program_.actions.size() - 1;
  }
  void allocate(std::uint16_t channel, std::uint64_t i) {
    sizes_[channel][i] = 8 + below(dice_.chance(0.3) ? kMostCopy - 8 : 600);
    add({.kind = Kind::kAllocate,
         .channel = channel,
         .handle = handle_of(channel, i),
         .at = (channel * kAllocations + i) * kPlaceBytes,
         .bytes = sizes_[channel][i]});
  }

  struct Uploaded {
    std::uint64_t handle = 0;
    std::vector<std::uint32_t> launches;
    std::set<std::uint64_t> uses;  // allocations of the channel's
  };
  /// One that there is, or another.
  void graph(std::uint16_t channel) {
    std::vector<Uploaded>& own = graphs_[channel];
    if (own.empty() || (own.size() < 2 && dice_.chance(0.3))) return upload(channel);
    Uploaded& one = own[below(own.size())];
    if (!one.launches.empty() && dice_.chance(0.3)) {
      const std::uint64_t i = below(kAllocations), j = below(kAllocations);
      add({.kind = Kind::kUpdateGraph,
           .channel = channel,
           .handle = one.handle,
           .other = handle_of(channel, j),
           .bytes = std::min(sizes_[channel][i], sizes_[channel][j]),
           .number = one.launches[below(one.launches.size())],
           .target = handle_of(channel, i)});
      one.uses.insert({i, j});
    }
    add({.kind = Kind::kLaunchGraph, .channel = channel, .handle = one.handle});
  }
  void upload(std::uint16_t channel) {
    if (uploads_ == kMostGraphs) return;
    Uploaded made{handle_of(channel, kFirstGraph + uploads_++), {}, {}};
    std::vector<Action> commands;
    const std::uint64_t count = 1 + below(dice_.chance(0.2) ? 40 : 5);
    while (commands.size() < count) {
      Action action = plain(channel);
      if (action.kind == Kind::kLaunch) made.launches.push_back(static_cast<std::uint32_t>(commands.size() + 1));
      const bool copies = action.kind == Kind::kCopyWithin && action.handle != action.other;
      if (action.kind != Kind::kLaunch && action.kind != Kind::kFill && !copies) continue;
      made.uses.insert(action.handle - handle_of(channel, 0));
      if (action.kind != Kind::kFill) made.uses.insert(action.other - handle_of(channel, 0));
      commands.push_back(action);
    }
    add({.kind = Kind::kUpload, .channel = channel, .handle = made.handle, .other = program_.graphs.size()});
    program_.graphs.push_back(std::move(commands));
    graphs_[channel].push_back(std::move(made));
  }
  /// Those that use that allocation.
  void release_graphs(std::uint16_t channel, std::uint64_t i) {
    std::erase_if(graphs_[channel], [&](const Uploaded& each) {
      if (!each.uses.contains(i)) return false;
      add({.kind = Kind::kReleaseGraph, .channel = channel, .handle = each.handle});
      return true;
    });
  }

  /// What touches the channel's own allocations alone, and leaves them there.
  Action plain(std::uint16_t channel) {
    const std::uint64_t i = below(kAllocations), j = below(kAllocations);
    Action action{.channel = channel, .handle = handle_of(channel, i), .other = handle_of(channel, j)};
    const std::uint64_t size = sizes_[channel][i], other = sizes_[channel][j];
    action.at = below(size);
    action.bytes = 1 + below(size - action.at);
    action.value = static_cast<std::uint8_t>(below(256));
    switch (below(12)) {
      case 0:
      case 1:
        action.kind = Kind::kFill;
        break;
      case 2:
      case 3:
      case 4:
        action.kind = Kind::kCopyIn;
        break;
      case 5:
      case 6:
        action.kind = Kind::kCopyOut;
        break;
      case 7:  // overlaps at times
        action.kind = Kind::kCopyWithin;
        action.bytes = std::min(action.bytes, other);
        action.other_at = below(other - action.bytes + 1);
        break;
      case 8:
      case 9:
        action.kind = Kind::kUser;
        action.bytes = dice_.chance(0.1) ? below(4000) : below(60);
        break;
      default:
        action.kind = Kind::kLaunch;
        action.bytes = std::min(size, other);
        action.at = 0;
    }
    return action;
  }

  /// Takes from another channel's allocation what that has there, and it goes on once that is done.
  void exchange(std::uint16_t to) {
    const auto from = static_cast<std::uint16_t>((to + 1 + below(program_.channels - 1u)) % program_.channels);
    const std::uint64_t i = below(kAllocations), j = below(kAllocations);
    const std::uint64_t bytes = std::min(sizes_[to][i], sizes_[from][j]);
    const std::size_t there = add({.kind = Kind::kMark, .channel = from});
    add({.kind = Kind::kFence, .channel = to, .other = there});
    const bool within = program_.device_of(to) == program_.device_of(from);
    add({.kind = within ? Kind::kCopyWithin : Kind::kCopyAcross,
         .channel = to,
         .handle = handle_of(to, i),
         .other = handle_of(from, j),
         .bytes = bytes});
    const std::size_t back = add({.kind = Kind::kMark, .channel = to});
    add({.kind = Kind::kFence, .channel = from, .other = back});
  }

  void fail(std::uint16_t channel) {
    const auto way = static_cast<std::uint8_t>(below(Action::kWaysToFail));
    const std::size_t failure =
        add({.kind = Kind::kFail, .channel = channel, .handle = handle_of(channel, kNobody), .value = way});
    for (std::uint64_t n = below(6); n != 0; --n) {
      Action action = plain(channel);
      action.passed_over = true;
      add(action);
    }
    add({.kind = Kind::kRecover, .channel = channel, .other = failure});
  }

  World& dice_;
  Program& program_;
  std::vector<std::array<std::uint64_t, kAllocations>> sizes_;
  std::vector<std::vector<Uploaded>> graphs_;  // of each channel
  std::uint64_t uploads_ = 0;
};

std::vector<Habits> make_transports(World& dice) {
  std::vector<Habits> made(1 + dice.below(3));
  for (std::size_t i = 0; i < made.size(); ++i) {
    Habits& habits = made[i];
    const bool tcp = i == 0 && dice.chance(0.4);
    habits.name = tcp ? "tcp" : fmt::format("verbs:fake{}", i);
    habits.refusal_ends_path = !tcp;
    habits.latency = microseconds(2 + dice.below(60));
    if (dice.chance(0.3)) habits.loss = 0.001 * static_cast<double>(1 + dice.below(50));
    habits.reorders = dice.chance(0.3);
    datapath::Capabilities& can = habits.can;
    can.one_sided = dice.chance(0.8);
    can.write_then_message_ordered = dice.chance(0.7);
    can.write_notifies = can.write_then_message_ordered && dice.chance(0.5);
    can.software = dice.chance(0.5);
    can.max_message = static_cast<std::uint32_t>(200 + dice.below(8000));
    can.max_segments = static_cast<std::uint32_t>(1 + dice.below(8));
    can.max_outstanding = static_cast<std::uint32_t>(2 + dice.below(40));
  }
  return made;
}

CommandTrouble make_trouble(World& dice, const CommandPlan& plan, std::size_t actions) {
  using Trouble = CommandTrouble::Kind;
  const auto time = [&dice](std::uint64_t below) { return microseconds(dice.below(below)); };
  CommandTrouble t;
  t.actions = dice.below(actions + 1);
  t.delay = time(dice.chance(0.5) ? 300 : 4000);
  t.client = dice.below(plan.programs.size());
  t.end = dice.below(2);
  for (microseconds& notice : t.notice) {
    notice = dice.chance(0.8) ? time(dice.chance(0.4) ? 200 : 3000) : microseconds(-1);
  }
  const std::uint64_t dots = dice.below(100);
  if (dots < 30) {
    t.kind = Trouble::kCut;
    if (t.notice[0].count() < 0 && t.notice[1].count() < 0) t.notice[t.end] = time(3000);
  } else if (dots < 40) {
    t.kind = Trouble::kStall;
    t.time = time(120'000);
  } else if (dots < 60) {
    t.kind = Trouble::kHangUp;
  } else if (dots < 72) {
    t.kind = Trouble::kFreeze;
    t.time = time(dice.chance(0.8) ? 15'000 : 3'000'000);
  } else if (dots < 75) {
    t.kind = Trouble::kGarble;
  } else if (dots < 79) {
    t.kind = Trouble::kLose;
    // About where something failed and is recovered from, if there is that: what is lost, too, is not.
    const std::vector<Action>& of_client = plan.programs[t.client].actions;
    std::vector<std::size_t> recoveries;
    for (std::size_t i = 0; i < of_client.size(); ++i) {
      if (of_client[i].kind == Kind::kRecover) recoveries.push_back(i);
    }
    if (!recoveries.empty() && dice.chance(0.5)) {
      t.actions = recoveries[dice.below(recoveries.size())];
      t.delay = time(300);
    }
  } else if (dots < 82) {
    t.kind = Trouble::kClose;
  } else if (dots < 87) {
    t.kind = Trouble::kKillClient;
    t.time = time(20'000);
  } else if (dots < 93) {
    t.kind = Trouble::kKillLane;
  } else {
    t.kind = Trouble::kKillServer;
    t.time = time(20'000);
  }
  return t;
}

}  // namespace

CommandTrouble make_drop(World& dice, const CommandPlan& plan) {
  std::size_t actions = 0;
  for (const Program& program : plan.programs) actions += program.actions.size();
  CommandTrouble t;
  t.kind = CommandTrouble::Kind::kDrop;
  t.actions = dice.below(actions + 1);
  t.delay = microseconds(dice.below(dice.chance(0.5) ? 300 : 4000));
  t.client = dice.below(plan.programs.size());
  for (microseconds& notice : t.notice) notice = microseconds(dice.below(dice.chance(0.5) ? 20 : 5000));
  return t;
}

CommandPlan make_command_plan(std::uint64_t seed) {
  World dice(seed ^ 0x9e3779b97f4a7c15);
  CommandPlan plan;
  plan.timing = dice.bits();
  plan.transports = make_transports(dice);
  plan.chunk_bytes = 1000 + dice.below(8000);
  plan.window = dice.chance(0.3) ? 1 + dice.below(4) : 2 + dice.below(60);
  if (dice.chance(0.3)) plan.window_bytes = 1 + dice.below(30'000);
  if (dice.chance(0.2)) plan.paths = 2;
  plan.late = dice.chance(0.4);
  plan.principals = dice.chance(0.6);
  plan.one_session = plan.principals && dice.chance(0.3);
  if (plan.principals && dice.chance(0.3)) plan.bytes_per_second = 200'000 + dice.below(3'000'000);
  plan.credits = static_cast<std::uint32_t>(dice.chance(0.3) ? 4 + dice.below(12) : 16 + dice.below(200));
  plan.payload_credit = kMostMessage + dice.below(40'000);
  plan.held_results = plan.payload_credit + dice.below(40'000);
  plan.programs.resize(dice.chance(0.5) ? 1 : 2 + dice.below(2));
  std::size_t all = 0;
  for (Program& program : plan.programs) {
    program.channels = static_cast<std::uint16_t>(1 + dice.below(4));
    program.flush_bytes = static_cast<std::uint32_t>(512 + dice.below(3500));
    program.flush_commands = static_cast<std::uint32_t>(1 + dice.below(dice.chance(0.5) ? 6 : 64));
    program.has_range = dice.chance(0.3);
    if (program.channels > 1 && dice.chance(0.5)) program.devices = kDevices;
    for (std::uint16_t i = 0; i < program.channels; ++i) {
      program.priorities.push_back(dice.chance(0.5) ? 0 : -static_cast<std::int32_t>(dice.below(6)));
    }
    Author(dice, program).write(20 + dice.below(120));
    all += program.actions.size();
  }
  while (plan.troubles.size() < 8 && dice.chance(0.75)) plan.troubles.push_back(make_trouble(dice, plan, all));
  plan.outlives = !plan.one_session && dice.chance(0.5);
  for (; plan.outlives && dice.chance(0.4);) plan.troubles.push_back(make_drop(dice, plan));
  return plan;
}

CommandPlan make_dropping_plan(std::uint64_t seed) {
  CommandPlan plan = make_command_plan(seed);
  World dice(seed ^ 0x5851f42d4c957f2d);
  plan.one_session = false;
  plan.outlives = true;
  plan.troubles.clear();
  for (std::uint64_t i = 1 + dice.below(12); i != 0; --i) plan.troubles.push_back(make_drop(dice, plan));
  return plan;
}

command::Graph graph_of(const std::vector<Action>& actions) {
  command::Graph graph;
  for (const Action& action : actions) {
    const command::Handle to{action.handle}, from{action.other};
    if (action.kind == Kind::kFill) {
      (void)graph.fill(to, action.at, action.bytes, action.value);
    } else if (action.kind == Kind::kCopyWithin) {
      (void)graph.copy_within(to, action.at, from, action.other_at, action.bytes);
    } else {
      (void)graph.launch({{handle_of(action.channel, kFunction)}},
                         mix_parameters(action.handle, action.other, action.bytes));
    }
  }
  return graph;
}

std::vector<std::byte> mix_parameters(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
  const auto packed =
      command::pack(command::Pointer{{from}}, command::Pointer{{to}}, static_cast<std::uint32_t>(bytes));
  return {packed.begin(), packed.end()};
}

std::vector<std::byte> bytes_of(const Action& action) {
  std::vector<std::byte> bytes(action.bytes);
  std::uint64_t state = action.handle * 1'000'003 + action.at * 257 + action.bytes * 65'537 + action.value;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

}  // namespace fairlead::simulation
