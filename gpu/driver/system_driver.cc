#include "gpu/driver/system_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/symbols.h"

namespace fairlead::gpu {

Status load_driver(const char* library, DriverApi& api) {
  void* const opened = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return {
        Code::kNotFound,
        fmt::format("no CUDA driver: {}; install NVIDIA's driver (Debian: libcuda1) to use GPU memory", ::dlerror())};
  }
  Symbols symbols(opened);
  api = {};
  api.source = library;
  symbols.required(api.init, "cuInit");
  symbols.required(api.driver_version, "cuDriverGetVersion");
  symbols.required(api.device_count, "cuDeviceGetCount");
  symbols.required(api.device_get, "cuDeviceGet");
  symbols.required(api.device_name, "cuDeviceGetName");
  symbols.required(api.device_attribute, "cuDeviceGetAttribute");
  symbols.required(api.error_name, "cuGetErrorName");
  symbols.required(api.primary_retain, "cuDevicePrimaryCtxRetain");
  symbols.required(api.primary_release, "cuDevicePrimaryCtxRelease_v2");
  symbols.required(api.context_create, "cuCtxCreate_v2");
  symbols.required(api.context_destroy, "cuCtxDestroy_v2");
  symbols.required(api.context_synchronize, "cuCtxSynchronize");
  symbols.required(api.context_push, "cuCtxPushCurrent_v2");
  symbols.required(api.context_pop, "cuCtxPopCurrent_v2");
  symbols.required(api.pointer_attribute, "cuPointerGetAttribute");
  symbols.required(api.set_pointer_attribute, "cuPointerSetAttribute");
  symbols.required(api.address_range, "cuMemGetAddressRange_v2");
  symbols.required(api.memory_alloc, "cuMemAlloc_v2");
  symbols.required(api.memory_free, "cuMemFree_v2");
  symbols.required(api.host_alloc, "cuMemHostAlloc");
  symbols.required(api.host_free, "cuMemFreeHost");
  symbols.required(api.stream_create, "cuStreamCreate");
  symbols.required(api.stream_destroy, "cuStreamDestroy_v2");
  symbols.required(api.stream_synchronize, "cuStreamSynchronize");
  symbols.required(api.event_create, "cuEventCreate");
  symbols.required(api.event_destroy, "cuEventDestroy_v2");
  symbols.required(api.event_record, "cuEventRecord");
  symbols.required(api.event_query, "cuEventQuery");
  symbols.required(api.copy_to_device, "cuMemcpyHtoDAsync_v2");
  symbols.required(api.copy_to_host, "cuMemcpyDtoHAsync_v2");
  symbols.required(api.copy_within, "cuMemcpyDtoDAsync_v2");
  symbols.required(api.fill, "cuMemsetD8Async");
  symbols.required(api.stream_wait, "cuStreamWaitEvent");
  symbols.required(api.module_load, "cuModuleLoadDataEx");
  symbols.required(api.module_unload, "cuModuleUnload");
  symbols.required(api.module_function, "cuModuleGetFunction");
  symbols.required(api.launch, "cuLaunchKernel");
  symbols.optional(api.export_range, "cuMemGetHandleForAddressRange");
  symbols.optional(api.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  symbols.optional(api.capture_info, "cuStreamGetCaptureInfo_v2");
  symbols.optional(api.graph_exec_set_launch, "cuGraphExecKernelNodeSetParams");
  symbols.optional(api.stream_create_priority, "cuStreamCreateWithPriority");
  symbols.optional(api.stream_priorities, "cuCtxGetStreamPriorityRange");
  symbols.optional(api.function_parameter, "cuFuncGetParamInfo");
  symbols.optional(api.address_reserve, "cuMemAddressReserve");
  symbols.optional(api.address_free, "cuMemAddressFree");
  symbols.optional(api.memory_create, "cuMemCreate");
  symbols.optional(api.memory_release, "cuMemRelease");
  symbols.optional(api.memory_map, "cuMemMap");
  symbols.optional(api.memory_unmap, "cuMemUnmap");
  symbols.optional(api.memory_access, "cuMemSetAccess");
  symbols.optional(api.memory_granularity, "cuMemGetAllocationGranularity");
  symbols.optional(api.capture_begin, "cuStreamBeginCapture_v2");
  symbols.optional(api.capture_end, "cuStreamEndCapture");
  symbols.optional(api.graph_destroy, "cuGraphDestroy");
  symbols.optional(api.graph_instantiate, "cuGraphInstantiateWithFlags");
  symbols.optional(api.graph_exec_destroy, "cuGraphExecDestroy");
  symbols.optional(api.graph_launch, "cuGraphLaunch");
  if (symbols.missing() == nullptr) return {};
  return {Code::kUnimplemented, fmt::format("{} has no {}: it is too old; install a driver for CUDA 11.0 or later",
                                            library, symbols.missing())};
}

}  // namespace fairlead::gpu
