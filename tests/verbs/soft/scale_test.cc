// Many of everything in one process: what a queue pair and a memory region cost, and that many queue pairs take no more
// packets, polls or allocations than one.
//
// Prints what it counted; docs/results/scale.md quotes it. How fast many are beside one is measured on demand
// (--gtest_also_run_disabled_tests) and judged by nobody here: it depends on what else the machine does.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <new>
#include <vector>

#include "tests/verbs/soft/simulation.h"

namespace {

thread_local std::size_t allocations = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

__attribute__((noinline)) void* operator new(std::size_t bytes) { return counted(bytes, 0); }
__attribute__((noinline)) void* operator new[](std::size_t bytes) { return counted(bytes, 0); }
__attribute__((noinline)) void* operator new(std::size_t bytes, std::align_val_t to) {
  return counted(bytes, static_cast<std::size_t>(to));
}
__attribute__((noinline)) void* operator new[](std::size_t bytes, std::align_val_t to) {
  return counted(bytes, static_cast<std::size_t>(to));
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete[](void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kQueuePairs = 1024;
constexpr std::size_t kRegions = 100'000;

std::size_t allocated() { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; }

double processor_seconds() {
  timespec time;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

constexpr std::size_t kWriteBytes = 64 << 10;

EndpointOptions options_for(std::size_t count, std::uint32_t max_wr) {
  return {.buffer_bytes = kWriteBytes, .cqe = static_cast<int>(std::max<std::size_t>(64, 2 * count)), .max_wr = max_wr};
}

// `count` connected pairs of queue pairs between two ends.
class Pairs {
 public:
  Pairs(Endpoint& from, Endpoint& to, std::size_t count, std::uint32_t max_wr) : a(from), b(to) {
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) {
        a.qp = a.make_qp(options_for(count, max_wr));
        b.qp = b.make_qp(options_for(count, max_wr));
      }
      EXPECT_NE(a.qp, nullptr);
      EXPECT_NE(b.qp, nullptr);
      connect(a, b, {.mtu = IBV_MTU_4096, .max_reads = 1});
      a_qps.push_back(a.qp);
      b_qps.push_back(b.qp);
    }
  }
  ~Pairs() {
    for (std::size_t i = 1; i < a_qps.size(); ++i) {
      EXPECT_EQ(api().destroy_qp(a_qps[i]), 0);
      EXPECT_EQ(api().destroy_qp(b_qps[i]), 0);
    }
    a.qp = a_qps[0];
    b.qp = b_qps[0];
  }
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;

  /// WRITEs of 64 KiB that go round the queue pairs, 16 in flight or one on each; `turn` drives both ends once.
  template <typename Turn>
  void write(std::size_t count, const Turn& turn) {
    const std::size_t depth = std::max<std::size_t>(16, a_qps.size());
    std::size_t posted = 0;
    a.done.clear();
    a.done.reserve(count);
    while (a.done.size() < count) {
      for (; posted < count && posted - a.done.size() < depth; ++posted) {
        a.qp = a_qps[posted % a_qps.size()];
        ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, posted, 0, kWriteBytes, &b, 0), 0);
      }
      turn();
    }
    for (const ibv_wc& completion : a.done) ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  }

  Endpoint& a;
  Endpoint& b;
  std::vector<ibv_qp*> a_qps;
  std::vector<ibv_qp*> b_qps;
};

// The same between two devices on a wire.
struct WiredPairs {
  WiredPairs(std::size_t count, std::uint32_t max_wr)
      : a(open_on_wire(), options_for(count, max_wr)),
        b(open_on_wire(), options_for(count, max_wr)),
        pairs(a, b, count, max_wr) {}
  void write(std::size_t count) {
    pairs.write(count, [this] {
      a.poll();
      b.poll();
    });
  }
  Endpoint a;
  Endpoint b;
  Pairs pairs;
};

TEST(Scale, AQueuePairTakesFewKilobytes) {
  for (const std::uint32_t max_wr : {1U, 16U, 128U}) {
    const EndpointOptions options{.buffer_bytes = 4096, .max_wr = max_wr};
    Endpoint end(open_on_wire(), options);
    std::vector<ibv_qp*> qps;
    qps.reserve(kQueuePairs);
    const std::size_t before = allocated();
    for (std::size_t i = 0; i < kQueuePairs; ++i) qps.push_back(end.make_qp(options));
    const std::size_t each = (allocated() - before) / kQueuePairs;
    fmt::print("queue pair with {} send and receive requests of 4 segments: {} bytes\n", max_wr, each);
    // A request and its four segments are 152 bytes to send and 88 to receive.
    EXPECT_LT(each, 4096 + 300 * max_wr);
    for (ibv_qp* qp : qps) EXPECT_EQ(api().destroy_qp(qp), 0);
  }
}

TEST(Scale, ARegionTakesFewHundredBytes) {
  Endpoint end(open_on_wire(), {.buffer_bytes = kRegions});
  std::vector<ibv_mr*> regions;
  regions.reserve(kRegions);
  const std::size_t before = allocated();
  for (std::size_t i = 0; i < kRegions; ++i) {
    regions.push_back(api().reg_mr(end.pd, end.buffer.data() + i, 1, IBV_ACCESS_LOCAL_WRITE));
    ASSERT_NE(regions.back(), nullptr);
  }
  const std::size_t each = (allocated() - before) / kRegions;
  fmt::print("memory region, one of {}: {} bytes\n", kRegions, each);
  EXPECT_LT(each, 512U);
  std::vector<std::uint32_t> keys;
  for (const ibv_mr* region : regions) keys.push_back(region->rkey);
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
  for (ibv_mr* region : regions) EXPECT_EQ(api().dereg_mr(region), 0);
}

struct Counts {
  std::uint64_t requests = 0;  // packets
  std::uint64_t answers = 0;
  std::uint64_t turns = 0;  // of polling both ends
  std::uint64_t went_back = 0;
};

// Of `writes`, on a clock that only the test moves: the same every time.
Counts count_writes(std::size_t queue_pairs, std::uint32_t max_wr, std::size_t writes) {
  Simulation world({}, {}, options_for(queue_pairs, max_wr));
  Pairs pairs(*world.a, *world.b, queue_pairs, max_wr);
  Counts counts;
  pairs.write(writes, [&] {
    world.a->poll();
    world.b->poll();
    world.clock.advance(world.step_time);
    ++counts.turns;
  });
  counts.requests = world.a->counter("sent_pkts");
  counts.answers = world.b->counter("sent_pkts");
  counts.went_back = world.a->counter("completer_retry_err");
  return counts;
}

TEST(Scale, ManyQueuePairsTakeNoMorePacketsAndPollsThanOne) {
  constexpr std::size_t kWrites = 2 * kQueuePairs;  // 128 MiB
  constexpr std::uint64_t kPackets = kWriteBytes / 4096;
  const Counts one = count_writes(1, 64, kWrites);
  const Counts many = count_writes(kQueuePairs, 16, kWrites);
  fmt::print("{} WRITEs of 64 KiB: over 1 queue pair {} packets, {} answers, {} polls; over {} {}, {}, {}\n", kWrites,
             one.requests, one.answers, one.turns, kQueuePairs, many.requests, many.answers, many.turns);
  EXPECT_EQ(one.requests, kWrites * kPackets);
  EXPECT_EQ(many.requests, kWrites * kPackets);
  EXPECT_EQ(one.went_back + many.went_back, 0U);
  EXPECT_LE(many.answers, 2 * kWrites);
  EXPECT_LE(many.turns, one.turns * 3 / 2);
}

TEST(Scale, ManyQueuePairsAllocateNothing) {
  WiredPairs many(kQueuePairs, 16);
  many.write(2 * kQueuePairs);
  many.a.done.reserve(2 * kQueuePairs);
  const std::size_t before = allocations;
  many.write(2 * kQueuePairs);
  EXPECT_EQ(allocations, before);
}

// A figure: bytes per processor second, so that other programs on the machine do not matter much.
TEST(Scale, DISABLED_SpeedOfManyQueuePairsBesideOne) {
  WiredPairs one(1, 64);
  WiredPairs many(kQueuePairs, 16);
  constexpr std::size_t kWrites = 2 * kQueuePairs;  // 128 MiB
  const auto speed = [](WiredPairs& pairs) {
    const double begin = processor_seconds();
    pairs.write(kWrites);
    return static_cast<double>(kWrites * kWriteBytes) / (processor_seconds() - begin);
  };
  std::array<double, 5> of_one{};
  std::array<double, 5> of_many{};
  for (WiredPairs* pairs : {&one, &many}) pairs->write(kWrites / 4);
  for (std::size_t round = 0; round < of_one.size(); ++round) {
    of_one[round] = speed(one);
    of_many[round] = speed(many);
  }
  std::sort(of_one.begin(), of_one.end());
  std::sort(of_many.begin(), of_many.end());
  fmt::print(
      "64 KiB WRITEs, MB per processor second of both ends: 1 queue pair {:.0f}, {} queue pairs {:.0f}, ratio {:.2f}\n",
      of_one[2] / 1e6, kQueuePairs, of_many[2] / 1e6, of_many[2] / of_one[2]);
}

}  // namespace
}  // namespace fairlead::soft::test
