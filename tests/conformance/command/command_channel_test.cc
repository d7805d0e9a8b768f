// Command channels over every way across, commands run on a thread of the session's or in the service's turn: results,
// stages, fences, failures, credits, and the ends of sessions.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "tests/conformance/command/command_pair.h"

namespace fairlead {
namespace {

using command::Channel;
using command::Handle;
using command::pack;
using command::Pointer;
using command::Session;
using command::Stage;
using testing::HasSubstr;

std::vector<float> some_floats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 100 - 10;
  return values;
}

class CommandChannels : public CommandPair {};

TEST_P(CommandChannels, VectorAddAndSaxpy) {
  Channel channel = open(*session);
  for (const std::uint32_t n : {1u, 255u, 5000u}) {
    const std::vector<float> a = some_floats(n, 1), b = some_floats(n, 2);
    const Handle x = put(channel, a), y = put(channel, b), add = load(channel, "vector_add");
    must(channel.launch({add, {n}, {1}}, pack(Pointer{x}, Pointer{y}, Pointer{y}, n)));
    must(channel.launch({load(channel, "saxpy")}, pack(2.5f, Pointer{x}, Pointer{y}, n)));
    std::vector<float> expected(n);
    for (std::size_t i = 0; i < n; ++i) expected[i] = 2.5f * a[i] + (a[i] + b[i]);
    EXPECT_EQ(get(channel, y, n), expected);
  }
}

TEST_P(CommandChannels, WhoOnlyLooksSeesWhatHasCome) {
  Channel channel = open(*session);
  const Handle x = put(channel, some_floats(4, 1));
  const std::uint64_t last = must(channel.fill(x, 0, 4, 0));
  // Nobody else waits, so it is the looks that take the reply; each ends at once.
  Status seen{Code::kDeadlineExceeded, ""};
  while (seen.code() == Code::kDeadlineExceeded) {
    seen = channel.wait(last, Stage::kComplete, std::chrono::nanoseconds(0));
    std::this_thread::yield();
  }
  EXPECT_TRUE(seen.ok()) << seen.message();
}

// Of as many threads as there may be, sums and products have the host's bits.
TEST_P(CommandChannels, VectorAddAndSgemmAreTheHostsBitForBit) {
  constexpr std::uint32_t kCount = 100'003, kM = 67, kN = 45, kK = 129;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> some(-1e3f, 1e3f);
  const auto draw = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = some(random);
    return values;
  };
  const std::vector<float> a = draw(kCount), b = draw(kCount);
  std::vector<float> sums(kCount), products(std::size_t{kM} * kN);
  for (std::size_t i = 0; i < kCount; ++i) sums[i] = a[i] + b[i];
  for (std::size_t i = 0; i < kM; ++i) {
    for (std::size_t j = 0; j < kK; ++j) {
      for (std::size_t l = 0; l < kN; ++l) products[i * kN + l] += a[i * kK + j] * b[j * kN + l];
    }
  }
  Channel channel = open(*session);
  const Handle x = put(channel, a), y = put(channel, b), sum = put(channel, std::vector<float>(kCount)),
               product = put(channel, std::vector<float>(products.size()));
  must(channel.launch({load(channel, "vector_add"), {40}, {256}}, pack(Pointer{x}, Pointer{y}, Pointer{sum}, kCount)));
  must(
      channel.launch({load(channel, "sgemm"), {7}, {128}}, pack(Pointer{x}, Pointer{y}, Pointer{product}, kM, kN, kK)));
  const auto same = [](const std::vector<float>& one, const std::vector<float>& other) {
    return std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(get(channel, sum, kCount), sums));
  EXPECT_TRUE(same(get(channel, product, products.size()), products));
}

TEST_P(CommandChannels, SgemmReduceSoftmaxAndFilter) {
  Channel channel = open(*session);
  constexpr std::uint32_t kM = 7, kN = 5, kK = 9;
  const std::vector<float> a = some_floats(kM * kK, 3), b = some_floats(kK * kN, 4);
  const Handle x = put(channel, a), y = put(channel, b), z = put(channel, std::vector<float>(kM * kN));
  must(channel.launch({load(channel, "sgemm")}, pack(Pointer{x}, Pointer{y}, Pointer{z}, kM, kN, kK)));
  std::vector<float> product(kM * kN);
  for (std::size_t i = 0; i < kM; ++i) {
    for (std::size_t j = 0; j < kK; ++j) {
      for (std::size_t l = 0; l < kN; ++l) product[i * kN + l] += a[i * kK + j] * b[j * kN + l];
    }
  }
  EXPECT_THAT(get(channel, z, kM * kN), testing::Pointwise(testing::FloatNear(1e-3f), product));

  // Sizes of which one is 0 bound the others by nothing, and take no time.
  constexpr std::uint32_t kHuge = 0xffff'ffff;
  must(channel.launch({load(channel, "sgemm")}, pack(Pointer{x}, Pointer{y}, Pointer{z}, 0u, kHuge, 0u)));
  must(channel.launch({load(channel, "sgemm")}, pack(Pointer{x}, Pointer{y}, Pointer{z}, kHuge, 0u, 0u)));
  must(channel.launch({load(channel, "softmax")}, pack(Pointer{x}, Pointer{z}, kHuge, 0u)));
  expect_fine(channel);

  const Handle sum = put(channel, {0});
  must(channel.launch({load(channel, "reduce")}, pack(Pointer{x}, Pointer{sum}, kM * kK)));
  EXPECT_FLOAT_EQ(get(channel, sum, 1)[0], static_cast<float>(std::accumulate(a.begin(), a.end(), 0.0)));

  must(channel.launch({load(channel, "softmax")}, pack(Pointer{x}, Pointer{x}, kM, kK)));
  const std::vector<float> parts = get(channel, x, kM * kK);
  for (std::size_t row = 0; row < kM; ++row) {
    EXPECT_NEAR(std::accumulate(&parts[row * kK], &parts[row * kK] + kK, 0.0f), 1, 1e-5);
    const float* const from = &a[row * kK];
    EXPECT_EQ(std::max_element(&parts[row * kK], &parts[row * kK] + kK) - &parts[row * kK],
              std::max_element(from, from + kK) - from);
  }

  const std::vector<float> image = some_floats(6 * 4, 5);
  const Handle in = put(channel, image), out = put(channel, std::vector<float>(6 * 4));
  const Handle one = put(channel, {0, 0, 0, 0, 1, 0, 0, 0, 0});
  const Handle filter = load(channel, "image_filter");
  must(channel.launch({filter}, pack(Pointer{in}, Pointer{out}, 6u, 4u, Pointer{one})));
  EXPECT_EQ(get(channel, out, 6 * 4), image) << "the weights pick the pixel itself";
  const Handle left = put(channel, {0, 0, 0, 1, 0, 0, 0, 0, 0});
  must(channel.launch({filter}, pack(Pointer{in}, Pointer{out}, 6u, 4u, Pointer{left})));
  const std::vector<float> shifted = get(channel, out, 6 * 4);
  for (std::size_t y2 = 0; y2 < 4; ++y2) {
    EXPECT_EQ(shifted[y2 * 6], image[y2 * 6]) << "past the edge is what stands at the edge";
    EXPECT_EQ(shifted[y2 * 6 + 3], image[y2 * 6 + 2]);
  }
}

// More than the credits of payload, and of results, at once; with pieces that go with commands and replies.
TEST_P(CommandChannels, LargeAndSmallCopiesArrive) {
  Channel channel = open(*session);
  constexpr std::size_t kBytes = (20 << 20) + 12;
  const std::vector<std::byte> from = pattern(kBytes, 1);
  std::vector<std::byte> to(kBytes);
  const Handle one = session->new_handle(), two = session->new_handle();
  must(channel.allocate(one, kBytes));
  must(channel.allocate(two, kBytes));
  must(channel.copy_in(one, 0, from));
  must(channel.copy_within(two, 0, one, 0, kBytes));
  must(channel.copy_out(to, two, 0));
  expect_fine(channel);
  EXPECT_TRUE(are_same(from, to));
  for (const std::size_t size : {0u, 1u, 7u, 1024u, 1025u, 4000u, 70'000u}) {
    std::vector<std::byte> part(size);
    must(channel.fill(two, 0, kBytes, 0xee));
    must(channel.copy_in(two, 3, std::span(from).first(size)));
    must(channel.copy_out(part, two, 3));
    expect_fine(channel);
    EXPECT_TRUE(are_same(part, std::span(from).first(size))) << size;
    std::byte behind[2];
    must(channel.copy_out(behind, two, 2 + size));
    expect_fine(channel);
    EXPECT_EQ(behind[1], std::byte{0xee}) << size;
  }
}

TEST_P(CommandChannels, StagesAreReachedInOrder) {
  Channel channel = open(*session);
  const Handle nothing = load(channel, "nothing");
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t sequence = must(channel.launch({nothing}, {}));
    EXPECT_EQ(sequence, static_cast<std::uint64_t>(i) + 2);
    EXPECT_EQ(channel.reached(Stage::kTaken), sequence);
    // From the last stage to the first: each may move on meanwhile.
    const std::uint64_t complete = channel.reached(Stage::kComplete), executed = channel.reached(Stage::kExecuted),
                        accepted = channel.reached(Stage::kAccepted);
    EXPECT_LE(complete, executed);
    EXPECT_LE(executed, channel.reached(Stage::kAccepted));
    EXPECT_LE(accepted, sequence);
  }
  ASSERT_TRUE(channel.wait(500, Stage::kExecuted, kPatience).ok());
  EXPECT_GE(channel.reached(Stage::kExecuted), 500u);
  expect_fine(channel);
  EXPECT_EQ(channel.reached(Stage::kComplete), 1001u);
  EXPECT_EQ(channel.wait(1002).code(), Code::kInvalidArgument) << "it was not appended";
}

TEST_P(CommandChannels, ATimerSendsWhatNobodyWaitsFor) {
  Channel channel = open(*session);
  const std::uint64_t before = service->stats().commands;
  load(channel, "nothing");
  EXPECT_TRUE(comes_true([&] { return service->stats().commands == before + 1; }));
}

TEST_P(CommandChannels, FencesOrderChannels) {
  constexpr std::uint32_t kRounds = 40, kFloats = 2000;
  std::vector<Channel> channels;
  for (int i = 0; i < 4; ++i) channels.push_back(open(*session));
  const Handle x = put(channels[0], std::vector<float>(kFloats, 1)),
               y = put(channels[0], std::vector<float>(kFloats, 0));
  const Handle saxpy = load(channels[0], "saxpy");
  command::Mark mark = must(channels[0].record());
  // Each turn adds in another channel than the one before: a lost order would lose sums.
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    Channel& channel = channels[round % channels.size()];
    must(channel.fence(mark));
    must(channel.launch({saxpy}, pack(1.0f, Pointer{x}, Pointer{y}, kFloats)));
    must(channel.launch({saxpy}, pack(1.0f, Pointer{y}, Pointer{x}, 1u)));
    mark = must(channel.record());
  }
  must(channels[1].fence(mark));
  const std::vector<float> sums = get(channels[1], y, kFloats);
  EXPECT_EQ(sums[kFloats - 1], static_cast<float>(kRounds));
  for (Channel& channel : channels) expect_fine(channel);
}

TEST_P(CommandChannels, AFenceFailsWithWhatItWaitsFor) {
  Channel one = open(*session), two = open(*session);
  must(one.release({999}));
  const command::Mark mark = must(one.record());
  must(two.fence(mark));
  must(two.allocate(session->new_handle(), 64));
  const Status end = two.synchronize(kPatience);
  EXPECT_EQ(end.code(), Code::kAborted);
  ASSERT_TRUE(two.failure());
  EXPECT_EQ(two.failure()->scope, command::Scope::kStream);
  EXPECT_EQ(two.failure()->sequence, 1u);
  EXPECT_EQ(two.failure()->result, command::kInvalidHandle);
  ASSERT_TRUE(two.recover().ok());
  EXPECT_EQ(one.synchronize(kPatience).code(), Code::kAborted);
  ASSERT_TRUE(one.recover().ok());
  must(two.fence(must(one.record())));
  expect_fine(two);
}

TEST_P(CommandChannels, WhatFollowsARecoveryLeavesByItself) {
  Channel channel = open(*session);
  must(channel.release({999}));
  EXPECT_EQ(channel.synchronize(kPatience).code(), Code::kAborted);
  // By now nobody looks for buffers, and nobody waits for what comes.
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const std::uint64_t before = service->stats().commands;
  ASSERT_TRUE(channel.recover().ok());
  must(channel.allocate(session->new_handle(), 64));
  EXPECT_TRUE(comes_true([&] { return service->stats().commands == before + 2; }));
}

// What the client can see to be wrong it does not send, and it is no failure of the channel.
TEST_P(CommandChannels, ImpossibleLaunchesAreRefusedAtOnce) {
  Channel channel = open(*session);
  const Handle nothing = load(channel, "nothing");
  const std::vector<std::byte> parameters(5000);
  const auto refused = [&](command::Launch launch, std::size_t bytes, std::string_view words) {
    const Result<std::uint64_t> result = channel.launch(launch, std::span(parameters).first(bytes));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), HasSubstr(words));
  };
  refused({nothing, {0, 1, 1}, {1}}, 0, "a grid of 0 x 1 x 1");
  refused({nothing, {1, 70'000, 1}, {1}}, 0, "a grid of 1 x 70000 x 1");
  refused({nothing, {1}, {2048}}, 0, "a block of 2048");
  refused({nothing, {1}, {0xffff'ffff, 0xffff'ffff, 0xffff'ffff}}, 0, "a block of");
  refused({nothing, {1}, {1}, 1 << 30}, 0, "of shared memory");
  refused({nothing, {1}, {1}}, 4097, "4097 bytes of parameters");
  refused({{}, {1}, {1}}, 0, "no function");
  EXPECT_FALSE(channel.allocate({}, 8));
  EXPECT_FALSE(channel.allocate({5}, 0));
  EXPECT_FALSE(channel.load({5}, ""));
  EXPECT_FALSE(channel.user(5, {}));
  EXPECT_FALSE(channel.fence({}));
  must(channel.user(0x8001, std::span(parameters).first(4096)));
  must(channel.launch({nothing}, {}));
  expect_fine(channel);
  EXPECT_EQ(channel.last(), 3u);
  EXPECT_FALSE(Channel().launch({nothing}, {}));
}

// ---- failures ------------------------------------------------------------------------------------------------------

using Model = std::map<std::uint64_t, std::vector<std::byte>>;

/// One command, and what it does to a model of the device.
struct Action {
  std::function<Result<std::uint64_t>(Channel&)> append;
  std::function<void(Model&)> apply;
};

class Programs {
 public:
  /// `reach`: the device knows how far kernels reach.
  Programs(unsigned seed, bool reach) : random_(seed), reach_(reach) {}

  Action next(const std::vector<std::uint64_t>& handles) {
    const auto pick = [&] { return handles[below(handles.size())]; };
    const Handle to{pick()}, from{pick()};
    const std::size_t at = below(kBytes / 2), other = below(kBytes / 2), length = below(kBytes / 2) + 1;
    switch (below(4)) {
      case 0: {
        const auto value = static_cast<std::uint8_t>(below(kByte));
        return {[=](Channel& channel) { return channel.fill(to, at, length, value); },
                [=](Model& model) { std::memset(&model[to.bits][at], value, length); }};
      }
      case 1: {
        std::vector<std::byte> bytes(length);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(below(kByte));
        return {[=](Channel& channel) { return channel.copy_in(to, at, bytes); },
                [=](Model& model) { std::copy(bytes.begin(), bytes.end(), &model[to.bits][at]); }};
      }
      case 2:
        return {[=](Channel& channel) { return channel.copy_within(to, at, from, other, length); },
                [=](Model& model) { std::memmove(&model[to.bits][at], &model[from.bits][other], length); }};
      default: {
        const std::uint32_t n = static_cast<std::uint32_t>(length) / 4;
        return {[=, this](Channel& channel) {
                  return channel.launch({add_}, pack(Pointer{from}, Pointer{from}, Pointer{to, at / 4 * 4}, n));
                },
                [=](Model& model) {
                  std::vector<float> values(n);
                  std::memcpy(values.data(), model[from.bits].data(), 4ul * n);
                  for (std::size_t i = 0; i < n; ++i) {
                    float sum = values[i] + values[i];
                    if (to.bits == from.bits && i + at / 4 < n) values[i + at / 4] = sum;
                    std::memcpy(&model[to.bits][at / 4 * 4 + 4 * i], &sum, 4);
                  }
                }};
      }
    }
  }

  /// One that fails, whatever was before it; its CUresult.
  std::int32_t wrong(Channel& channel, std::uint64_t handle, std::uint64_t& sequence) {
    const Handle good{handle}, none{1'000'000};
    const std::vector<std::byte> bytes(2000);
    const std::function<Result<std::uint64_t>()> kinds[] = {
        [&] { return channel.fill(none, 0, 1, 0); },
        [&] { return channel.release(none); },
        [&] { return channel.copy_in(good, kBytes - 1999, bytes); },
        [&] { return channel.copy_in(good, ~std::uint64_t{0}, std::span(bytes).first(8)); },
        [&] { return channel.copy_out(sink_, good, kBytes - 1999); },
        [&] { return channel.copy_within(good, 0, good, 1, kBytes); },
        [&] { return channel.launch({none}, {}); },
        [&] { return channel.launch({add_}, pack(Pointer{good}, Pointer{good}, Pointer{good, kBytes + 4}, 1u)); },
        [&] { return channel.launch({add_}, pack(Pointer{good})); },
        [&] { return channel.load(none, "no such function"); },
        [&] { return channel.allocate(none, std::uint64_t{1} << 40); },
        [&] { return channel.allocate(good, 8); },
        [&] { return channel.user(0x9000, bytes); },
        // How far a kernel reaches is known on the host alone.
        [&] { return channel.launch({add_}, pack(Pointer{good}, Pointer{good}, Pointer{good, 4}, kBytes / 4)); },
        [&] { return channel.launch({add_}, pack(Pointer{good}, Pointer{good}, Pointer{good, 2}, 1u)); },
    };
    const std::int32_t results[] = {400, 400, 1, 1, 1, 1, 400, 700, 1, 500, 2, 1, 801, 700, 700};
    const std::size_t kind = below(std::size(kinds) - (reach_ ? 0 : 2));
    const Result<std::uint64_t> appended = kinds[kind]();
    EXPECT_TRUE(appended);
    sequence = appended ? *appended : 0;
    return results[kind];
  }

  std::size_t below(std::size_t limit) { return random_() % limit; }
  void set_add(Handle add) { add_ = add; }

  static constexpr std::uint32_t kBytes = 6000;

 private:
  /// Of what no sum of floats makes a NaN, whose bits are each device's own affair.
  static constexpr std::size_t kByte = 64;

  std::mt19937 random_;
  const bool reach_;
  Handle add_;
  std::vector<std::byte> sink_ = std::vector<std::byte>(2000);
};

// Of a random program each command in turn is preceded by one that fails: it is named, nothing behind it ran,
// everything before it did, and after recovery the rest of the program does.
TEST_P(CommandChannels, AFailureAtEveryPositionIsNamedAndNothingRunsAfterIt) {
  constexpr std::size_t kActions = 12;
  Channel channel = open(*session);
  const Handle add = load(channel, "vector_add");
  for (const unsigned seed : {1u, 2u, 3u}) {
    for (std::size_t position = 0; position <= kActions; ++position) {
      Programs programs(seed * 1000 + static_cast<unsigned>(position), !GetParam().cuda);
      programs.set_add(add);
      Model model;
      std::vector<std::uint64_t> handles;
      for (int i = 0; i < 3; ++i) {
        handles.push_back(session->new_handle().bits);
        model[handles.back()].resize(Programs::kBytes);
        must(channel.allocate({handles.back()}, Programs::kBytes));
      }
      std::vector<Action> actions;
      for (std::size_t i = 0; i < kActions; ++i) actions.push_back(programs.next(handles));
      for (std::size_t i = 0; i < position; ++i) {
        must(actions[i].append(channel));
        actions[i].apply(model);
        if (programs.below(4) == 0) channel.flush();
      }
      std::uint64_t failing = 0;
      const std::int32_t result = programs.wrong(channel, handles[0], failing);
      for (std::size_t i = position; i < kActions; ++i) {
        const Result<std::uint64_t> appended = actions[i].append(channel);
        if (!appended) break;  // it is known by now
        if (programs.below(4) == 0) channel.flush();
      }
      const std::uint64_t last = channel.last();
      const Status end = channel.synchronize(kPatience);
      ASSERT_EQ(end.code(), Code::kAborted) << end.to_string();
      const std::optional<command::Failure> failure = channel.failure();
      ASSERT_TRUE(failure);
      ASSERT_EQ(failure->sequence, failing) << failure->text;
      ASSERT_EQ(failure->scope, command::Scope::kCommand);
      ASSERT_EQ(failure->result, result) << failure->text;
      EXPECT_THAT(end.message(), HasSubstr(failure->text));
      EXPECT_TRUE(channel.wait(failing - 1, Stage::kComplete, kPatience).ok());
      ASSERT_FALSE(channel.fill({handles[0]}, 0, 1, 1)) << "the channel has failed";
      ASSERT_TRUE(channel.recover().ok());
      ASSERT_TRUE(channel.recover().ok()) << "there is nothing to recover from";

      const auto compare = [&] {
        Model seen;
        for (const auto handle : handles) {
          seen[handle].resize(Programs::kBytes);
          must(channel.copy_out(seen[handle], {handle}, 0));
        }
        expect_fine(channel);
        return seen == model;
      };
      ASSERT_TRUE(compare()) << "seed " << seed << ", position " << position;
      EXPECT_EQ(channel.wait(failing, Stage::kComplete, kPatience).code(), Code::kAborted) << "it stays failed";
      EXPECT_EQ(channel.wait(last, Stage::kComplete, kPatience).code(), Code::kAborted);
      for (std::size_t i = position; i < kActions; ++i) {
        must(actions[i].append(channel));
        actions[i].apply(model);
      }
      ASSERT_TRUE(compare()) << "seed " << seed << ", position " << position << ", resumed";
      for (const auto handle : handles) must(channel.release({handle}));
    }
  }
  expect_fine(channel);
}

TEST_P(CommandChannels, ALostContextIsTheSessionsAlone) {
  Session second = connect();
  Channel other = open(second), channel = open(*session), beside = open(*session);
  must(channel.launch({load(channel, "fault")}, {}));
  EXPECT_EQ(channel.synchronize(kPatience).code(), Code::kAborted);
  ASSERT_TRUE(channel.failure());
  EXPECT_EQ(channel.failure()->scope, command::Scope::kContext);
  EXPECT_EQ(channel.failure()->result, command::kLaunchFailed);
  EXPECT_EQ(channel.recover().code(), Code::kAborted);
  must(beside.allocate({77}, 8));
  EXPECT_EQ(beside.synchronize(kPatience).code(), Code::kAborted);
  EXPECT_TRUE(session->status().ok()) << "it is the device's failure, not the session's";
  if (faults_spread()) return;
  must(other.allocate({77}, 8));
  must(other.fill({77}, 0, 8, 1));
  expect_fine(other);
}

TEST_P(CommandChannels, FreedMemoryIsClearedBeforeItIsAnothers) {
  constexpr std::size_t kBytes = 200'000;
  const std::vector<std::byte> secret(kBytes, std::byte{0x5a});
  for (int round = 0; round < 5; ++round) {
    Channel channel = open(*session);
    const Handle mine = session->new_handle();
    must(channel.allocate(mine, kBytes));
    must(channel.copy_in(mine, 0, secret));
    must(channel.release(mine));
    expect_fine(channel);
    Session second = connect();
    Channel other = open(second);
    std::vector<std::byte> seen(kBytes, std::byte{1});
    must(other.allocate(mine, kBytes));
    must(other.copy_out(seen, mine, 0));
    expect_fine(other);
    EXPECT_TRUE(are_all(seen, std::byte{0}));
  }
}

TEST_P(CommandChannels, ManyThreadsMayAppendAndWait) {
  constexpr int kThreads = 4, kEach = 800;
  Channel shared = open(*session);
  const Handle nothing = load(shared, "nothing");
  expect_fine(shared);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Channel own = must(session->open_channel());
      std::uint64_t least = 0;
      for (int i = 0; i < kEach; ++i) {
        const std::uint64_t sequence = must(shared.launch({nothing}, {}));
        EXPECT_GT(sequence, least);
        least = sequence;
        must(own.launch({nothing}, {}));
        if (i % 100 == 0) expect_fine(own);
      }
      EXPECT_TRUE(shared.wait(least, Stage::kComplete, kPatience).ok());
      EXPECT_TRUE(own.synchronize(kPatience).ok());
      EXPECT_EQ(own.last(), static_cast<std::uint64_t>(kEach));
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect_fine(shared);
  EXPECT_EQ(shared.last(), 1u + kThreads * kEach);
  // A reply leaves before what it tells of is counted.
  EXPECT_TRUE(comes_true([&] { return service->stats().commands == 1u + 2 * kThreads * kEach; }));
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandChannels, testing::ValuesIn(command_ways()),
                         [](const auto& info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Cuda, CommandChannels, testing::ValuesIn(cuda_command_ways()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
