// Copies that nobody waits for.
#include "gpu/driver/copier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "gpu/driver/pinned.h"
#include "tests/gpu/cuda_double.h"

namespace fairlead::gpu {
namespace {

using testing::CudaDouble;
using ::testing::IsEmpty;

struct Told final : CopyEnd {
  void copied(bool good) noexcept override {
    ++(good ? well : badly);
    if (order != nullptr) order->push_back(number);
  }
  int well = 0, badly = 0;
  int number = 0;
  std::vector<int>* order = nullptr;
};

class CopierTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 4096;
  CopierTest() {
    driver = cuda.install();
    context = *driver->primary(0);
    pinned = *PinnedMemory::allocate(driver, 0, 2 * kBytes);
    device = cuda.allocate(kBytes);
    copier.emplace(driver);
  }
  ~CopierTest() override {
    copier.reset();
    pinned.reset();
    driver.reset();
    replace_process_driver(nullptr);
    EXPECT_THAT(cuda.violations(), IsEmpty());
    EXPECT_EQ(cuda.live_objects(), 0u);
  }
  bool start(Copier::Way way, CopyEnd& end, Copier::Use use = Copier::Use::kIn) {
    return copier->start(use, way, context, device.data(), pinned->bytes().data(), kBytes, end);
  }
  void poll_until_idle() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!copier->idle() && std::chrono::steady_clock::now() < deadline) {
      if (!copier->poll()) std::this_thread::yield();
    }
    ASSERT_TRUE(copier->idle());
  }

  CudaDouble cuda;
  std::shared_ptr<Driver> driver;
  CuContext context = nullptr;
  std::unique_ptr<PinnedMemory> pinned;
  std::span<std::byte> device;
  std::optional<Copier> copier;
  Told told;
};

TEST_F(CopierTest, CopiesBothWays) {
  std::memset(pinned->bytes().data(), 7, kBytes);
  ASSERT_TRUE(start(Copier::Way::kToDevice, told));
  poll_until_idle();
  EXPECT_EQ(told.well, 1);
  EXPECT_EQ(cuda.shadow(device)[kBytes - 1], std::byte{7});
  std::memset(cuda.shadow(device).data(), 9, kBytes);
  ASSERT_TRUE(start(Copier::Way::kToHost, told));
  poll_until_idle();
  EXPECT_EQ(told.well, 2);
  EXPECT_EQ(pinned->bytes()[0], std::byte{9});
  EXPECT_EQ(copier->bytes_in.get(), kBytes);
  EXPECT_EQ(copier->bytes_out.get(), kBytes);
}

TEST_F(CopierTest, TellsNothingBeforeACopyHasEnded) {
  cuda.hold_copies();
  ASSERT_TRUE(start(Copier::Way::kToDevice, told));
  EXPECT_FALSE(copier->poll());
  EXPECT_FALSE(copier->idle());
  EXPECT_EQ(told.well + told.badly, 0);
  cuda.let_copies_go();
  poll_until_idle();
  EXPECT_EQ(told.well, 1);
}

TEST_F(CopierTest, KeepsTheOrderOfAStream) {
  std::vector<int> order;
  std::vector<Told> many(50);
  for (int i = 0; i < 50; ++i) {
    many[static_cast<std::size_t>(i)].number = i;
    many[static_cast<std::size_t>(i)].order = &order;
    ASSERT_TRUE(start(Copier::Way::kToDevice, many[static_cast<std::size_t>(i)], Copier::Use::kForPeers));
  }
  poll_until_idle();
  ASSERT_EQ(order.size(), 50u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST_F(CopierTest, ACopyThatFailsSaysSo) {
  cuda.break_copy();
  ASSERT_TRUE(start(Copier::Way::kToHost, told));
  poll_until_idle();
  EXPECT_EQ(told.badly, 1);
  EXPECT_EQ(told.well, 0);
  EXPECT_EQ(copier->bytes_out.get(), 0u);
}

TEST_F(CopierTest, EveryCallMayFail) {
  for (const char* call : {"context_push", "stream_create", "event_create", "copy_to_device", "event_record"}) {
    cuda.fail_next(call, CuResult::kIllegalAddress);
    EXPECT_FALSE(start(Copier::Way::kToDevice, told)) << call;
    EXPECT_TRUE(copier->idle()) << call;
  }
  EXPECT_EQ(told.well + told.badly, 0);
  ASSERT_TRUE(start(Copier::Way::kToDevice, told));
  poll_until_idle();
  EXPECT_EQ(told.well, 1);
}

TEST_F(CopierTest, FinishWaits) {
  cuda.hold_copies();
  ASSERT_TRUE(start(Copier::Way::kToDevice, told));
  std::thread later([this] {
    EXPECT_TRUE(cuda.wait_for_copies(1));
    cuda.let_copies_go();
  });
  copier->finish();
  later.join();
  EXPECT_TRUE(copier->idle());
  EXPECT_EQ(told.well, 1);
}

// Whoever withdraws memory waits for what peers began, and tells nobody.
TEST_F(CopierTest, SettleWaitsForWhatPeersBegan) {
  cuda.hold_copies();
  ASSERT_TRUE(start(Copier::Way::kToDevice, told, Copier::Use::kForPeers));
  std::thread later([this] {
    EXPECT_TRUE(cuda.wait_for_copies(1));
    cuda.let_copies_go();
  });
  copier->settle();
  later.join();
  EXPECT_EQ(cuda.copies_done(), 1u);
  EXPECT_EQ(told.well, 0);
  poll_until_idle();
  EXPECT_EQ(told.well, 1);
}

TEST_F(CopierTest, SaysThatThereIsNoPinnedMemory) {
  cuda.fail_next("host_alloc", CuResult::kOutOfMemory);
  const auto none = PinnedMemory::allocate(driver, 0, 1 << 20);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kResourceExhausted);
  EXPECT_NE(none.error().message().find("lower cuda_staging_bytes"), std::string::npos) << none.error().message();
}

}  // namespace
}  // namespace fairlead::gpu
