#include "plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::simulation {
namespace {

using Kind = Post::Kind;

/// Chance for plans, apart from that of their runs.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : world_(seed ^ 0x9e3779b97f4a7c15) {}
  std::uint64_t below(std::uint64_t bound) { return world_.below(bound); }
  bool chance(double probability) { return world_.chance(probability); }
  microseconds time(std::uint64_t below) { return microseconds(world_.below(below)); }
  std::uint64_t bits() { return world_.bits(); }

 private:
  World world_;
};

std::vector<Habits> make_transports(Dice& dice, bool big) {
  std::vector<Habits> made(1 + dice.below(4));
  for (std::size_t i = 0; i < made.size(); ++i) {
    Habits& habits = made[i];
    const bool tcp = i == 0 && dice.chance(0.5);
    habits.name = tcp ? "tcp" : fmt::format("verbs:fake{}", i);
    habits.refusal_ends_path = !tcp;
    habits.latency = microseconds(2 + dice.below(60));
    if (dice.chance(0.3)) habits.loss = 0.001 * static_cast<double>(1 + dice.below(50));
    habits.reorders = dice.chance(0.3);
    // The last one works, whatever the others do.
    if (i + 1 < made.size() && dice.chance(0.03)) habits.swallows = static_cast<Habits::Swallows>(1 + dice.below(3));
    datapath::Capabilities& can = habits.can;
    can.one_sided = dice.chance(0.8);
    habits.writes_arrive = dice.chance(0.9);
    can.write_then_message_ordered = dice.chance(0.7);
    can.write_notifies = can.write_then_message_ordered && dice.chance(0.5);
    can.software = dice.chance(0.5);
    can.max_message = static_cast<std::uint32_t>(big ? 100'000 + dice.below(1'000'000) : 64 + dice.below(4000));
    can.max_segments = static_cast<std::uint32_t>(1 + dice.below(8));
    can.max_outstanding = static_cast<std::uint32_t>(2 + dice.below(40));
  }
  return made;
}

Post make_post(Dice& dice, const Plan& plan, bool flood) {
  Post post;
  const std::uint64_t dots = flood && dice.chance(0.9) ? 60 : dice.below(100);
  post.kind = dots < 32   ? Kind::kWrite
              : dots < 49 ? Kind::kRead
              : dots < 76 ? Kind::kSend
              : dots < 82 ? Kind::kStrided
              : dots < 88 ? Kind::kPrepared
              : dots < 90 ? Kind::kForbidden
              : dots < 95 ? Kind::kAdd
                          : Kind::kSwap;
  post.bytes = dice.chance(0.1) ? 0 : 1 + dice.below(dice.chance(0.3) ? plan.slot_bytes : 300);
  if (post.kind == Kind::kStrided) {
    post.pieces = 1 + dice.below(12);
  } else {
    while (post.pieces < 6 && dice.chance(0.3)) ++post.pieces;
  }
  post.notifies = dice.chance(0.7);
  if (!flood) post.gap = dice.time(dice.chance(0.05) ? 3000 : 60);
  if (dice.chance(0.03)) post.cancel_after = dice.time(400);
  if (dice.chance(0.05)) post.deadline = dice.time(5000);
  return post;
}

/// Links on which much waits for its turn, and transfers that are taken back meanwhile. Slow, but never as slow as what
/// counts as standing still.
void slow_down(Dice& dice, Plan& plan) {
  plan.slot_bytes = 40'000;
  for (Habits& habits : plan.transports) {
    habits.reorders = false;  // of answers to reads, which are ended in order, the first might be carried last
    habits.can.one_sided = habits.writes_arrive = true;  // those of staged mode wait behind what the other end sends
    habits.bytes_per_us = 0.6 + 0.01 * static_cast<double>(dice.below(400));
    habits.can.max_outstanding = static_cast<std::uint32_t>(10 + dice.below(40));
  }
  for (auto& client : plan.posts) {
    for (std::vector<Post>& end : client) {
      for (Post& post : end) {
        if (dice.chance(0.3)) post.bytes = dice.below(plan.slot_bytes);
        if (dice.chance(0.3)) post.deadline = dice.time(5000);
        if (dice.chance(0.1)) post.cancel_after = dice.time(20'000);
      }
    }
  }
}

/// Many small transfers on paths that take as many: what comes while much is under way goes out in lists.
void crowd(Dice& dice, Plan& plan) {
  plan.slots = 200;
  plan.slot_bytes = 2000;
  for (Habits& habits : plan.transports) {
    habits.can.max_outstanding = static_cast<std::uint32_t>(60 + dice.below(250));
  }
  for (auto& client : plan.posts) {
    for (std::vector<Post>& end : client) {
      end.resize(150 + dice.below(250));
      for (Post& post : end) {
        post = make_post(dice, plan, false);
        post.gap = microseconds(dice.chance(0.95) ? 0 : dice.below(500));
      }
    }
  }
}

/// Some, of one end or of both, which then have paths of their own.
void call_for_commands(Dice& dice, Plan& plan) {
  const double most = dice.chance(0.3) ? 0.05 : 0.5;
  for (auto& client : plan.posts) {
    for (std::vector<Post>& end : client) {
      if (dice.chance(0.3)) continue;
      for (Post& post : end) {
        if (dice.chance(most)) post.traffic = TrafficClass::kCommands;
        post.follows = dice.chance(0.1);
      }
    }
  }
}

/// Data goes over two or three paths, in stripes of which most transfers have several.
void spread_out(Dice& dice, Plan& plan) {
  plan.paths = 2 + dice.below(2);
  if (dice.chance(0.7)) plan.chunk_bytes = 200 + dice.below(2000);
  for (auto& client : plan.posts) {
    for (std::vector<Post>& end : client) {
      for (Post& post : end) {
        if (dice.chance(0.3)) post.bytes = dice.below(plan.slot_bytes + 1);
      }
    }
  }
}

Trouble make_trouble(Dice& dice, const Plan& plan, std::size_t posts) {
  Trouble t;
  t.posts = dice.chance(0.2) ? 0 : dice.below(posts + 1);
  t.delay = dice.time(dice.chance(0.5) ? 300 : 4000);
  t.client = dice.below(plan.posts.size());
  t.end = dice.below(2);
  for (unsigned& n : t.take_back) n = static_cast<unsigned>(dice.below(4));
  for (microseconds& notice : t.notice) notice = dice.chance(0.8) ? dice.time(dice.chance(0.4) ? 200 : 3000) : kNever;
  const std::uint64_t dots = dice.below(1000);
  if (dots < 300) {
    t.kind = Trouble::Kind::kCut;
    // One end at least hears of it; if late, the engines are to find out themselves.
    if (dice.chance(0.08)) t.notice.fill(milliseconds(100) + dice.time(200'000));
    if (t.notice[0] == kNever && t.notice[1] == kNever) t.notice[t.end] = dice.time(3000);
    t.for_good = !plan.survivable && dice.chance(0.6);
  } else if (dots < 420) {
    t.kind = Trouble::Kind::kHangUp;
  } else if (dots < 570) {
    t.kind = Trouble::Kind::kStall;
    t.time = dice.time(120'000);
  } else if (dots < 920) {
    t.kind = Trouble::Kind::kFreeze;
    t.time = dice.time(dice.chance(0.9) ? 15'000 : plan.survivable ? 300'000 : 3'000'000);
  } else if (dots < 935) {
    t.kind = Trouble::Kind::kGarble;
  } else if (dots < 955) {
    t.kind = Trouble::Kind::kClose;
    t.time = dice.time(dice.chance(0.5) ? 300 : 5'000'000);
  } else {
    t.kind = Trouble::Kind::kKill;
    t.time = dice.time(20'000);
  }
  return t;
}

}  // namespace

Plan make_plan(std::uint64_t seed, bool survivable) {
  Dice dice(seed);
  Plan plan;
  plan.timing = dice.bits();
  plan.survivable = survivable;
  const bool big = dice.below(500) == 0;  // messages and writes of up to 16 MiB
  const bool flood = !big && dice.chance(0.08);
  const bool crowded = !big && !flood && dice.chance(0.04);
  plan.transports = make_transports(dice, big);
  plan.chunk_bytes = 1000 + dice.below(8000);
  plan.window = dice.chance(0.3) ? 1 + dice.below(4) : 2 + dice.below(60);
  if (dice.chance(0.5)) plan.window_bytes = 1 + dice.below(30'000);
  if (big) {
    plan.slot_bytes = std::uint64_t{16} << 20;
    plan.slots = 2;
    plan.chunk_bytes = 100'000 + dice.below(1'000'000);
  }
  plan.sleepy = flood;
  plan.hasty = dice.chance(0.1);
  plan.posts.resize(dice.chance(0.1) ? 2 : 1);
  std::size_t all = 0;
  for (auto& client : plan.posts) {
    for (std::vector<Post>& end : client) {
      end.resize(big ? 2 + dice.below(4) : flood ? 200 + dice.below(300) : 15 + dice.below(60));
      for (Post& post : end) post = make_post(dice, plan, flood);
      all += end.size();
    }
  }
  if (crowded) {
    crowd(dice, plan);
    all = size_of(plan);
  }
  if (big) plan.posts[0][0].push_back({.kind = Kind::kSend, .bytes = plan.slot_bytes});
  while (plan.troubles.size() < 12 && dice.chance(0.75)) {
    Trouble t = make_trouble(dice, plan, all);
    if (!plan.troubles.empty() && dice.chance(0.3)) {  // while the last one is being got over
      t.posts = plan.troubles.back().posts;
      t.delay = plan.troubles.back().delay + dice.time(dice.chance(0.5) ? 1000 : 8000);
      t.client = plan.troubles.back().client;
    }
    plan.troubles.push_back(t);
  }
  if (!big && !flood && !crowded && dice.chance(0.03)) slow_down(dice, plan);
  if (dice.chance(0.5)) call_for_commands(dice, plan);
  if (dice.chance(0.5)) spread_out(dice, plan);
  if (dice.chance(0.3)) plan.lanes = 2;
  if (dice.chance(0.2)) plan.places = 2;
  plan.measured = dice.chance(0.2);
  plan.principals = dice.chance(0.3);
  return plan;
}

std::size_t path_sets_of(const Plan& plan) {
  for (const auto& client : plan.posts) {
    for (const std::vector<Post>& end : client) {
      if (std::ranges::any_of(end, [](const Post& post) { return post.traffic == TrafficClass::kCommands; }))
        return plan.paths + 1;
    }
  }
  return plan.paths;
}

std::size_t size_of(const Plan& plan) {
  std::size_t size = plan.troubles.size();
  for (const auto& client : plan.posts) size += client[0].size() + client[1].size();
  return size;
}

// ---- as code

namespace {

std::string time_of(microseconds time) {
  return time == kNever ? "kNever" : fmt::format("microseconds({})", time.count());
}

std::string text_of(const Habits& h) {
  static constexpr const char* kSwallows[] = {"kNothing", "kConnections", "kTowardPassive", "kTowardActive"};
  const datapath::Capabilities& can = h.can;
  std::string text =
      fmt::format("  {{\n    Habits& h = plan.transports.emplace_back();\n    h.name = \"{}\";\n", h.name);
  const auto line = [&](std::string what) { text += "    " + what + ";\n"; };
  const Habits plain;
  if (h.writes_arrive != plain.writes_arrive) line("h.writes_arrive = false");
  if (h.refusal_ends_path != plain.refusal_ends_path) line("h.refusal_ends_path = false");
  if (h.swallows != plain.swallows)
    line(fmt::format("h.swallows = Habits::Swallows::{}", kSwallows[static_cast<int>(h.swallows)]));
  if (h.loss != plain.loss) line(fmt::format("h.loss = {}", h.loss));
  if (h.reorders != plain.reorders) line("h.reorders = true");
  line(fmt::format("h.latency = {}", time_of(h.latency)));
  if (h.bytes_per_us != plain.bytes_per_us) line(fmt::format("h.bytes_per_us = {}", h.bytes_per_us));
  if (!can.one_sided) line("h.can.one_sided = false");
  if (!can.write_then_message_ordered) line("h.can.write_then_message_ordered = false");
  if (can.write_notifies) line("h.can.write_notifies = true");
  if (can.software) line("h.can.software = true");
  line(fmt::format("h.can.max_message = {}", can.max_message));
  line(fmt::format("h.can.max_segments = {}", can.max_segments));
  line(fmt::format("h.can.max_outstanding = {}", can.max_outstanding));
  return text + "  }\n";
}

std::string text_of(const Post& p) {
  static constexpr const char* kKinds[] = {"kWrite",    "kRead",      "kSend", "kStrided",
                                           "kPrepared", "kForbidden", "kAdd",  "kSwap"};
  std::string text = fmt::format("{{.kind = Post::Kind::{}, .bytes = {}", kKinds[static_cast<int>(p.kind)], p.bytes);
  if (p.pieces != 1) text += fmt::format(", .pieces = {}", p.pieces);
  if (p.notifies) text += ", .notifies = true";
  if (p.traffic == TrafficClass::kCommands) text += ", .traffic = TrafficClass::kCommands";
  if (p.follows) text += ", .follows = true";
  if (p.gap.count() != 0) text += fmt::format(", .gap = {}", time_of(p.gap));
  if (p.cancel_after != kNever) text += fmt::format(", .cancel_after = {}", time_of(p.cancel_after));
  if (p.deadline != kNever) text += fmt::format(", .deadline = {}", time_of(p.deadline));
  return text + "}";
}

std::string text_of(const Trouble& t) {
  static constexpr const char* kKinds[] = {"kCut", "kStall", "kFreeze", "kHangUp", "kGarble", "kKill", "kClose"};
  std::string text = fmt::format("{{.kind = Trouble::Kind::{}", kKinds[static_cast<int>(t.kind)]);
  if (t.posts != 0) text += fmt::format(", .posts = {}", t.posts);
  if (t.delay.count() != 0) text += fmt::format(", .delay = {}", time_of(t.delay));
  if (t.client != 0) text += fmt::format(", .client = {}", t.client);
  if (t.end != 0) text += fmt::format(", .end = {}", t.end);
  if (t.time.count() != 0) text += fmt::format(", .time = {}", time_of(t.time));
  if (t.notice != std::array{kNever, kNever})
    text += fmt::format(", .notice = {{{}, {}}}", time_of(t.notice[0]), time_of(t.notice[1]));
  if (t.take_back != std::array<unsigned, 2>{})
    text += fmt::format(", .take_back = {{{}, {}}}", t.take_back[0], t.take_back[1]);
  if (t.for_good) text += ", .for_good = true";
  return text + "}";
}

}  // namespace

std::string to_test(const Plan& plan, const std::string& name) {
  std::string text = fmt::format("TEST_F(Scenario, {}) {{\n  Plan plan;\n", name);
  const auto line = [&](std::string what) { text += "  " + what + ";\n"; };
  const Plan plain;
  line(fmt::format("plan.timing = {}u", plan.timing));
  if (plan.chunk_bytes != plain.chunk_bytes) line(fmt::format("plan.chunk_bytes = {}", plan.chunk_bytes));
  if (plan.paths != plain.paths) line(fmt::format("plan.paths = {}", plan.paths));
  if (plan.measured) line("plan.measured = true");
  if (plan.places != plain.places) line(fmt::format("plan.places = {}", plan.places));
  if (plan.lanes != plain.lanes) line(fmt::format("plan.lanes = {}", plan.lanes));
  if (plan.principals) line("plan.principals = true");
  if (plan.window != plain.window) line(fmt::format("plan.window = {}", plan.window));
  if (plan.window_bytes != plain.window_bytes) line(fmt::format("plan.window_bytes = {}", plan.window_bytes));
  if (plan.slot_bytes != plain.slot_bytes) line(fmt::format("plan.slot_bytes = {}", plan.slot_bytes));
  if (plan.slots != plain.slots) line(fmt::format("plan.slots = {}", plan.slots));
  if (!plan.survivable) line("plan.survivable = false");
  if (plan.sleepy) line("plan.sleepy = true");
  if (!plan.unpublishes) line("plan.unpublishes = false");
  if (plan.hasty) line("plan.hasty = true");
  for (const Habits& habits : plan.transports) text += text_of(habits);
  line(fmt::format("plan.posts.resize({})", plan.posts.size()));
  for (std::size_t client = 0; client < plan.posts.size(); ++client) {
    for (std::size_t end : {0u, 1u}) {
      const std::vector<Post>& posts = plan.posts[client][end];
      if (posts.empty()) continue;
      text += fmt::format("  plan.posts[{}][{}] = {{\n", client, end);
      for (const Post& post : posts) text += "      " + text_of(post) + ",\n";
      text += "  };\n";
    }
  }
  if (!plan.troubles.empty()) {
    text += "  plan.troubles = {\n";
    for (const Trouble& trouble : plan.troubles) text += "      " + text_of(trouble) + ",\n";
    text += "  };\n";
  }
  return text + "  EXPECT_EQ(run_plan(plan).wrong, \"\");\n}\n";
}

}  // namespace fairlead::simulation
