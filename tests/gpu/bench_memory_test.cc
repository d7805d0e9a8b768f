// Measurements whose ends have memory on a CUDA device, on the double.
#include <gmock/gmock.h>

#include <thread>

#include "bench/memory/pattern.h"
#include "bench/net/initiator.h"
#include "bench/net/target.h"
#include "tests/gpu/engine_cuda.h"

namespace fairlead::bench {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Place kDevice{.device = 0};

class BenchOfDeviceMemory : public test::CudaEngines {
 protected:
  /// The sample, or why there is none, over tcp between a target and an initiator that have their memory there.
  Result<Sample> measured(Plan plan, std::uint64_t size, Place target) {
    start({"tcp", "tcp"});
    plan.iterations = 40;
    Link link(&*pair->client, pair->peer);
    Result<Sample> sample = Status(Code::kInternal, "not measured");
    {
      const std::jthread serving([&] { static_cast<void>(Target(&*pair->server, target).serve(pair->server_peer)); });
      sample = measure(link, plan, size);
      static_cast<void>(link.ask("end"));
    }
    return sample;
  }
};

TEST_F(BenchOfDeviceMemory, BytesOfAllKindsOfMeasurementsArriveAndAreCompared) {
  for (const auto& [kind, op] : {std::pair(Kind::kBandwidth, Op::kWrite), std::pair(Kind::kBandwidth, Op::kRead),
                                 std::pair(Kind::kLatency, Op::kWrite), std::pair(Kind::kLatency, Op::kRead)}) {
    for (const auto& [here, there] :
         {std::pair(kDevice, kDevice), std::pair(Place{}, kDevice), std::pair(kDevice, Place{})}) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", to_string(kind), to_string(op), to_string(here), to_string(there)));
      Plan plan;
      plan.kind = kind;
      plan.op = op;
      plan.memory = here;
      const Result<Sample> sample = measured(plan, 3 << 19, there);
      ASSERT_TRUE(sample) << sample.error().to_string();
      EXPECT_TRUE(sample->verified);
      EXPECT_EQ(sample->iterations, 40u);
      pair.reset();
      pair.emplace();
    }
  }
}

TEST_F(BenchOfDeviceMemory, ADeviceWithoutRoomSaysSoAndWhatToLower) {
  cuda.fail_next("memory_alloc", gpu::CuResult::kOutOfMemory);
  Plan plan;
  plan.memory = kDevice;
  const Result<Sample> sample = measured(plan, 4096, Place{});
  ASSERT_FALSE(sample);
  EXPECT_THAT(sample.error().message(), AllOf(HasSubstr("cuda:0"), HasSubstr("lower --size or --footprint")));
}

TEST_F(BenchOfDeviceMemory, ATargetWhoseMemoryNoProcessorSeesDoesNotLookForWrites) {
  Plan plan;
  plan.kind = Kind::kLatency;
  plan.arrival = Arrival::kMemory;
  const Result<Sample> sample = measured(plan, 8, kDevice);
  ASSERT_FALSE(sample);
  EXPECT_THAT(sample.error().message(), AllOf(HasSubstr("cuda:0"), HasSubstr("--arrival notification")));
}

TEST_F(BenchOfDeviceMemory, WhatIsFilledIsWhatIsSummed) {
  start({"tcp", "tcp"});
  for (const Place place : {Place{}, kDevice}) {
    const Result<EndMemory> memory = EndMemory::allocate(*pair->client, (3 << 20) + 5, 2, place);
    ASSERT_TRUE(memory) << memory.error().to_string();
    ASSERT_TRUE(memory->fill(7).ok());
    const auto sums = memory->checksums();
    ASSERT_TRUE(sums) << sums.error().to_string();
    EXPECT_THAT(*sums, testing::ElementsAre(pattern_crc(memory->size(), 7, 0), pattern_crc(memory->size(), 7, 1)));
    ASSERT_TRUE(memory->clear().ok());
    EXPECT_THAT(memory->checksums().value(), testing::Each(testing::Ne(sums->front())));
  }
}

TEST(BenchPlaces, AreReadAsTheyAreWritten) {
  for (const Place place : {Place{}, Place{.device = 0}, Place{.device = 7}}) {
    const Result<Place> read = parse_place(to_string(place));
    ASSERT_TRUE(read) << to_string(place);
    EXPECT_EQ(*read, place);
  }
  EXPECT_EQ(parse_place("cuda").value(), Place{.device = 0});
  for (const char* text : {"", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999", "gpu", "host:1"}) {
    const Result<Place> read = parse_place(text);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message(), HasSubstr("legal: host, cuda, cuda:N"));
  }
}

TEST(BenchPlaces, AreOfUseWhereThereIsSuchADevice) {
  EXPECT_TRUE(usable(Place{}).ok());
  gpu::testing::CudaDouble cuda;
  cuda.install();
  EXPECT_TRUE(usable(kDevice).ok());
  EXPECT_THAT(usable(Place{.device = 3}).message(), HasSubstr("no CUDA device 3"));
  gpu::replace_process_driver(nullptr);
}

}  // namespace
}  // namespace fairlead::bench
