// The engine's memory of CUDA devices: what a pointer is, how the devices take it, and what the rest is staged through.
#include <fmt/format.h>

#include <utility>

#include "datapath/engine/engine_impl.h"
#include "datapath/engine/handles.h"
#include "fairlead/cuda.h"
#include "fairlead/log.h"
#include "gpu/driver/driver.h"

namespace fairlead::datapath {
namespace {

using Kind = gpu::MemoryFacts::Kind;

/// ok, or why such memory cannot be registered.
Status check(const gpu::MemoryFacts& facts, std::span<std::byte> bytes, const CudaOptions& options) {
  if (facts.kind == Kind::kManaged) {
    return {Code::kInvalidArgument,
            fmt::format("cannot register {} bytes at {}: it is managed memory, which moves between host and devices; "
                        "allocate it with cuMemAlloc (cudaMalloc) or cuMemHostAlloc (cudaHostAlloc)",
                        bytes.size(), static_cast<void*>(bytes.data()))};
  }
  if (facts.kind == Kind::kHost) {
    return {Code::kInvalidArgument,
            fmt::format("cannot register {} bytes at {} as memory of CUDA: the driver does not know it; register host "
                        "memory without CudaOptions",
                        bytes.size(), static_cast<void*>(bytes.data()))};
  }
  if (facts.kind == Kind::kPinned) return {};
  if (options.device != CudaOptions::kAnyDevice && options.device != facts.ordinal) {
    return {Code::kInvalidArgument,
            fmt::format("the memory at {} is of CUDA device {}, not of {} (CudaOptions::device)",
                        static_cast<void*>(bytes.data()), facts.ordinal, options.device)};
  }
  if (allows(options.access, Access::kRemoteAtomic) || allows(options.access, Access::kLocalReadOnly)) {
    return {Code::kInvalidArgument,
            "memory of a CUDA device has neither kRemoteAtomic nor kLocalReadOnly: the CPU, which would see to that, "
            "does not reach it; leave it out"};
  }
  return {};
}

}  // namespace

Result<Memory> EngineImpl::register_memory(std::span<std::byte> bytes, const CudaOptions& options) {
  if (bytes.empty()) return Status(Code::kInvalidArgument, "cannot register 0 bytes");
  Result<std::shared_ptr<gpu::Driver>> driver = gpu::process_driver();
  if (!driver) return driver.error();
  const Result<gpu::MemoryFacts> facts = (*driver)->facts_of(bytes);
  if (!facts) return facts.error();
  if (Status fine = check(*facts, bytes, options); !fine.ok()) return fine;
  if (facts->kind == Kind::kPinned) return register_memory(bytes, options.access, options.release);
  return register_device_memory(*driver, *facts, bytes, options);
}

Result<Memory> EngineImpl::register_device_memory(const std::shared_ptr<gpu::Driver>& driver,
                                                  const gpu::MemoryFacts& facts, std::span<std::byte> bytes,
                                                  const CudaOptions& options) {
  if (Status fine = driver->synchronize_copies(facts); !fine.ok()) return fine;
  const Result<gpu::CuContext> context =
      facts.context != nullptr ? Result<gpu::CuContext>(facts.context) : driver->primary(facts.ordinal);
  if (!context) return context.error();
  if (Status fine = begin_staging(driver, facts.ordinal); !fine.ok()) return fine;
  const CudaMemory kind{.ordinal = facts.ordinal, .range = facts.range, .context = *context, .driver = driver};
  Result<std::shared_ptr<RegisteredRange>> range =
      commons_.regions->add({.bytes = bytes, .kind = kind, .access = options.access});
  if (!range) return range.error();
  std::shared_ptr<void> keeper;
  if (options.release) {
    keeper = {nullptr, [table = commons_.regions, release = options.release](void*) {
                if (!table->inherited()) release();
              }};
  }
  return make_memory(std::make_shared<RegionImpl>(std::move(*range), bytes, options.access, std::move(keeper)), bytes);
}

/// A path that does not reach the memory may take over at any time, so there is staging memory from the beginning.
Status EngineImpl::begin_staging(const std::shared_ptr<gpu::Driver>& driver, int ordinal) {
  const std::lock_guard lock(staging_mutex_);
  if (!staging_.empty()) return {};
  const std::size_t each = config().cuda_staging_bytes / lanes_.size() / 4096 * 4096;
  std::vector<std::unique_ptr<DeviceStaging>> made;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    auto pinned = gpu::PinnedMemory::allocate(driver, ordinal, each);
    if (!pinned) return pinned.error();
    auto range = commons_.regions->add({.bytes = (*pinned)->bytes(), .access = Access::kNone});
    if (!range) return range.error();
    made.push_back(std::make_unique<DeviceStaging>(driver, std::move(*pinned), std::move(*range)));
  }
  staging_ = std::move(made);
  commons_.regions->settle_by([this] { settle_copies(); });
  for (std::size_t i = 0; i < lanes_.size(); ++i) commons_.regions->stage_through(i, staging_[i].get());
  return {};
}

/// No session is left.
void EngineImpl::end_staging() {
  std::vector<std::unique_ptr<DeviceStaging>> gone;
  {
    const std::lock_guard lock(staging_mutex_);
    for (std::size_t i = 0; i < staging_.size(); ++i) commons_.regions->stage_through(i, nullptr);
    gone.swap(staging_);
  }
  // A round of an application that polls may have begun before, and goes on with it.
  for (const auto& lane : lanes_) lane->lane().call([] {});
}

void EngineImpl::settle_copies() {
  const std::lock_guard lock(staging_mutex_);
  for (const std::unique_ptr<DeviceStaging>& each : staging_) each->copier().settle();
}

void EngineImpl::add_cuda_to(EngineStats& stats) const {
  stats.cuda_registered_bytes = commons_.regions->cuda_bytes();
  const std::lock_guard lock(staging_mutex_);
  for (const std::unique_ptr<DeviceStaging>& each : staging_) {
    stats.cuda_staging_bytes += each->bytes();
    stats.cuda_bytes_in += each->copier().bytes_in.get();
    stats.cuda_bytes_out += each->copier().bytes_out.get();
  }
}

}  // namespace fairlead::datapath

namespace fairlead::inline v0 {

Result<std::vector<CudaDeviceInfo>> cuda_devices() {
  const Result<std::shared_ptr<gpu::Driver>> driver = gpu::process_driver();
  if (!driver) return driver.error();
  std::vector<CudaDeviceInfo> found;
  for (std::size_t i = 0; i < (*driver)->devices().size(); ++i) {
    const gpu::DeviceFacts& device = (*driver)->devices()[i];
    const int version = (*driver)->version();
    std::string how =
        device.dma_buf ? "by dma-buf over RDMA devices that take one, "
        : device.gpu_direct
            ? "no dma-buf (it needs CUDA 11.7 and the open kernel modules): over RDMA devices by nvidia-peermem where "
              "that is loaded, "
            : "no other PCIe device reaches its memory, ";
    how += "else through pinned host memory";
    found.push_back({fmt::format("cuda:{}", i),
                     fmt::format("{}, CUDA {}.{}", device.name, version / 1000, version % 1000 / 10), std::move(how)});
  }
  return found;
}

}  // namespace fairlead::inline v0
