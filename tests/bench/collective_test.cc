// All-reduce, beside sums in double precision: every type, algorithm and number of ranks, odd sizes; ranks that
// disagree, and one that goes. Ranks are threads of this process, each with an engine of its own, over tcp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "bench/collective/all_reduce.h"
#include "bench/collective/group.h"
#include "bench/collective/reduce.h"
#include "fairlead/log.h"
#include "tests/bench/ranks.h"

namespace fairlead::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

// ---- elements as numbers. add() itself makes F16 and BF16 of a float: the sum of it and nothing, through exact
// halves.

double unit_roundoff(DType dtype) { return dtype == DType::kF32 ? 0x1p-24 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-8; }

float to_float(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  if (dtype == DType::kBF16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  const int exponent = bits >> 10 & 31;
  const double mantissa = bits & 0x3ff;
  const double size = exponent == 0 ? mantissa * 0x1p-24 : (1024 + mantissa) * std::ldexp(1.0, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -size : size);
}

void put_random(DType dtype, std::byte* at, std::mt19937& dice) {
  const float value = std::uniform_real_distribution<float>(-1, 1)(dice);
  if (dtype == DType::kF32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const std::uint16_t bits = dtype == DType::kBF16
                                 ? static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16)
                                 : static_cast<std::uint16_t>((dice() & 0x83ff) | (dice() % 15 << 10));
  std::memcpy(at, &bits, sizeof(bits));
}

/// What rank `rank` puts in.
void fill(DType dtype, std::size_t count, std::size_t rank, std::byte* into) {
  std::mt19937 dice(static_cast<std::uint32_t>(count * 31 + rank));
  for (std::size_t i = 0; i < count; ++i) put_random(dtype, into + i * element_size(dtype), dice);
}

/// Elements [begin, end) are the sum of all ranks' within (N-1) u sum|x|: each of the N-1 additions rounds once.
void expect_sums(DType dtype, std::size_t count, std::size_t ranks, Part part, const std::byte* have) {
  const std::size_t size = element_size(dtype);
  std::vector<double> sum(count), magnitude(count);
  std::vector<std::byte> one(count * size);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    fill(dtype, count, rank, one.data());
    for (std::size_t i = 0; i < count; ++i) {
      const double value = to_float(dtype, one.data() + i * size);
      sum[i] += value;
      magnitude[i] += std::abs(value);
    }
  }
  std::size_t wrong = 0;
  for (std::size_t i = part.begin; i < part.end; ++i) {
    const double bound = static_cast<double>(ranks - 1) * unit_roundoff(dtype) * 1.01 * magnitude[i];
    if (!(std::abs(to_float(dtype, have + i * size) - sum[i]) <= bound)) ++wrong;
  }
  EXPECT_EQ(wrong, 0U) << to_string(dtype) << ", " << count << " elements, " << ranks << " ranks";
}

class OverRanks : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(AllReduceOf, OverRanks, testing::Values(1, 2, 3, 4, 8));

TEST_P(OverRanks, SumsAreThoseOfDoublePrecisionWithinTheirRounding) {
  const std::size_t ranks = GetParam();
  expect_ok(run_ranks(ranks, [&](Group& group) -> Status {
    Result<AllReduce> sum = AllReduce::prepare(&group, "sum", {.bytes = kBytes, .piece_bytes = 4096});
    if (!sum) return sum.error();
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, ranks - 1, std::size_t{1023}, std::size_t{50'021}}) {
        for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTree, Algorithm::kAuto}) {
          fill(dtype, count, group.rank(), sum->data());
          if (const Status done = sum->all_reduce(dtype, count, algorithm); !done.ok()) return done;
          expect_sums(dtype, count, ranks, {0, count}, sum->data());
        }
      }
    }
    return {};
  }));
}

TEST_P(OverRanks, EachRankHasItsPartThenAllHaveAll) {
  const std::size_t ranks = GetParam(), count = 30'011;
  expect_ok(run_ranks(ranks, [&](Group& group) -> Status {
    Result<AllReduce> sum = AllReduce::prepare(&group, "sum", {.bytes = kBytes, .piece_bytes = 1024});
    if (!sum) return sum.error();
    for (int round = 0; round < 5; ++round) {  // nobody waits for the slowest between two calls
      fill(DType::kF32, count, group.rank(), sum->data());
      if (const Status done = sum->reduce_scatter(DType::kF32, count); !done.ok()) return done;
      expect_sums(DType::kF32, count, ranks, ring_part(count, ranks, group.rank()), sum->data());
      if (const Status done = sum->all_gather(DType::kF32, count); !done.ok()) return done;
      expect_sums(DType::kF32, count, ranks, {0, count}, sum->data());
    }
    return {};
  }));
}

TEST(AllReduceOf, PartsCoverAllOnce) {
  for (const std::size_t count : {0U, 1U, 5U, 16U, 17U, 1000U}) {
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < 7; ++rank) {
      const Part part = ring_part(count, 7, rank);
      EXPECT_EQ(part.begin, at);
      at = part.end;
    }
    EXPECT_EQ(at, count);
  }
}

TEST(AllReduceOf, WhatIsNoNumberStaysNone) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const std::uint16_t infinite = dtype == DType::kF16 ? 0x7c00 : 0x7f80;
    for (const std::size_t count : {1U, 8U, 13U}) {
      std::vector<std::uint16_t> nan(count, infinite | 1), inf(count, infinite), minus(count, infinite | 0x8000);
      const std::vector<std::uint16_t> one(count, dtype == DType::kF16 ? 0x3c00 : 0x3f80);
      const auto bytes = [](const std::vector<std::uint16_t>& of) {
        return reinterpret_cast<const std::byte*>(of.data());
      };
      const auto sum = [&](std::vector<std::uint16_t>* into, const std::vector<std::uint16_t>& from) {
        add(dtype, reinterpret_cast<std::byte*>(into->data()), bytes(from), count);
      };
      sum(&nan, one);
      EXPECT_THAT(nan, testing::Each(testing::Gt(infinite)));
      sum(&minus, inf);
      EXPECT_THAT(minus, testing::Each(testing::Truly([&](std::uint16_t v) { return (v & 0x7fff) > infinite; })));
      sum(&inf, one);
      EXPECT_THAT(inf, testing::Each(infinite));
    }
  }
}

TEST(AllReduceOf, WhatDoesNotFitSaysSo) {
  expect_ok(run_ranks(1, [&](Group& group) -> Status {
    Result<AllReduce> sum = AllReduce::prepare(&group, "sum", {.bytes = 4000});
    if (!sum) return sum.error();
    EXPECT_EQ(sum->all_reduce(DType::kF32, 1001).code(), Code::kOutOfRange);
    EXPECT_EQ(sum->all_reduce(DType::kF32, SIZE_MAX / 2).code(), Code::kOutOfRange);
    EXPECT_EQ(sum->all_reduce(DType::kI32, 1).code(), Code::kInvalidArgument);
    EXPECT_TRUE(sum->all_reduce(DType::kF16, 2000).ok());
    EXPECT_EQ(AllReduce::prepare(&group, "none", {.bytes = 0}).error().code(), Code::kInvalidArgument);
    return {};
  }));
}

/// Both fail, and who sees it first says why; the other may see only that it has left.
void expect_found_out(const std::vector<Status>& ended) {
  EXPECT_FALSE(ended[0].ok());
  EXPECT_FALSE(ended[1].ok());
  const Status& first = ended[0].code() == Code::kInvalidArgument ? ended[0] : ended[1];
  EXPECT_EQ(first.code(), Code::kInvalidArgument);
  EXPECT_THAT(first.message(), testing::HasSubstr("the same calls"));
}

TEST(AllReduceOf, RanksThatDisagreeAreTold) {
  const std::vector<Status> ended = run_ranks(2, [&](Group& group) -> Status {
    Result<AllReduce> sum = AllReduce::prepare(&group, "sum", {.bytes = kBytes, .piece_bytes = 1024});
    if (!sum) return sum.error();
    return group.rank() == 0 ? sum->all_reduce(DType::kF32, 10'000) : sum->reduce_scatter(DType::kF32, 10'000);
  });
  expect_found_out(ended);
}

TEST(AllReduceOf, OtherTypesOfTheSameSizeAreFoundOut) {
  const std::vector<Status> ended = run_ranks(2, [&](Group& group) -> Status {
    Result<AllReduce> sum = AllReduce::prepare(&group, "sum", {.bytes = kBytes});
    if (!sum) return sum.error();
    return sum->all_reduce(group.rank() == 0 ? DType::kF16 : DType::kBF16, 10'000);
  });
  expect_found_out(ended);
}

TEST_P(OverRanks, PartsAndWholesMayFollowEachOther) {
  const std::size_t ranks = GetParam(), count = 20'011;
  expect_ok(run_ranks(ranks, [&](Group& group) -> Status {
    Result<AllReduce> sum = AllReduce::prepare(&group, "sum", {.bytes = kBytes, .piece_bytes = 1024});
    if (!sum) return sum.error();
    for (int round = 0; round < 10; ++round) {
      fill(DType::kF32, count, group.rank(), sum->data());
      if (const Status done = sum->reduce_scatter(DType::kF32, count); !done.ok()) return done;
      fill(DType::kF32, count, group.rank(), sum->data());
      if (const Status done = sum->all_reduce(DType::kF32, count, Algorithm::kRing); !done.ok()) return done;
      if (round % 5 == 4) expect_sums(DType::kF32, count, ranks, {0, count}, sum->data());
    }
    return {};
  }));
}

TEST(AllReduceOf, ARankThatGoesEndsTheOthersWait) {
  const std::vector<Status> ended = run_ranks(3, [&](Group& group) -> Status {
    Result<AllReduce> sum = AllReduce::prepare(&group, "sum", {.bytes = kBytes});
    if (!sum) return sum.error();
    return group.rank() == 2 ? Status() : sum->all_reduce(DType::kF32, 100'000);
  });
  EXPECT_TRUE(ended[2].ok());
  EXPECT_FALSE(ended[0].ok());
  EXPECT_FALSE(ended[1].ok());
  EXPECT_THAT(ended[0].message() + ended[1].message(), testing::HasSubstr("rank"));
}

/// Makes engines and lets each rank find its group by `find(engines, rank)`.
template <typename Find>
std::vector<Status> find_groups(std::size_t ranks, Find find) {
  std::vector<Engine> engines;
  for (std::size_t i = 0; i < ranks; ++i) engines.push_back(*Engine::create(config_of_rank()));
  std::vector<Status> ended(ranks, Status(Code::kCancelled, "not run"));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<Group> group = find(engines, rank);
      ended[rank] = !group ? group.error() : group->rank() == rank ? group->barrier() : Status(Code::kDataLoss, "rank");
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ended;
}

TEST(AllReduceOf, RanksThatAreToldWhoTheyAreMeet) {
  for (int round = 0; round < 10; ++round) {
    expect_ok(find_groups(3, [](std::vector<Engine>& engines, std::size_t rank) {
      const std::vector<std::string> others{engines[1].listen_address(), engines[2].listen_address()};
      return rank == 0 ? Group::lead(&engines[0], others) : Group::follow(&engines[rank]);
    }));
  }
}

TEST(AllReduceOf, RanksThatKnowTheFirstMeetThere) {
  for (int round = 0; round < 3; ++round) {
    expect_ok(find_groups(4, [](std::vector<Engine>& engines, std::size_t rank) {
      return Group::meet(&engines[rank], rank, 4, engines[0].listen_address());
    }));
  }
}

// One that computes polls nothing meanwhile: the sessions by which it met the others must have ended before.
TEST(AllReduceOf, RanksThatHaveMetAndComputeHearNoWarnings) {
  static std::atomic<int> warnings;
  warnings = 0;
  set_log_sink([](LogLevel level, std::string_view) { warnings += level >= LogLevel::kWarning ? 1 : 0; });
  const auto computing = [](Result<Group> group) {
    if (group) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    return group;
  };
  expect_ok(find_groups(3, [&](std::vector<Engine>& engines, std::size_t rank) {
    const std::vector<std::string> others{engines[1].listen_address(), engines[2].listen_address()};
    return computing(rank == 0 ? Group::lead(&engines[0], others) : Group::follow(&engines[rank]));
  }));
  expect_ok(find_groups(3, [&](std::vector<Engine>& engines, std::size_t rank) {
    return computing(Group::meet(&engines[rank], rank, 3, engines[0].listen_address()));
  }));
  set_log_sink(nullptr);
  EXPECT_EQ(warnings, 0);
}

TEST(AllReduceOf, OneRankMeetsItself) {
  expect_ok(find_groups(1, [](std::vector<Engine>& engines, std::size_t) {
    return Group::meet(&engines[0], 0, 1, engines[0].listen_address());
  }));
}

TEST(AllReduceOf, StrangersAreSentAwayWhereRanksMeet) {
  constexpr std::uint64_t kHere = std::uint64_t{3} << 61 | std::uint64_t{3} << 28 | 1;
  expect_ok(find_groups(3, [](std::vector<Engine>& engines, std::size_t rank) -> Result<Group> {
    const std::string root = engines[0].listen_address();
    if (rank == 2) {
      for (const std::uint64_t value : {std::uint64_t{0}, kHere}) {
        Engine engine = *Engine::create(config_of_rank());
        Peer stranger = *engine.connect(root);
        static_cast<void>(stranger.send(std::as_bytes(std::span("a:1,b:2")), value).wait());
        while (stranger.next_event(std::chrono::seconds(1)).kind != Event::Kind::kClosed) {
        }
      }
    }
    return Group::meet(&engines[rank], rank, 3, root);
  }));
}

TEST(AllReduceOf, RanksThatDoNotAgreeDoNotMeet) {
  struct Case {
    std::size_t rank, size;
    const char* reason;
  };
  for (const Case other :
       {Case{1, 3, "rank 1 is of 3 ranks where rank 0 is of 2"}, Case{4, 5, "rank 4 is of 5 ranks"}}) {
    const std::vector<Status> ended = find_groups(2, [&](std::vector<Engine>& engines, std::size_t rank) {
      const std::string root = engines[0].listen_address();
      Result<Group> group =
          rank == 0 ? Group::meet(&engines[0], 0, 2, root) : Group::meet(&engines[1], other.rank, other.size, root);
      engines[rank].shutdown();
      return group;
    });
    EXPECT_EQ(ended[0].code(), Code::kInvalidArgument);
    EXPECT_THAT(ended[0].message(), testing::HasSubstr(other.reason));
    EXPECT_FALSE(ended[1].ok());
  }
}

TEST(AllReduceOf, WhoDoesNotComeIsNamed) {
  Result<Engine> engine = Engine::create(config_of_rank());
  ASSERT_TRUE(engine);
  const std::vector<std::string> addresses{engine->listen_address(), "127.0.0.1:1", "127.0.0.1:2"};
  const Result<Group> group = Group::join(&*engine, 0, addresses, std::chrono::milliseconds(50));
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(group.error().message(), testing::HasSubstr("1, 2"));
  EXPECT_EQ(Group::join(&*engine, 3, addresses).error().code(), Code::kInvalidArgument);
  const Result<Group> met = Group::meet(&*engine, 0, 3, engine->listen_address(), std::chrono::milliseconds(50));
  EXPECT_EQ(met.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(met.error().message(), testing::HasSubstr("1, 2"));
  EXPECT_EQ(Group::meet(&*engine, 3, 3, "").error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace fairlead::bench
