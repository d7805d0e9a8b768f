// What the driver is asked once, what a pointer is, and whose context is current afterwards.
#include "gpu/driver/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "gpu/driver/dma_buf.h"
#include "gpu/driver/system_driver.h"
#include "tests/gpu/cuda_double.h"

namespace fairlead::gpu {
namespace {

using testing::CudaDouble;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = MemoryFacts::Kind;

TEST(LoadDriver, SaysWhatIsMissing) {
  DriverApi api;
  const Status absent = load_driver("libfairlead-no-such-cuda.so.1", api);
  EXPECT_EQ(absent.code(), Code::kNotFound);
  EXPECT_THAT(absent.message(), HasSubstr("no CUDA driver: libfairlead-no-such-cuda.so.1"));
  EXPECT_THAT(absent.message(), HasSubstr("install NVIDIA's driver"));

  const Status old = load_driver(FAIRLEAD_OLD_CUDA, api);
  EXPECT_EQ(old.code(), Code::kUnimplemented);
  EXPECT_THAT(old.message(), HasSubstr("has no cuDeviceGetCount: it is too old"));
}

class DriverTest : public ::testing::Test {
 protected:
  void open(CudaDouble::Features features = {}) {
    cuda.emplace(features);
    Result<std::shared_ptr<Driver>> opened = Driver::open(CudaDouble::api());
    ASSERT_TRUE(opened) << opened.error().to_string();
    driver = *opened;
  }
  Status refused(CudaDouble::Features features) {
    cuda.emplace(features);
    const Result<std::shared_ptr<Driver>> opened = Driver::open(CudaDouble::api());
    EXPECT_FALSE(opened);
    return opened.status();
  }
  ~DriverTest() override {
    driver.reset();
    if (!cuda) return;
    EXPECT_THAT(cuda->violations(), IsEmpty());
    EXPECT_EQ(cuda->live_objects(), 0u);
    EXPECT_THAT(CudaDouble::context_stack(), IsEmpty());
  }
  std::optional<CudaDouble> cuda;
  std::shared_ptr<Driver> driver;
};

TEST_F(DriverTest, NamesItsDevices) {
  open({.devices = 2, .dma_buf = false});
  ASSERT_EQ(driver->devices().size(), 2u);
  EXPECT_EQ(driver->devices()[1].name, "Double 1");
  EXPECT_FALSE(driver->devices()[1].dma_buf);
  EXPECT_TRUE(driver->devices()[1].gpu_direct);
  EXPECT_EQ(driver->version(), 12040);
}

TEST_F(DriverTest, SaysThatThereIsNoDevice) {
  const Status none = refused({.devices = 0});
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_THAT(none.message(), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST_F(DriverTest, SaysThatItIsTooOld) {
  const Status old = refused({.version = 10020});
  EXPECT_EQ(old.code(), Code::kUnimplemented);
  EXPECT_THAT(old.message(), HasSubstr("is of CUDA 10.2; install a driver for CUDA 11.0 or later"));
}

TEST_F(DriverTest, EveryCallMayFail) {
  open();
  driver.reset();
  for (const char* call : {"init", "driver_version", "device_count", "device_get", "device_name"}) {
    cuda->fail_next(call, CuResult::kIllegalAddress);
    const Result<std::shared_ptr<Driver>> opened = Driver::open(CudaDouble::api());
    ASSERT_FALSE(opened) << call;
    EXPECT_EQ(opened.error().code(), Code::kUnavailable) << call;
    EXPECT_THAT(opened.error().message(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)")) << call;
  }
  cuda->fail_next("init", CuResult::kNoDevice);
  EXPECT_EQ(Driver::open(CudaDouble::api()).status().code(), Code::kNotFound);
}

TEST_F(DriverTest, RetainsAContextOnce) {
  open();
  ASSERT_TRUE(driver->primary(0));
  ASSERT_TRUE(driver->primary(0));
  EXPECT_EQ(cuda->calls("primary_retain"), 1u);
  EXPECT_EQ(driver->primary(1).status().message(), "there is no CUDA device 1; legal: 0 to 0");
}

TEST_F(DriverTest, GivesTheThreadItsContextBack) {
  open();
  const DriverApi& api = CudaDouble::api();
  ASSERT_EQ(api.context_push(cuda->foreign_context()), CuResult::kSuccess);
  const std::span<std::byte> memory = cuda->allocate(4096);
  const Result<MemoryFacts> facts = driver->facts_of(memory);
  ASSERT_TRUE(facts);
  EXPECT_TRUE(driver->synchronize_copies(*facts).ok());
  EXPECT_TRUE(export_dma_buf(*driver, 0, memory));
  cuda->fail_next("address_range", CuResult::kIllegalAddress);
  EXPECT_FALSE(driver->facts_of(memory));
  EXPECT_EQ(CudaDouble::context_stack(), std::vector<CuContext>{cuda->foreign_context()});
  CuContext last = nullptr;
  ASSERT_EQ(api.context_pop(&last), CuResult::kSuccess);
}

TEST_F(DriverTest, TellsKindsOfMemoryApart) {
  open({.devices = 2});
  std::array<std::byte, 64> host{};
  const std::span<std::byte> device = cuda->allocate(8192, 1), pinned = cuda->allocate_pinned(4096);
  EXPECT_EQ(driver->facts_of(host)->kind, Kind::kHost);
  EXPECT_EQ(driver->facts_of(pinned)->kind, Kind::kPinned);
  EXPECT_EQ(driver->facts_of(cuda->allocate_managed(4096))->kind, Kind::kManaged);
  const Result<MemoryFacts> facts = driver->facts_of(device.subspan(100, 50));
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->kind, Kind::kDevice);
  EXPECT_EQ(facts->ordinal, 1);
  EXPECT_EQ(facts->range.data(), device.data());
  EXPECT_EQ(facts->range.size(), device.size());
  const ContextScope scope(CudaDouble::api(), *driver->primary(0));
  CudaDouble::api().host_free(pinned.data());
}

// Memory of a pool belongs to no context: the device's primary one serves.
TEST_F(DriverTest, TakesMemoryWithoutAContext) {
  open({.no_context_of_memory = true});
  const Result<MemoryFacts> facts = driver->facts_of(cuda->allocate(4096));
  ASSERT_TRUE(facts) << facts.error().to_string();
  EXPECT_EQ(facts->context, nullptr);
  EXPECT_TRUE(driver->synchronize_copies(*facts).ok());
}

// cuMemGetAddressRange gives the first handle alone: a range that is cut there fails far away and later.
TEST_F(DriverTest, SeesARangeOfSeveralHandlesWhole) {
  open();
  const std::span<std::byte> range = cuda->map_handles(3, CudaDouble::kBlock);
  const Result<MemoryFacts> facts = driver->facts_of(range.subspan(100, 2 * CudaDouble::kBlock));
  ASSERT_TRUE(facts) << facts.error().to_string();
  EXPECT_EQ(facts->range.data(), range.data());
  EXPECT_EQ(facts->range.size(), range.size());
  EXPECT_FALSE(cuda->synchronizes(range));
  ASSERT_TRUE(driver->synchronize_copies(*facts).ok());
  EXPECT_TRUE(cuda->synchronizes(range));
}

TEST_F(DriverTest, RefusesBytesThatLeaveTheAllocation) {
  open();
  const std::span<std::byte> range = cuda->allocate(4096);
  const Result<MemoryFacts> facts = driver->facts_of({range.data() + 96, 8192});
  ASSERT_FALSE(facts);
  EXPECT_EQ(facts.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(facts.error().message(), HasSubstr("leave the memory there after 4000 bytes"));
}

// ---- exports

TEST_F(DriverTest, ExportsWholePagesAndSaysWhereTheBytesAre) {
  open();
  const std::array<std::size_t, 3> sizes{1000, 70000, 500};
  const std::vector<std::span<std::byte>> parts = cuda->allocate_together(sizes);
  for (const std::span<std::byte> part : parts) {
    const Result<DmaBuf> exported = export_dma_buf(*driver, 0, part);
    ASSERT_TRUE(exported) << exported.error().to_string();
    EXPECT_TRUE(exported->fd.valid());
    const CudaDouble::Export seen = cuda->exports().back();
    EXPECT_EQ(seen.address % CudaDouble::kPage, 0u);
    EXPECT_EQ(seen.address + exported->offset, reinterpret_cast<CuAddress>(part.data()));
    EXPECT_GE(seen.bytes, exported->offset + part.size());
  }
}

TEST_F(DriverTest, ExportsARangeOfSeveralHandlesWhole) {
  open();
  const std::span<std::byte> range = cuda->map_handles(2, CudaDouble::kBlock);
  ASSERT_TRUE(export_dma_buf(*driver, 0, range));
  EXPECT_EQ(cuda->exports().back().bytes, range.size());
}

TEST_F(DriverTest, DoesNotTakeANullExportForOne) {
  open({.null_exports = true});
  const Result<DmaBuf> exported = export_dma_buf(*driver, 0, cuda->allocate(4096));
  ASSERT_FALSE(exported);
  EXPECT_THAT(exported.error().message(), HasSubstr("succeeded and gave no descriptor"));
}

TEST_F(DriverTest, SaysWhatSizeAnIommuTakes) {
  open({.largest_export = std::size_t{1} << 30});
  const std::span<std::byte> large = cuda->allocate(std::size_t{3} << 29);
  const Result<DmaBuf> exported = export_dma_buf(*driver, 0, large);
  ASSERT_FALSE(exported);
  EXPECT_EQ(exported.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(exported.error().message(), HasSubstr("register parts of at most 1073741824 bytes each"));
  EXPECT_TRUE(export_dma_buf(*driver, 0, large.first(std::size_t{1} << 30)));
}

TEST_F(DriverTest, SaysWhatADmaBufNeeds) {
  open({.dma_buf = false});
  const Result<DmaBuf> exported = export_dma_buf(*driver, 0, cuda->allocate(4096));
  ASSERT_FALSE(exported);
  EXPECT_EQ(exported.error().code(), Code::kUnimplemented);
  EXPECT_THAT(exported.error().message(), HasSubstr("CUDA 11.7"));
  EXPECT_EQ(cuda->calls("export_range"), 0u);
}

}  // namespace
}  // namespace fairlead::gpu
