// Ranges of addresses without an engine: those of this process, those of the host executor, and what a client may say
// of them that is wrong.
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits>

#include "base/system/system_files.h"
#include "datapath/command/device/welcome.h"
#include "datapath/command/range/local_range.h"
#include "gpu/executor/host_range.h"
#include "tests/datapath/command/fed_session.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::AddressRange;
using fairlead::command::kInvalidValue;
using fairlead::command::kNotSupported;
using fairlead::command::kOutOfMemory;
using fairlead::command::Outcome;
using gpu::HostRange;
using testing::HasSubstr;

constexpr std::uint64_t kBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

std::uint64_t page() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

TEST(LocalRange, IsFreeOfAllElseUntilItEnds) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a program that maps where it has memory of its own";
#endif
  std::uint64_t base = 0;
  {
    Result<LocalRange> one = LocalRange::reserve(kBytes + 1);
    ASSERT_TRUE(one) << one.error().to_string();
    base = one->base();
    EXPECT_EQ(base % LocalRange::kAlignment, 0u);
    EXPECT_EQ(one->bytes(), kBytes + page());
    EXPECT_EQ(LocalRange::reserve_at(base, page()).status().code(), Code::kUnavailable);
    EXPECT_FALSE(LocalRange::reserve_at(base + kBytes, page())) << "its last page";
    EXPECT_FALSE(LocalRange::reserve_at(base - page(), 2 * page())) << "one that begins before it";
    LocalRange other = *std::move(one);
    EXPECT_FALSE(LocalRange::reserve_at(base, page())) << "it was moved, and is still there";
  }
  const Result<LocalRange> again = LocalRange::reserve_at(base, kBytes);
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->base(), base);
  EXPECT_EQ(LocalRange::reserve(kMost).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(LocalRange::reserve(kMost - kBytes).status().code(), Code::kResourceExhausted);
  EXPECT_FALSE(LocalRange::reserve_at(base, kMost));
  EXPECT_FALSE(LocalRange::reserve_at(0, page()));
  const std::uint64_t stack = ::getauxval(AT_RANDOM) / page() * page();
  EXPECT_FALSE(LocalRange::reserve_at(stack - 64 * kBytes, page())) << "where the stack may grow";
}

TEST(HostRange, BeginsWhereItIsWishedIfThatIsFree) {
  Result<LocalRange> free = LocalRange::reserve(kBytes);
  ASSERT_TRUE(free);
  const std::uint64_t wish = free->base();
  const auto base_of = [](std::uint64_t at) {
    const Result<std::unique_ptr<HostRange>> made = HostRange::reserve(kBytes, at);
    EXPECT_TRUE(made);
    return made ? (*made)->facts().base : 0;
  };
  EXPECT_NE(base_of(wish), wish) << "it is taken";
  *free = LocalRange();
  EXPECT_EQ(base_of(wish), wish);
  for (const std::uint64_t silly :
       {std::uint64_t{1}, wish + 1, kMost, kMost - page() + 1, ::getauxval(AT_RANDOM) / page() * page() - kBytes,
        ::getauxval(AT_RANDOM) / page() * page() - 64 * kBytes}) {
    const std::uint64_t base = base_of(silly);
    EXPECT_NE(base, silly);
    EXPECT_NE(base, 0u);
  }
}

TEST(HostRange, WhatIsPlacedIsThereAndNothingElse) {
  const Result<std::unique_ptr<HostRange>> made = HostRange::reserve(kBytes, 0);
  ASSERT_TRUE(made);
  HostRange& range = **made;
  const std::uint64_t base = range.facts().base;
  Outcome why;
  std::byte* const at = range.place({7}, base + page(), page() + 1, why);
  ASSERT_NE(at, nullptr) << why.text;
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(at), base + page()) << "addresses are the same at both ends";
  EXPECT_EQ(range.find(base + page(), page() + 1), at);
  EXPECT_EQ(range.find(base + page(), page() + 2), nullptr);
  EXPECT_EQ(range.find(base + page() - 1, 1), nullptr);
  EXPECT_EQ(range.find(base + page(), kMost), nullptr);
  EXPECT_EQ(range.find(kMost, 1), nullptr);
  EXPECT_EQ(range.at(base + page() + 5)->bits, 7u);
  EXPECT_FALSE(range.at(base));
  EXPECT_EQ(range.place({8}, base, page() + 1, why), nullptr);
  EXPECT_THAT(why.text, HasSubstr("overlap allocation 7"));
  EXPECT_EQ(range.place({8}, base + 2 * page(), 1, why), nullptr) << "the pages of one are its own";
  at[page()] = std::byte{1};
  range.give(at);
  EXPECT_EQ(range.find(base + page(), 1), nullptr);
  unsigned char resident = 0;
  EXPECT_EQ(::mincore(at, page(), &resident), 0) << "the addresses stay reserved";
  EXPECT_EQ(range.place({8}, base, 3 * page(), why), at - page());
  EXPECT_EQ(at[page()], std::byte{0}) << "and what was there is gone";
}

// However many greedy ones there are, all of them leave a quarter of what the kernel has, and some of it for others.
TEST(HostRange, LeavesMappingsForAllElseAndForOtherSessions) {
  const std::uint64_t limit = *SystemFiles().number("/proc/sys/vm/max_map_count");
  Outcome why;
  const auto greedy = [&](HostRange& range) {
    std::uint64_t placed = 0;
    for (; placed < limit / 2 - 1; ++placed) {  // each alone between two that are not there
      if (range.place({placed + 1}, range.facts().base + (2 * placed + 1) * page(), 1, why) == nullptr) break;
    }
    EXPECT_EQ(why.result, kOutOfMemory);
    EXPECT_THAT(why.text, HasSubstr("a quarter of the host's vm.max_map_count"));
    return placed;
  };
  std::vector<std::unique_ptr<HostRange>> ranges;
  std::uint64_t all = 0;
  for (int i = 0; i < 8; ++i) {
    Result<std::unique_ptr<HostRange>> made = HostRange::reserve(limit * page(), 0);
    ASSERT_TRUE(made);
    ranges.push_back(*std::move(made));
    const std::uint64_t placed = greedy(*ranges.back());
    EXPECT_GE(placed, (limit / 4 - all) / 3) << "a third of what the others left";
    all += placed;
    EXPECT_LT(all, limit / 4);
  }
  // Who has had more than that is left of it, but gets none; when the others have gone it does.
  EXPECT_EQ(ranges[0]->place({1}, ranges[0]->facts().base, 1, why), nullptr);
  ranges.resize(1);
  EXPECT_EQ(ranges[0]->place({1}, ranges[0]->facts().base, 1, why), nullptr) << "as much as before, and no more";
  ranges[0]->give(ranges[0]->find(ranges[0]->facts().base + page(), 1));
  EXPECT_NE(ranges[0]->place({1}, ranges[0]->facts().base, 1, why), nullptr) << why.text;
}

class CommandRange : public FedSession {
 protected:
  /// What the welcome says, or why there was none.
  std::optional<AddressRange> begin_with(HelloMore more) {
    sent_.clear();
    begin();
    session_->take(hello_message({.payload_bytes = 4096}, more), TrafficClass::kCommands);
    Bytes body = sent_.back();
    const auto header = take<MessageHeader>(body);
    if (header->type != static_cast<std::uint8_t>(MessageType::kWelcome)) return std::nullopt;
    const auto said = read_welcome(body, false);
    EXPECT_TRUE(said);
    return said ? said->devices[0].range : AddressRange();
  }
  static std::vector<std::byte> allocate_at(std::uint64_t handle, std::uint64_t address, std::uint64_t bytes) {
    return record(Opcode::kAllocateAt, AllocateAtBody{handle, address, bytes});
  }
};

TEST_F(CommandRange, IsReservedWhenTheSessionBegins) {
  EXPECT_EQ(begin_with({})->bytes, 0u);
  EXPECT_EQ(begin_with({kBytes, 0})->bytes, kBytes);
  EXPECT_EQ(begin_with({1, 0})->bytes, page());
  for (const std::uint64_t bytes : {kBytes + 1, kMost}) {
    EXPECT_FALSE(begin_with({bytes, 0}));
    EXPECT_TRUE(session_->is_over());
    EXPECT_FALSE(session_->is_welcome()) << "so it counts as refused, and has no executor";
    EXPECT_EQ(refusal().code(), Code::kResourceExhausted);
    EXPECT_THAT(refusal().message(), HasSubstr("a session has 1 to 1048576"));
  }
  // A client of version 2 says nothing of it, whatever stands behind its hello.
  begin();
  session_->take(hello_message({.newest = 2}, HelloMore{kMost, 0}), TrafficClass::kCommands);
  EXPECT_TRUE(session_->is_welcome());
}

TEST_F(CommandRange, PlacesThatAreWrongAreFailures) {
  const auto failure_of = [this](std::uint64_t offset, std::uint64_t bytes, std::uint64_t handle = 1) {
    const AddressRange range = *begin_with({kBytes, 0});
    sent_.clear();
    give(0, 1, {allocate_at(9, range.base + page(), 1), allocate_at(handle, range.base + offset, bytes)});
    run();
    EXPECT_FALSE(session_->is_over());
    const auto failure = replies(0).failure;
    return failure ? failure->result : 0;
  };
  EXPECT_EQ(failure_of(0, page()), 0);
  EXPECT_EQ(failure_of(2 * page(), kBytes - 2 * page()), 0);
  EXPECT_EQ(failure_of(2 * page(), kBytes - page()), kInvalidValue) << "past the end";
  EXPECT_EQ(failure_of(0 - page(), 1), kInvalidValue);
  EXPECT_EQ(failure_of(kBytes, 1), kInvalidValue);
  EXPECT_EQ(failure_of(8, 1), kInvalidValue) << "not at a page";
  EXPECT_EQ(failure_of(page(), 1), kInvalidValue) << "taken";
  EXPECT_EQ(failure_of(0, 0), kInvalidValue);
  EXPECT_EQ(failure_of(0, 1, 0), kInvalidValue);
  EXPECT_EQ(failure_of(0, 1, 9), kInvalidValue) << "that handle names another";
  EXPECT_EQ(failure_of(0, kMost), kOutOfMemory);
  greet();
  give(0, 1, {allocate_at(1, 4096, 8)});
  run();
  ASSERT_TRUE(replies(0).failure);
  EXPECT_EQ(replies(0).failure->result, kNotSupported);
  EXPECT_THAT(replies(0).failure->text, HasSubstr("this session has no range of addresses"));
}

}  // namespace
}  // namespace fairlead::datapath::command
