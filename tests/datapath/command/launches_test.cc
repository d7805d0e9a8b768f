// Launches of what was launched before, by the million: they take a short way, on which nothing that was looked at once
// may stand for what has changed since.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fairlead/command.h"
#include "tests/datapath/command/fed_session.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Call;
using fairlead::command::Extent;
using fairlead::command::kInvalidHandle;
using fairlead::command::kInvalidValue;
using fairlead::command::Launch;
using fairlead::command::ParameterKind;

class Launches : public FedSession {
 protected:
  void add_kernels(HostExecutorConfig& config) override {
    config.kernels.push_back({"first", {{ParameterKind::kU64}}, {}, [this](const Call& call) {
                                first_.push_back(call.u64(0));
                                addresses_.push_back(call.addresses != nullptr);
                                now_ += each_;
                                return Status();
                              }});
    config.kernels.push_back({"second", {{ParameterKind::kU64}}, {}, [this](const Call& call) {
                                second_.push_back(call.u64(0));
                                return Status();
                              }});
    config.kernels.push_back({"writes",
                              {{ParameterKind::kPointer}},
                              [](const Call&, std::size_t) { return 8; },
                              [this](const Call& call) {
                                first_.push_back(std::to_integer<std::uint64_t>(*call.pointer<std::byte>(0)));
                                return Status();
                              }});
  }
  [[nodiscard]] std::chrono::steady_clock::time_point now() override { return now_; }
  static std::vector<std::byte> launch_with(std::uint64_t function, std::uint64_t value, std::uint32_t blocks = 1) {
    return record(Opcode::kLaunch, LaunchBody{function, {blocks, 1, 1}, {1, 1, 1}, 0, sizeof value},
                  std::as_bytes(std::span(&value, 1)));
  }
  static std::vector<std::vector<std::byte>> launches(std::uint64_t function, std::uint64_t from, std::size_t count) {
    std::vector<std::vector<std::byte>> all;
    for (std::uint64_t i = 0; i < count; ++i) all.push_back(launch_with(function, from + i));
    return all;
  }

  std::chrono::steady_clock::time_point now_{std::chrono::hours(1)};
  std::chrono::nanoseconds each_{0};           // "first" takes
  std::vector<std::uint64_t> first_, second_;  // what they were called with
  std::vector<bool> addresses_;                // whether "first" was given any
};

TEST_F(Launches, OfOneFunctionRunInOrderEachWithItsOwnParameters) {
  greet({.credits = 2048});
  give(0, 1, {load(1, "first")});
  give(0, 2, launches(1, 0, 3));
  give(0, 5, launches(1, 3, 200));
  give(0, 205, launches(1, 203, 64));
  run();
  std::vector<std::uint64_t> all(267);
  for (std::uint64_t i = 0; i < all.size(); ++i) all[i] = i;
  EXPECT_EQ(first_, all);
  EXPECT_EQ(replies(0).executed, 268u);
  EXPECT_FALSE(replies(0).failure);
  EXPECT_EQ(session_->counts().commands, 268u);
}

TEST_F(Launches, OneThatIsRefusedAmongManyIsNamedAndTheRestIsPassedOver) {
  greet({.credits = 2048});
  give(0, 1, {load(1, "first"), launch_with(1, 10), launch_with(1, 11), launch(1), launch_with(1, 12)});
  give(0, 6, launches(1, 20, 100));
  run();
  EXPECT_EQ(first_, (std::vector<std::uint64_t>{10, 11}));
  Reply said = replies(0);
  EXPECT_EQ(said.executed, 105u);
  ASSERT_TRUE(said.failure);
  EXPECT_EQ(said.failure->sequence, 4u);
  EXPECT_EQ(said.failure->result, kInvalidValue);
  EXPECT_EQ(session_->counts().commands, 105u);
  EXPECT_EQ(session_->counts().failures, 1u);
  give(0, 106, {record(Opcode::kRecover, RecoverBody{4}), launch_with(1, 30), launch_with(1, 31)});
  run();
  EXPECT_EQ(first_, (std::vector<std::uint64_t>{10, 11, 30, 31}));
}

TEST_F(Launches, AShapeThatWasFineOnceDoesNotStandForAnother) {
  greet({.credits = 2048});
  give(0, 1, {load(1, "first"), launch_with(1, 1), launch_with(1, 2), launch_with(1, 3, 0), launch_with(1, 4)});
  run();
  EXPECT_EQ(first_, (std::vector<std::uint64_t>{1, 2}));
  ASSERT_TRUE(replies(0).failure);
  EXPECT_EQ(replies(0).failure->sequence, 4u);
}

TEST_F(Launches, AHandleThatIsLoadedAnewNamesTheOtherFunction) {
  greet({.credits = 2048});
  give(0, 1,
       {load(1, "first"), launch_with(1, 1), launch_with(1, 2), load(1, "second"), launch_with(1, 3), launch_with(1, 4),
        load(1, "first"), launch_with(1, 5)});
  run();
  EXPECT_EQ(first_, (std::vector<std::uint64_t>{1, 2, 5}));
  EXPECT_EQ(second_, (std::vector<std::uint64_t>{3, 4}));
}

TEST_F(Launches, MemoryThatWasReleasedBetweenTwoIsNotReached) {
  greet({.credits = 2048});
  const fairlead::command::Pointer at{{5}, 0};
  const auto writes =
      record(Opcode::kLaunch, LaunchBody{1, {1, 1, 1}, {1, 1, 1}, 0, sizeof at}, std::as_bytes(std::span(&at, 1)));
  give(0, 1, {load(1, "writes"), allocate(5, 64), writes, writes, record(Opcode::kRelease, ReleaseBody{5}), writes});
  run();
  EXPECT_EQ(first_.size(), 2u);
  ASSERT_TRUE(replies(0).failure);
  EXPECT_EQ(replies(0).failure->sequence, 6u);
  EXPECT_EQ(replies(0).failure->result, kInvalidHandle);
}

TEST_F(Launches, OfTwoChannelsEachInItsOrder) {
  greet({.credits = 2048});
  give(0, 1, {load(1, "first"), load(2, "second")});
  run();
  give(0, 3, launches(1, 0, 600));
  give(1, 1, launches(2, 0, 600));
  run();
  EXPECT_EQ(first_.size(), 600u);
  EXPECT_EQ(second_.size(), 600u);
  for (std::uint64_t i = 0; i < 600; ++i) ASSERT_TRUE(first_[i] == i && second_[i] == i) << i;
}

TEST_F(Launches, SeeTheAddressesThatAreReservedBetweenThem) {
  begin();
  gpu::HostExecutor executor(shared_);
  ASSERT_TRUE(executor.load({1}, "first").ok());
  const std::uint64_t value = 1;
  const Launch launch{{1}, {}, {}, 0};
  ASSERT_TRUE(executor.launch(launch, std::as_bytes(std::span(&value, 1))).ok());
  ASSERT_TRUE(executor.launch(launch, std::as_bytes(std::span(&value, 1))).ok());
  ASSERT_TRUE(executor.reserve(1 << 16, 0));
  ASSERT_TRUE(executor.launch(launch, std::as_bytes(std::span(&value, 1))).ok());
  EXPECT_EQ(addresses_, (std::vector<bool>{false, false, true}));
}

TEST_F(Launches, ThatTakeLongerThanThereIsTimeForRunOneByOneHoweverQuickTheLastOnesWere) {
  greet({.credits = 2048});
  give(0, 1, {load(1, "first")});
  give(0, 2, launches(1, 0, 640));
  run();
  ASSERT_EQ(first_.size(), 640u);
  each_ = std::chrono::milliseconds(1);
  give(0, 642, launches(1, 640, 50));
  for (std::size_t ran = 641; ran <= 650; ++ran) {
    (void)session_->run(now_ + std::chrono::microseconds(200));
    EXPECT_EQ(first_.size(), ran) << "until then or one command longer";
  }
}

TEST_F(Launches, AreSaidWhileTheRestOfARowRuns) {
  greet({.credits = 2048});
  give(0, 1, {load(1, "first")});
  give(0, 2, launches(1, 0, 640));
  run();
  sent_.clear();
  each_ = std::chrono::microseconds(4);
  give(0, 642, launches(1, 640, 40));
  run();
  const auto begun = now_ - 40 * each_;
  ASSERT_EQ(first_.size(), 680u);
  ASSERT_GE(sent_.size(), 2u) << "one, before the last of them had run";
  Bytes body = sent_.front();
  const auto header = take<MessageHeader>(body);
  ASSERT_TRUE(header && header->sequence > 641);
  EXPECT_LE((header->sequence - 641) * each_, std::chrono::microseconds(150)) << (now_ - begun).count();
}

TEST_F(Launches, OfAChannelGiveWayToAnotherWhenItsTurnIsOver) {
  greet({.credits = 2048});
  give(0, 1, {load(1, "first"), load(2, "second")});
  run();
  each_ = std::chrono::microseconds(5);
  give(0, 3, launches(1, 0, 600));
  give(1, 1, launches(2, 0, 4));
  (void)session_->run(SessionRunner::Clock::time_point::max());
  EXPECT_EQ(second_.size(), 4u);
  EXPECT_LE(first_.size(), 160u) << "four turns of 50 us and what runs between two looks, not 256 commands each";
}

TEST(LaunchExtents, OfZeroAndPastTheLimitsDoNotFit) {
  constexpr Extent kBlocks{2'147'483'647, 65'535, 65'535};
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  const auto fits = [&](Extent grid, Extent block, std::uint32_t shared = 0, std::uint32_t threads = 1024) {
    return fairlead::command::fits({{1}, grid, block, shared}, kBlocks, threads, 48 << 10);
  };
  EXPECT_TRUE(fits({}, {}));
  EXPECT_TRUE(fits(kBlocks, {1024, 1, 1}, 48 << 10));
  EXPECT_TRUE(fits({}, {8, 16, 8}));
  EXPECT_FALSE(fits({0, 1, 1}, {}));
  EXPECT_FALSE(fits({1, 0, 1}, {}));
  EXPECT_FALSE(fits({1, 1, 0}, {}));
  EXPECT_FALSE(fits({kMost, 1, 1}, {}));
  EXPECT_FALSE(fits({1, 65'536, 1}, {}));
  EXPECT_FALSE(fits({1, 1, 65'536}, {}));
  EXPECT_FALSE(fits({}, {0, 1, 1}));
  EXPECT_FALSE(fits({}, {1, 0, 1}));
  EXPECT_FALSE(fits({}, {1, 1, 0}));
  EXPECT_FALSE(fits({}, {1025, 1, 1}));
  EXPECT_FALSE(fits({}, {8, 16, 9}));
  EXPECT_FALSE(fits({}, {1024, 1024, 1024}));
  EXPECT_FALSE(fits({}, {}, (48 << 10) + 1));
  // Where a product would not fit into what it is of.
  EXPECT_FALSE(fits({}, {1u << 31, 1u << 31, 4}, 0, kMost));
  EXPECT_FALSE(fits({}, {kMost, kMost, kMost}, 0, kMost));
  EXPECT_FALSE(fits({}, {1, 1, 1}, 0, 0));
  EXPECT_FALSE(fits({}, {65'536, 65'536, 1u << 31}, 0, kMost));
}

}  // namespace
}  // namespace fairlead::datapath::command
