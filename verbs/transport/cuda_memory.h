// Memory of CUDA devices at an RDMA device: which way it is registered, and why not another.
//
// By dma-buf where verbs and the GPU have one: no module is needed, and the kernel knows what is mapped. Else by peer
// memory: nvidia-peermem makes plain registration of a device's addresses work. Where neither is there the engine
// stages.
#pragma once

#include <span>
#include <string_view>

#include "fairlead/memory.h"
#include "fairlead/status.h"
#include "transport/memory.h"
#include "verbs/provider/registration.h"

namespace fairlead::verbs {

/// Whether the kernel has a module that registers GPU memory by its address.
[[nodiscard]] bool has_peer_memory();

/// Registers `bytes`, a part of `memory`, with the access that is granted, at their own addresses. Logs the first time
/// which way it went. Errors: what each way answered, in one sentence; kUnimplemented where there is none at all.
Result<ibv_mr*> register_cuda_memory(const VerbsApi& api, ibv_pd* pd, std::string_view device,
                                     const datapath::CudaMemory& memory, std::span<std::byte> bytes, Access access,
                                     bool peer_memory, const RegionLimits& limits);

}  // namespace fairlead::verbs
