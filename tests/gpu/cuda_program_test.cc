// Random programs on the CUDA executor, and a failure at every call of the driver that they make: the command that
// failed is named, what ran is what was said, and nothing stays behind.
#include <cstring>
#include <random>

#include "tests/gpu/cuda_session.h"

namespace fairlead::gpu::testing {
namespace {

using command::Pointer;
using command::Scope;
using wire::Opcode;

constexpr std::uint32_t kBytes = 3000;
constexpr std::uint64_t kAdd = 1, kFirst = 10, kAllocations = 3;

/// What the device holds.
using Model = std::map<std::uint64_t, std::vector<std::byte>>;

/// One command of channel 0: what it is on the wire, what it does, and what it tells, if anything.
struct Action {
  std::function<std::uint64_t(HandFed&)> give;
  std::function<void(Model&)> apply;
  std::function<std::vector<std::byte>(const Model&)> tells{};
};

class Programs {
 public:
  explicit Programs(unsigned seed) : random_(seed) {}

  std::vector<Action> begin() {
    std::vector<Action> actions;
    const std::string name = "vector_add";
    actions.push_back({[name](HandFed& to) {
                         return to.give(0, Opcode::kLoad, wire::LoadBody{kAdd, name.size()},
                                        std::as_bytes(std::span(name)));
                       },
                       [](Model&) {}});
    for (std::uint64_t i = 0; i < kAllocations; ++i) actions.push_back(allocate(kFirst + i));
    // One that overlaps, which takes memory of its own, in every program.
    actions.push_back(
        {[](HandFed& to) { return to.give(0, Opcode::kCopyWithin, wire::CopyWithinBody{kFirst, 9, kFirst, 0, 100}); },
         [](Model& model) { std::memmove(&model[kFirst][9], &model[kFirst][0], 100); }});
    return actions;
  }
  static Action allocate(std::uint64_t handle) {
    return {[handle](HandFed& to) { return to.give(0, Opcode::kAllocate, wire::AllocateBody{handle, kBytes}); },
            [handle](Model& model) { model[handle].assign(kBytes, std::byte{0}); }};
  }
  static Action release(std::uint64_t handle) {
    return {[handle](HandFed& to) { return to.give(0, Opcode::kRelease, wire::ReleaseBody{handle}); },
            [handle](Model& model) { model.erase(handle); }};
  }

  /// Appends one, or some that belong together.
  void next(std::vector<Action>& to) {
    if (below(7) == 0) return graph(to);
    const std::uint64_t target = kFirst + below(kAllocations), source = kFirst + below(kAllocations);
    const std::uint64_t at = below(kBytes / 2), other = below(kBytes / 2), length = below(kBytes / 2) + 1;
    switch (below(6)) {
      case 0:
        return to.push_back(
            {[=](HandFed& fed) { return fed.give(0, Opcode::kFill, wire::FillBody{target, at, length, at % 251}); },
             [=](Model& model) { std::memset(&model[target][at], static_cast<int>(at % 251), length); }});
      case 1: {
        std::vector<std::byte> bytes(std::min<std::uint64_t>(length, wire::kMaxInline));
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(below(256));
        return to.push_back({[=](HandFed& fed) {
                               return fed.give(0, Opcode::kCopyIn, wire::CopyBody{target, at, bytes.size()}, bytes,
                                               wire::kInline);
                             },
                             [=](Model& model) { std::ranges::copy(bytes, &model[target][at]); }});
      }
      case 2:  // overlaps at times
        return to.push_back({[=](HandFed& fed) {
                               return fed.give(0, Opcode::kCopyWithin,
                                               wire::CopyWithinBody{target, at, source, other, length});
                             },
                             [=](Model& model) { std::memmove(&model[target][at], &model[source][other], length); }});
      case 3:
        return to.push_back(
            {[=](HandFed& fed) { return fed.give(0, Opcode::kCopyOut, wire::CopyBody{target, at, length}); },
             [](Model&) {},
             [=](const Model& model) {
               const std::byte* const from = model.at(target).data() + at;
               return std::vector<std::byte>(from, from + length);
             }});
      case 4:
        to.push_back(release(target));
        return to.push_back(allocate(target));
      default: {
        const auto n = static_cast<std::uint32_t>(length / 4);
        return to.push_back({[=](HandFed& fed) {
                               const auto parameters = command::pack(Pointer{{source}}, Pointer{{source}},
                                                                     Pointer{{target}, at / 4 * 4}, n);
                               return fed.give(0, Opcode::kLaunch,
                                               wire::LaunchBody{kAdd, {1, 1, 1}, {1, 1, 1}, 0, parameters.size()},
                                               parameters);
                             },
                             [=](Model& model) { twice(model[source], model[target], at / 4 * 4, n); }});
      }
    }
  }
  /// Some commands as one graph, which runs once or twice.
  void graph(std::vector<Action>& to) {
    const std::uint64_t handle = ++graphs_, count = 1 + below(3), times = 1 + below(2);
    std::vector<std::byte> records;
    std::vector<std::function<void(Model&)>> does;
    std::vector<std::uint32_t> launches;  // their numbers
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t target = kFirst + below(kAllocations), source = kFirst + below(kAllocations);
      const std::uint64_t at = below(kBytes / 2), length = below(kBytes / 2) + 1;
      switch (below(3)) {
        case 0:
          put_record(records, Opcode::kFill, wire::FillBody{target, at, length, at % 251});
          does.push_back([=](Model& model) { std::memset(&model[target][at], static_cast<int>(at % 251), length); });
          break;
        case 1:  // from one half to the other
          put_record(records, Opcode::kCopyWithin, wire::CopyWithinBody{target, kBytes / 2, source, 0, length});
          does.push_back([=](Model& model) { std::memmove(&model[target][kBytes / 2], &model[source][0], length); });
          break;
        default: {
          const auto n = static_cast<std::uint32_t>(length / 4);
          const auto parameters = command::pack(Pointer{{source}}, Pointer{{source}}, Pointer{{target}, at / 4 * 4}, n);
          put_record(records, Opcode::kLaunch, wire::LaunchBody{kAdd, {1, 1, 1}, {1, 1, 1}, 0, parameters.size()},
                     parameters);
          launches.push_back(static_cast<std::uint32_t>(i + 1));
          does.push_back([=](Model& model) { twice(model[source], model[target], at / 4 * 4, n); });
        }
      }
    }
    to.push_back({[=](HandFed& fed) {
                    return fed.give(0, Opcode::kGraph, wire::GraphBody{handle, records.size(), count}, records,
                                    wire::kInline);
                  },
                  [](Model&) {}});
    const auto launch = [&] {
      return Action{[=](HandFed& fed) { return fed.give(0, Opcode::kLaunchGraph, wire::GraphHandleBody{handle}); },
                    [=](Model& model) {
                      for (const auto& each : does) each(model);
                    }};
    };
    to.insert(to.end(), times, launch());
    if (!launches.empty()) {
      const std::uint32_t number = launches[below(launches.size())];
      const std::uint64_t target = kFirst + below(kAllocations), source = kFirst + below(kAllocations);
      const auto n = static_cast<std::uint32_t>(1 + below(kBytes / 8));
      const auto parameters = command::pack(Pointer{{source}}, Pointer{{source}}, Pointer{{target}, 4}, n);
      to.push_back(
          {[=](HandFed& fed) {
             return fed.give(
                 0, Opcode::kUpdateGraph,
                 wire::UpdateGraphBody{
                     handle, number, static_cast<std::uint32_t>(parameters.size()), {1, 1, 1}, {1, 1, 1}, 0, 0},
                 parameters);
           },
           [](Model&) {}});
      does[number - 1] = [=](Model& model) { twice(model[source], model[target], 4, n); };
      to.push_back(launch());
    }
    to.push_back({[=](HandFed& fed) { return fed.give(0, Opcode::kReleaseGraph, wire::GraphHandleBody{handle}); },
                  [](Model&) {}});
  }
  static void twice(const std::vector<std::byte>& from, std::vector<std::byte>& to, std::uint64_t at,
                    std::uint32_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      float value = 0;
      std::memcpy(&value, &from[4 * i], 4);
      value += value;
      std::memcpy(&to[at + 4 * i], &value, 4);
    }
  }
  template <typename Body>
  static void put_record(std::vector<std::byte>& to, Opcode opcode, const Body& body,
                         std::span<const std::byte> tail = {}) {
    const std::vector<std::byte> record = HandFed::record(opcode, body, tail);
    to.insert(to.end(), record.begin(), record.end());
  }
  std::vector<Action> program(std::size_t length) {
    std::vector<Action> actions = begin();
    while (actions.size() < length) next(actions);
    return actions;
  }
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

 private:
  std::mt19937 random_;
  std::uint64_t graphs_ = 0;
};

/// Gives all of it, some of it while other parts run. The sequences of the actions.
std::vector<std::uint64_t> run(HandFed& fed, const std::vector<Action>& actions, Programs& chance) {
  std::vector<std::uint64_t> sequences;
  for (const Action& each : actions) {
    sequences.push_back(each.give(fed));
    // Another channel, behind the first.
    if (chance.below(4) == 0) {
      const std::uint64_t marked = fed.mark(0);
      fed.give(1, Opcode::kFence, wire::FenceBody{0, marked});
    }
    if (chance.below(3) == 0) fed.step();
  }
  return sequences;
}

/// What the device holds when those before `end` ran; what they told is compared as far as they are complete.
Model compare(HandFed& fed, const std::vector<Action>& actions, const std::vector<std::uint64_t>& sequences,
              std::uint64_t end) {
  Model model;
  for (std::size_t i = 0; i < actions.size() && sequences[i] < end; ++i) {
    actions[i].apply(model);
    if (!actions[i].tells || sequences[i] > fed.channels[0].complete) continue;
    EXPECT_TRUE(fed.channels[0].data[sequences[i]] == actions[i].tells(model)) << "command " << sequences[i];
  }
  return model;
}

/// What the device holds of them now.
Model read(HandFed& fed, const Model& like) {
  std::map<std::uint64_t, std::uint64_t> asked;
  for (const auto& [handle, bytes] : like)
    asked[handle] = fed.give(0, Opcode::kCopyOut, wire::CopyBody{handle, 0, kBytes});
  EXPECT_TRUE(fed.settle());
  EXPECT_FALSE(fed.channels[0].failure) << fed.channels[0].failure->text;
  Model held;
  for (const auto& [handle, sequence] : asked) held[handle] = fed.channels[0].data[sequence];
  return held;
}

class CudaPrograms : public ::testing::Test {
 protected:
  CudaPrograms() : fed(command::standard_kernels()) {}
  HandFed fed;
};

TEST_F(CudaPrograms, DoWhatTheirModelDoes) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    Programs programs(seed);
    const std::vector<Action> actions = programs.program(40);
    ASSERT_TRUE(fed.greet());
    Model model;
    for (const Action& each : actions) each.apply(model);
    run(fed, actions, programs);
    ASSERT_TRUE(fed.settle());
    ASSERT_FALSE(fed.channels[0].failure) << fed.channels[0].failure->text;
    ASSERT_EQ(read(fed, model), model) << seed;
    fed.end();
    EXPECT_EQ(fed.cuda.orphans(), 0u) << "each thing is freed by itself";
  }
}

/// The calls that the programs of a seed make while a session of them begins, runs and ends.
std::vector<std::string> calls_of(HandFed& fed, unsigned seed) {
  fed.cuda.fail_call("none", 1, CuResult::kOutOfMemory);  // the one that was to fail last may not have come
  std::map<std::string, std::size_t> before;
  for (const std::string& name : fed.cuda.names_counted()) before[name] = fed.cuda.calls(name);
  Programs programs(seed);
  const std::vector<Action> actions = programs.program(30);
  EXPECT_TRUE(fed.greet());
  run(fed, actions, programs);
  EXPECT_TRUE(fed.settle());
  fed.end();
  std::vector<std::string> names = fed.cuda.names_counted();
  std::erase_if(names, [&](const std::string& name) { return fed.cuda.calls(name) == before[name]; });
  return names;
}

// A call that is refused is the failure of the command that made it, and that changed nothing. One by which the
// executor keeps track loses the context, and so does what CUDA calls sticky: then the first command that is not known
// to be complete is named. How often the executor asks how far the device is, is a matter of time, so calls are counted
// by their names: no other call moves them past the one that is to fail.
class CudaFailures : public CudaPrograms {
 protected:
  /// Call `n` of that name fails while a program runs. False: there are fewer.
  bool fail(unsigned seed, const std::string& name, std::size_t n, CuResult result) {
    SCOPED_TRACE(name + ", seed " + std::to_string(seed) + ", call " + std::to_string(n));
    Programs programs(seed);
    const std::vector<Action> actions = programs.program(30);
    fed.end();
    EXPECT_EQ(fed.cuda.live_objects(), 0u);
    fed.cuda.fail_call(name, n, result);
    if (!fed.greet()) {
      EXPECT_THAT(fed.why.message(), ::testing::HasSubstr("cu")) << "it names the call";
      return true;
    }
    const std::vector<std::uint64_t> sequences = run(fed, actions, programs);
    EXPECT_TRUE(fed.settle());
    if (fed.cuda.failed_call().empty()) {
      fed.end();  // which calls some, too
      compare(fed, actions, sequences, ~std::uint64_t{0});
      return !fed.cuda.failed_call().empty();
    }
    const Asked* const asked = fed.asked_at(fed.cuda.failed_at());
    EXPECT_NE(asked, nullptr);
    if (asked == nullptr) return false;
    ++failed_[name];
    judge(*asked, name, result, actions, sequences);
    return true;
  }

  void judge(const Asked& asked, const std::string& call, CuResult result, const std::vector<Action>& actions,
             const std::vector<std::uint64_t>& sequences) {
    auto& channel = fed.channels[static_cast<std::uint16_t>(asked.place.channel)];
    const auto& failure = channel.failure;
    if (call.ends_with("destroy") && result != CuResult::kIllegalAddress) {  // it is destroyed all the same
      EXPECT_FALSE(failure);
      compare(fed, actions, sequences, ~std::uint64_t{0});
      return;
    }
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->result, static_cast<std::int32_t>(result));
    if (asked.what == Asked::What::kProgress || result == CuResult::kIllegalAddress || call == "context_push") {
      EXPECT_EQ(failure->scope, Scope::kContext);
      if (asked.what == Asked::What::kCommand) {
        EXPECT_LE(failure->sequence, asked.place.sequence);
      }
      for (const auto& [number, each] : fed.channels) {
        if (each.complete < each.last) {
          ASSERT_TRUE(each.failure) << number;
          EXPECT_EQ(each.failure->sequence, each.complete + 1);
        }
      }
      compare(fed, actions, sequences, failure->sequence);
      return;
    }
    EXPECT_EQ(failure->scope, Scope::kCommand);
    EXPECT_EQ(failure->sequence, asked.place.sequence);
    if (asked.place.channel != 0) {
      EXPECT_FALSE(fed.channels[0].failure) << "it is the other's";
      return;
    }
    const Model model = compare(fed, actions, sequences, failure->sequence);
    fed.give(0, Opcode::kRecover, wire::RecoverBody{std::exchange(channel.failure, std::nullopt)->sequence});
    ASSERT_TRUE(read(fed, model) == model);
  }

  std::map<std::string, int> failed_;
};

TEST_F(CudaFailures, AreNamedAtEveryCall) {
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    const std::vector<std::string> names = calls_of(fed, seed);
    for (const CuResult result : {CuResult::kOutOfMemory, CuResult::kIllegalAddress}) {
      for (const std::string& name : names) {
        for (std::size_t n = 1; fail(seed, name, n, result); ++n) {
          if (HasFailure()) return;
        }
      }
      fed.end();
      ASSERT_EQ(fed.cuda.live_objects(), 0u);
    }
  }
  // stream_wait is not among them: it is made where what is waited for is not done yet.
  for (const char* call : {"context_push",
                           "stream_create",
                           "event_create",
                           "event_record",
                           "event_query",
                           "fill",
                           "copy_to_device",
                           "copy_to_host",
                           "copy_within",
                           "module_load",
                           "module_function",
                           "function_parameter",
                           "launch",
                           "memory_alloc",
                           "capture_begin",
                           "capture_end",
                           "graph_instantiate",
                           "graph_destroy",
                           "graph_launch",
                           "capture_info",
                           "graph_exec_set_launch",
                           "graph_exec_destroy",
                           "stream_destroy"}) {
    EXPECT_GT(failed_[call], 0) << call;
  }
}

// The device tells of a fault when it is past much else.
TEST_F(CudaPrograms, AFaultIsToldOfAfterwardsAndLosesTheContext) {
  const std::string name = "reduce";
  for (unsigned seed = 1; seed <= 40; ++seed) {
    Programs programs(seed);
    std::vector<Action> actions = programs.program(20);
    const std::size_t position = kAllocations + 2 + programs.below(actions.size() - kAllocations - 1);
    // It reads from address 0.
    actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(position),
                   {[name](HandFed& to) {
                      to.give(0, Opcode::kLoad, wire::LoadBody{2, name.size()}, std::as_bytes(std::span(name)));
                      const auto parameters = command::pack(Pointer{}, Pointer{}, 100u);
                      return to.give(0, Opcode::kLaunch,
                                     wire::LaunchBody{2, {1, 1, 1}, {1, 1, 1}, 0, parameters.size()}, parameters);
                    },
                    [](Model&) {}});
    ASSERT_TRUE(fed.greet());
    if (seed % 2 == 0) fed.cuda.hold_copies();
    const std::vector<std::uint64_t> sequences = run(fed, actions, programs);
    fed.cuda.let_copies_go();
    ASSERT_TRUE(fed.settle());
    const HandFed::Channel& channel = fed.channels[0];
    ASSERT_TRUE(channel.failure);
    EXPECT_EQ(channel.failure->scope, Scope::kContext);
    EXPECT_EQ(channel.failure->result, command::kIllegalAddress);
    EXPECT_EQ(channel.failure->sequence, channel.complete + 1);
    EXPECT_LE(channel.failure->sequence, sequences[position]);
    EXPECT_EQ(channel.executed, channel.last) << "what came later was passed over";
    compare(fed, actions, sequences, channel.failure->sequence);
    fed.end();
    ASSERT_EQ(fed.cuda.live_objects(), 0u);
  }
  // A device that lost a context has others.
  ASSERT_TRUE(fed.greet());
  fed.give(0, Opcode::kAllocate, wire::AllocateBody{1, 8});
  ASSERT_TRUE(fed.settle());
  EXPECT_FALSE(fed.channels[0].failure);
}

}  // namespace
}  // namespace fairlead::gpu::testing
