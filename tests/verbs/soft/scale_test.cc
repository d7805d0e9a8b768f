// Many of everything in one process: what a queue pair and a memory region cost, and that many are as fast as one.
//
// Prints what it measured; docs/results/scale.md quotes it. Both ends are driven by one thread over UDP on loopback,
// and time is processor time, so that other programs on the machine do not matter much.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <vector>

#include "tests/verbs/soft/endpoint.h"

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

// Two devices with `count` connected pairs of queue pairs.
class Pairs {
 public:
  explicit Pairs(std::size_t count, std::uint32_t max_wr = 16)
      : a(open_on_wire(), options(count, max_wr)), b(open_on_wire(), options(count, max_wr)) {
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) {
        a.qp = a.make_qp(options(count, max_wr));
        b.qp = b.make_qp(options(count, max_wr));
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

  /// Bytes per processor second of WRITEs of 64 KiB that go round the queue pairs, 16 in flight or one on each.
  double write(std::size_t count) {
    constexpr std::size_t kBytes = 64 << 10;
    const std::size_t depth = std::max<std::size_t>(16, a_qps.size());
    const double begin = processor_seconds();
    std::size_t posted = 0;
    a.done.clear();
    while (a.done.size() < count) {
      for (; posted < count && posted - a.done.size() < depth; ++posted) {
        a.qp = a_qps[posted % a_qps.size()];
        EXPECT_EQ(a.post(IBV_WR_RDMA_WRITE, posted, 0, kBytes, &b, 0), 0);
      }
      a.poll();
      b.poll();
    }
    for (const ibv_wc& completion : a.done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    return static_cast<double>(count * kBytes) / (processor_seconds() - begin);
  }

  Endpoint a;
  Endpoint b;
  std::vector<ibv_qp*> a_qps;
  std::vector<ibv_qp*> b_qps;

 private:
  static EndpointOptions options(std::size_t count, std::uint32_t max_wr) {
    return {.buffer_bytes = 64 << 10, .cqe = static_cast<int>(std::max<std::size_t>(64, 2 * count)), .max_wr = max_wr};
  }
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

TEST(Scale, ManyQueuePairsAreAboutAsFastAsOne) {
  Pairs one(1, 64);
  Pairs many(kQueuePairs);
  constexpr std::size_t kWrites = 2 * kQueuePairs;  // 128 MiB
  one.write(kWrites / 4);
  many.write(kWrites / 4);
  std::array<double, 5> of_one{};
  std::array<double, 5> of_many{};
  for (std::size_t round = 0; round < of_one.size(); ++round) {
    of_one[round] = one.write(kWrites);
    of_many[round] = many.write(kWrites);
  }
  std::sort(of_one.begin(), of_one.end());
  std::sort(of_many.begin(), of_many.end());
  const double ratio = of_many[2] / of_one[2];
  fmt::print(
      "64 KiB WRITEs, MB per processor second of both ends: 1 queue pair {:.0f}, {} queue pairs {:.0f}, ratio {:.2f}\n",
      of_one[2] / 1e6, kQueuePairs, of_many[2] / 1e6, ratio);
  EXPECT_GE(ratio, 0.7);
}

}  // namespace
}  // namespace fairlead::soft::test
