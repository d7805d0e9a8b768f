// The calls of the CUDA driver that Fairlead makes, as a table: filled from the system's libcuda.so.1, opened at run
// time, or by a double in tests. No CUDA header is needed to build; types, numbers and versions of entry points are
// those of cuda.h, under names of our own. Meaning and thread-safety: NVIDIA's CUDA Driver API, which lets all threads
// call it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fairlead::gpu {

using CuDevice = int;
using CuContext = struct CuContextObject*;
using CuStream = struct CuStreamObject*;
using CuEvent = struct CuEventObject*;
using CuModule = struct CuModuleObject*;
using CuFunction = struct CuFunctionObject*;
using CuGraph = struct CuGraphObject*;
using CuGraphExec = struct CuGraphExecObject*;
using CuGraphNode = struct CuGraphNodeObject*;
using CuMemory = unsigned long long;  // CUmemGenericAllocationHandle: memory that has no addresses yet
using CuAddress = std::uintptr_t;     // CUdeviceptr: of device memory, in the one address space of host and devices

enum class CuResult : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,  // the process is about to end
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidPtx = 218,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,  // sticky: the context is lost
  kLaunchFailed = 719,    // the same
  kNotPermitted = 800,
  kNotSupported = 801,
};

// CUdevice_attribute
inline constexpr int kAttributeBlockThreads = 1;
inline constexpr int kAttributeGrid[3] = {5, 6, 7};
inline constexpr int kAttributeSharedBytes = 8;  // of a block, without asking for more
inline constexpr int kAttributeMapping = 102;    // memory is mapped at addresses that were reserved
inline constexpr int kAttributeGpuDirectRdma = 116;
inline constexpr int kAttributeDmaBuf = 124;
// CUpointer_attribute
inline constexpr int kPointerContext = 1;
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerSyncMemops = 6;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerOrdinal = 9;
// CUmemorytype
inline constexpr unsigned kMemoryHost = 1;
inline constexpr unsigned kMemoryDevice = 2;
// Flags
inline constexpr unsigned kHostAllocPortable = 1;   // CU_MEMHOSTALLOC_PORTABLE
inline constexpr unsigned kStreamNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
inline constexpr unsigned kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
inline constexpr int kRangeDmaBufFd = 1;            // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
inline constexpr int kCaptureRelaxed = 2;           // CU_STREAM_CAPTURE_MODE_RELAXED
// Memory that is mapped: CUmemLocation, CUmemAllocationProp (pinned, of no handle type), CUmemAccessDesc
inline constexpr int kLocationDevice = 1, kMemoryPinned = 1, kAccessReadWrite = 3;
struct CuLocation {
  int type = kLocationDevice, ordinal = 0;
};
struct CuMemoryKind {
  int type = kMemoryPinned, handle_types = 0;
  CuLocation device{};
  void* win32_meta_data = nullptr;
  unsigned char compression = 0, gpu_direct = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
static_assert(sizeof(CuMemoryKind) == 32);
struct CuMemoryAccess {
  CuLocation device{};
  int flags = 0;
};
static_assert(sizeof(CuMemoryAccess) == 12);
// CUjit_option
inline constexpr int kJitErrorLog = 5, kJitErrorLogBytes = 6;
// What stands in the last argument of a launch: CU_LAUNCH_PARAM_*
inline constexpr std::uintptr_t kLaunchParameters = 1, kLaunchParameterBytes = 2;

// CUDA_KERNEL_NODE_PARAMS: the first, which has no context
struct CuLaunchNode {
  CuFunction function = nullptr;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  void** parameters = nullptr;
  void** extra = nullptr;
};
static_assert(sizeof(CuLaunchNode) == 56);

struct DriverApi {
  const char* source = "";  // "libcuda.so.1", for messages

  CuResult (*init)(unsigned flags);
  CuResult (*driver_version)(int* version);
  CuResult (*device_count)(int* count);
  CuResult (*device_get)(CuDevice* device, int ordinal);
  CuResult (*device_name)(char* name, int bytes, CuDevice device);
  CuResult (*device_attribute)(int* value, int attribute, CuDevice device);
  CuResult (*error_name)(CuResult result, const char** name);

  CuResult (*primary_retain)(CuContext* context, CuDevice device);
  CuResult (*primary_release)(CuDevice device);
  CuResult (*context_create)(CuContext* context, unsigned flags, CuDevice device);
  /// With all that was made in it.
  CuResult (*context_destroy)(CuContext context);
  CuResult (*context_synchronize)();
  CuResult (*context_push)(CuContext context);
  CuResult (*context_pop)(CuContext* context);

  CuResult (*pointer_attribute)(void* value, int attribute, CuAddress pointer);
  CuResult (*set_pointer_attribute)(const void* value, int attribute, CuAddress pointer);
  /// Of the allocation that holds `pointer`; of memory mapped from several handles, of one of them alone.
  CuResult (*address_range)(CuAddress* base, std::size_t* bytes, CuAddress pointer);

  CuResult (*memory_alloc)(CuAddress* memory, std::size_t bytes);
  CuResult (*memory_free)(CuAddress memory);
  CuResult (*host_alloc)(void** memory, std::size_t bytes, unsigned flags);
  CuResult (*host_free)(void* memory);

  CuResult (*stream_create)(CuStream* stream, unsigned flags);
  CuResult (*stream_destroy)(CuStream stream);
  CuResult (*stream_synchronize)(CuStream stream);
  CuResult (*event_create)(CuEvent* event, unsigned flags);
  CuResult (*event_destroy)(CuEvent event);
  CuResult (*event_record)(CuEvent event, CuStream stream);
  CuResult (*event_query)(CuEvent event);
  CuResult (*copy_to_device)(CuAddress to, const void* from, std::size_t bytes, CuStream stream);
  CuResult (*copy_to_host)(void* to, CuAddress from, std::size_t bytes, CuStream stream);
  CuResult (*copy_within)(CuAddress to, CuAddress from, std::size_t bytes, CuStream stream);  // which do not overlap
  CuResult (*fill)(CuAddress to, unsigned char value, std::size_t bytes, CuStream stream);
  CuResult (*stream_wait)(CuStream stream, CuEvent event, unsigned flags);

  /// `image`: a cubin, a fatbin, or PTX that ends with a 0. Its length is what it says itself.
  CuResult (*module_load)(CuModule* module, const void* image, unsigned options, int* names, void** values);
  CuResult (*module_unload)(CuModule module);
  CuResult (*module_function)(CuFunction* function, CuModule module, const char* name);
  CuResult (*launch)(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                     unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream, void** parameters,
                     void** extra);

  // Null in drivers that do not have them yet.
  // Both or none: CUDA 5.5.
  CuResult (*stream_create_priority)(CuStream* stream, unsigned flags, int priority);
  /// Of the current context's device; the greatest has the smallest number. Both 0: it has none.
  CuResult (*stream_priorities)(int* least, int* greatest);
  CuResult (*export_range)(void* handle, CuAddress address, std::size_t bytes, int handle_type,
                           unsigned long long flags);  // CUDA 11.7
  CuResult (*exchange_capture_mode)(int* mode);        // CUDA 10.1
  // All of these or none is of use: CUDA 10.2.
  /// `wish`: where they begin, if they are free; 0: anywhere. `alignment` 0: the least that there is.
  CuResult (*address_reserve)(CuAddress* base, std::size_t bytes, std::size_t alignment, CuAddress wish,
                              unsigned long long flags);
  CuResult (*address_free)(CuAddress base, std::size_t bytes);
  CuResult (*memory_create)(CuMemory* memory, std::size_t bytes, const CuMemoryKind* kind, unsigned long long flags);
  /// It stays as long as it is mapped.
  CuResult (*memory_release)(CuMemory memory);
  CuResult (*memory_map)(CuAddress at, std::size_t bytes, std::size_t offset, CuMemory memory,
                         unsigned long long flags);
  CuResult (*memory_unmap)(CuAddress at, std::size_t bytes);
  /// Of all contexts of these devices.
  CuResult (*memory_access)(CuAddress at, std::size_t bytes, const CuMemoryAccess* access, std::size_t count);
  CuResult (*memory_granularity)(std::size_t* bytes, const CuMemoryKind* kind, int option);
  // All or none of these: what is put on the stream between the first two is not done, but becomes a graph.
  CuResult (*capture_begin)(CuStream stream, int mode);                                       // CUDA 10.1
  CuResult (*capture_end)(CuStream stream, CuGraph* graph);                                   // CUDA 10.0
  CuResult (*graph_destroy)(CuGraph graph);                                                   // CUDA 10.0
  CuResult (*graph_instantiate)(CuGraphExec* exec, CuGraph graph, unsigned long long flags);  // CUDA 11.4
  /// What runs of it goes on.
  CuResult (*graph_exec_destroy)(CuGraphExec exec);             // CUDA 10.0
  CuResult (*graph_launch)(CuGraphExec exec, CuStream stream);  // CUDA 10.0
  // Both or none. What was captured last stands in `last`, for as long as nothing more is.
  CuResult (*capture_info)(CuStream stream, int* status, unsigned long long* id, CuGraph* graph,
                           const CuGraphNode** last, std::size_t* count);  // CUDA 11.3
  /// The node is of the graph that `exec` was made of, which is there yet. What was launched before stays as it was.
  CuResult (*graph_exec_set_launch)(CuGraphExec exec, CuGraphNode node, const CuLaunchNode* launch);  // CUDA 10.1
  /// kInvalidValue: it has no such parameter.
  CuResult (*function_parameter)(CuFunction function, std::size_t index, std::size_t* offset,
                                 std::size_t* bytes);  // CUDA 12.4
};

}  // namespace fairlead::gpu
