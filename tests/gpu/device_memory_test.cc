// GPU memory at an RDMA device: by dma-buf, by peer memory, or not at all, and why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "tests/gpu/cuda_double.h"
#include "tests/verbs/recording_verbs.h"
#include "verbs/transport/device.h"

namespace fairlead::verbs {
namespace {

using gpu::testing::CudaDouble;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using verbs::testing::RecordingVerbs;

struct DmaBufCall {
  std::uint64_t offset = 0, iova = 0;
  std::size_t length = 0;
  bool descriptor_is_open = false;
};
std::vector<DmaBufCall> g_calls;
int g_errno = 0;

ibv_mr* register_dma_buf(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access) {
  struct stat seen{};
  g_calls.push_back({offset, iova, length, ::fstat(fd, &seen) == 0});
  if (g_errno != 0) {
    errno = g_errno;
    return nullptr;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of a device
  return RecordingVerbs::api().reg_mr(pd, reinterpret_cast<void*>(iova), length, access);
}

class DeviceMemory : public ::testing::Test {
 protected:
  void open(CudaDouble::Features features, bool dma_buf_verbs = true, bool peer_memory = false) {
    g_calls.clear();
    g_errno = 0;
    cuda.emplace(features);
    driver = cuda->install();
    api = RecordingVerbs::api();
    api.reg_dmabuf_mr = dma_buf_verbs ? register_dma_buf : nullptr;
    auto opened = VerbsDevice::open({.api = &api,
                                     .context = DeviceContext(api, api.open_device(verbs.device())),
                                     .name = verbs.features().name,
                                     .detail = "double",
                                     .peer_memory = peer_memory},
                                    {});
    ASSERT_TRUE(opened) << opened.error().to_string();
    device = std::move(*opened);
  }
  datapath::MemoryDescriptor describe(std::span<std::byte> bytes) {
    const Result<gpu::MemoryFacts> facts = driver->facts_of(bytes);
    EXPECT_TRUE(facts);
    return {
        .bytes = bytes,
        .kind = datapath::CudaMemory{.ordinal = 0, .range = facts->range, .context = facts->context, .driver = driver},
        .access = Access::kRemoteReadWrite};
  }
  ~DeviceMemory() override {
    device.reset();
    EXPECT_EQ(verbs.live_regions(), 0u);
    EXPECT_THAT(verbs.violations(), IsEmpty());
    EXPECT_THAT(cuda->violations(), IsEmpty());
    driver.reset();
  }

  RecordingVerbs verbs;
  VerbsApi api{};
  std::optional<CudaDouble> cuda;
  std::shared_ptr<gpu::Driver> driver;
  std::unique_ptr<VerbsDevice> device;
};

TEST_F(DeviceMemory, IsRegisteredByDmaBufAtItsOwnAddress) {
  open({});
  const std::array<std::size_t, 2> sizes{1000, 5000};
  const std::span<std::byte> second = cuda->allocate_together(sizes)[1];
  const datapath::MemoryDescriptor memory = describe(second);
  const auto registered = device->register_memory(memory);
  ASSERT_TRUE(registered) << registered.error().to_string();
  const auto granted = device->grant(datapath::part_of(memory, second.subspan(100, 64), Access::kRemoteRead));
  ASSERT_TRUE(granted) << granted.error().to_string();
  ASSERT_EQ(g_calls.size(), 2u);
  const auto address = reinterpret_cast<std::uintptr_t>(second.data());
  EXPECT_EQ(g_calls[0].iova, address);
  EXPECT_EQ(g_calls[0].offset, address % CudaDouble::kPage);
  EXPECT_EQ(g_calls[0].length, 5000u);
  EXPECT_TRUE(g_calls[0].descriptor_is_open);
  EXPECT_EQ(g_calls[1].iova, address + 100);
  EXPECT_EQ(granted->address, address + 100);
  EXPECT_EQ(verbs.access_of(granted->key), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  device->revoke(*granted);
  device->deregister(*registered);
}

TEST_F(DeviceMemory, ANullRegionIsARefusal) {
  open({});
  g_errno = EOPNOTSUPP;
  const auto refused = device->register_memory(describe(cuda->allocate(4096)));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("ibv_reg_dmabuf_mr: Operation not supported"));
  EXPECT_THAT(refused.error().message(), HasSubstr("nvidia-peermem is not loaded"));
}

TEST_F(DeviceMemory, IsRegisteredByPeerMemoryWhereThereIsNoDmaBuf) {
  open({.dma_buf = false}, true, true);
  const auto registered = device->register_memory(describe(cuda->allocate(4096)));
  ASSERT_TRUE(registered) << registered.error().to_string();
  EXPECT_THAT(g_calls, IsEmpty());
  device->deregister(*registered);
}

TEST_F(DeviceMemory, SaysWhatIsMissing) {
  open({}, false);
  const auto refused = device->register_memory(describe(cuda->allocate(4096)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnimplemented);
  EXPECT_THAT(refused.error().message(), HasSubstr("fake0 does not reach memory of CUDA device 0: by dma-buf: "));
  EXPECT_THAT(refused.error().message(), HasSubstr("ibv_reg_dmabuf_mr (rdma-core 34)"));
}

TEST_F(DeviceMemory, BothWaysMayBeRefused) {
  open({.null_exports = true}, true, true);
  verbs.features().reg_mr_errno = EFAULT;
  const auto refused = device->register_memory(describe(cuda->allocate(4096)));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("gave no descriptor; by peer memory: cannot register"));
}

}  // namespace
}  // namespace fairlead::verbs
