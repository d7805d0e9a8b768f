#include "verbs/transport/cuda_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "fairlead/log.h"
#include "gpu/driver/dma_buf.h"

namespace fairlead::verbs {
namespace {

int flags_of(Access access) noexcept {
  int flags = IBV_ACCESS_LOCAL_WRITE;
  if (allows(access, Access::kRemoteRead)) flags |= IBV_ACCESS_REMOTE_READ;
  if (allows(access, Access::kRemoteWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  return flags;
}

Result<ibv_mr*> by_dma_buf(const VerbsApi& api, ibv_pd* pd, const datapath::CudaMemory& memory,
                           std::span<std::byte> bytes, int flags, const RegionLimits& limits) {
  if (const std::string bar = registration_bar(limits, bytes.size(), SystemFiles()); !bar.empty()) {
    return Status(Code::kResourceExhausted, bar);
  }
  if (memory.driver == nullptr) return Status(Code::kUnimplemented, "no CUDA driver");
  if (api.reg_dmabuf_mr == nullptr) {
    return Status(Code::kUnimplemented, fmt::format("{} has no ibv_reg_dmabuf_mr (rdma-core 34)", api.source));
  }
  const Result<gpu::DmaBuf> exported = gpu::export_dma_buf(*memory.driver, memory.ordinal, bytes);
  if (!exported) return exported.error();
  errno = 0;
  ibv_mr* const region = api.reg_dmabuf_mr(pd, exported->offset, bytes.size(),
                                           reinterpret_cast<std::uintptr_t>(bytes.data()), exported->fd.get(), flags);
  if (region != nullptr) return region;
  return Status(Code::kUnavailable, fmt::format("ibv_reg_dmabuf_mr: {}", std::strerror(errno != 0 ? errno : EINVAL)));
}

/// The first time for each way, by a bit of its own.
bool is_news(unsigned way) noexcept {
  static std::atomic<unsigned> said{0};
  return (said.fetch_or(way, std::memory_order_relaxed) & way) == 0;
}

}  // namespace

bool has_peer_memory() {
  return ::access("/sys/module/nvidia_peermem", F_OK) == 0 || ::access("/sys/module/nv_peer_mem", F_OK) == 0;
}

Result<ibv_mr*> register_cuda_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device,
                                     const datapath::CudaMemory& memory, std::span<std::byte> bytes, Access access,
                                     bool peer_memory, const RegionLimits& limits) {
  constexpr unsigned kDmaBuf = 1, kPeerMemory = 2;
  const int flags = flags_of(access);
  Result<ibv_mr*> region = by_dma_buf(api, pd, memory, bytes, flags, limits);
  if (region) {
    if (is_news(kDmaBuf)) {
      log(LogLevel::kInfo, fmt::format("{} reaches memory of CUDA device {} by dma-buf", device, memory.ordinal));
    }
    return region;
  }
  const std::string why = region.error().message();
  if (!peer_memory) {
    return Status(region.error().code(), fmt::format("{} does not reach memory of CUDA device {}: by dma-buf: {}; by "
                                                     "peer memory: the module nvidia-peermem is not loaded",
                                                     device, memory.ordinal, why));
  }
  region = register_memory(api, pd, device, bytes, flags, limits);
  if (region) {
    if (is_news(kPeerMemory)) {
      log(LogLevel::kInfo, fmt::format("{} reaches memory of CUDA device {} by peer memory (not by dma-buf: {})",
                                       device, memory.ordinal, why));
    }
    return region;
  }
  return Status(region.error().code(),
                fmt::format("{} does not reach memory of CUDA device {}: by dma-buf: {}; by peer memory: {}", device,
                            memory.ordinal, why, region.error().message()));
}

}  // namespace fairlead::verbs
