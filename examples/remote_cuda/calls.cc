// The calls themselves: what can be seen to be wrong here, then the device.
#include <remote_cuda.h>
#include <remote_device.h>

#include <cstdio>

namespace {

struct Process {
  std::mutex mutex;
  bool initialized = false;
  std::shared_ptr<RemoteDevice> device;  // null: no context
};

Process& process() {
  static Process process;  // its end says goodbye to the server
  return process;
}

std::shared_ptr<RemoteDevice> device() {
  const std::lock_guard lock(process().mutex);
  return process().device;
}

CUresult not_supported(const char* call, const char* why) {
  std::fprintf(stderr, "remote_cuda: %s is not supported: %s\n", call, why);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

#define EXPORT extern "C" [[gnu::visibility("default")]]
#define WANT(condition) \
  if (!(condition)) return CUDA_ERROR_INVALID_VALUE
#define WANT_DEVICE(name)     \
  const auto name = device(); \
  if (name == nullptr) return process().initialized ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_NOT_INITIALIZED

EXPORT CUresult cuInit(unsigned flags) {
  WANT(flags == 0);
  const std::lock_guard lock(process().mutex);
  if (process().initialized) return CUDA_SUCCESS;
  process().device = RemoteDevice::connect();
  process().initialized = process().device != nullptr;
  return process().initialized ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

EXPORT CUresult cuDriverGetVersion(int* version) {
  WANT(version != nullptr);
  *version = 12000;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int* count) {
  WANT(count != nullptr);
  *count = 1;
  return process().initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

EXPORT CUresult cuDeviceGet(CUdevice* device, int number) {
  WANT(device != nullptr);
  if (number != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return process().initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

EXPORT CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  WANT(name != nullptr && size > 0);
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<std::size_t>(size), "a device at another host");
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice number) {
  WANT(bytes != nullptr);
  if (number != 0) return CUDA_ERROR_INVALID_DEVICE;
  WANT_DEVICE(remote);
  *bytes = remote->memory_bytes();
  return CUDA_SUCCESS;
}

// There is one context: the session. Who destroyed it gets another one.
EXPORT CUresult cuCtxCreate(CUcontext* context, unsigned, CUdevice device) {
  WANT(context != nullptr);
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(process().mutex);
  if (!process().initialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (process().device == nullptr) process().device = RemoteDevice::connect();
  *context = reinterpret_cast<CUcontext>(process().device.get());
  return process().device != nullptr ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

EXPORT CUresult cuCtxDestroy(CUcontext context) {
  const std::lock_guard lock(process().mutex);
  if (context == nullptr || context != reinterpret_cast<CUcontext>(process().device.get()))
    return CUDA_ERROR_INVALID_CONTEXT;
  process().device.reset();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize() {
  WANT_DEVICE(remote);
  return remote->synchronize_all();
}

EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  WANT(module != nullptr && image != nullptr);
  WANT_DEVICE(remote);
  auto kernels = parse_module(static_cast<const char*>(image));
  if (!kernels) return CUDA_ERROR_INVALID_IMAGE;
  *module = new CUmod_st{*std::move(kernels), {}};
  return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  WANT(function != nullptr && module != nullptr && name != nullptr);
  WANT_DEVICE(remote);
  return remote->load(function, *module, name);
}

EXPORT CUresult cuModuleUnload(CUmodule module) {  // the server does not forget its functions
  WANT(module != nullptr);
  delete module;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  WANT_DEVICE(remote);
  return remote->allocate(address, bytes);
}

EXPORT CUresult cuMemFree(CUdeviceptr address) {
  WANT_DEVICE(remote);
  return remote->release(address);
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  WANT(from != nullptr);
  WANT_DEVICE(remote);
  return remote->copy_in(to, from, bytes, stream);
}

// The bytes were copied when this returns; that is all that CUDA promises of pageable memory as well.
EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return cuMemcpyHtoDAsync(to, from, bytes, nullptr);
}

EXPORT CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  WANT(to != nullptr);
  WANT_DEVICE(remote);
  return remote->copy_out(to, from, bytes, stream);
}

EXPORT CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  if (const CUresult result = cuMemcpyDtoHAsync(to, from, bytes, nullptr); result != CUDA_SUCCESS) return result;
  return cuStreamSynchronize(nullptr);
}

EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  WANT_DEVICE(remote);
  return remote->copy_within(to, from, bytes, stream);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  WANT_DEVICE(remote);
  return remote->fill(to, value, bytes, stream);
}

EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned) {
  WANT(stream != nullptr);
  WANT_DEVICE(remote);
  return remote->create_stream(stream);
}

EXPORT CUresult cuStreamDestroy(CUstream stream) {
  WANT_DEVICE(remote);
  return remote->destroy_stream(stream);
}

EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  WANT_DEVICE(remote);
  return remote->synchronize(stream);
}

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  WANT(event != nullptr);
  WANT_DEVICE(remote);
  return remote->wait_event(stream, event);
}

EXPORT CUresult cuEventCreate(CUevent* event, unsigned) {
  WANT(event != nullptr);
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy(CUevent event) {
  WANT(event != nullptr);
  delete event;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  WANT(event != nullptr);
  WANT_DEVICE(remote);
  return remote->record(event, stream);
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
  WANT(event != nullptr);
  WANT_DEVICE(remote);
  return remote->synchronize(event, false);
}

EXPORT CUresult cuEventQuery(CUevent event) {
  WANT(event != nullptr);
  WANT_DEVICE(remote);
  return remote->synchronize(event, true);
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
                               void** parameters, void** extra) {
  WANT(function != nullptr);
  WANT_DEVICE(remote);
  if (extra != nullptr) return not_supported("cuLaunchKernel with extra", "say the parameters one by one");
  WANT(parameters != nullptr || function->kernel.parameters.empty());
  return remote->launch(*function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, stream,
                        parameters);
}

EXPORT CUresult cuGetErrorString(CUresult result, const char** text) {
  WANT(text != nullptr);
  switch (result) {
    case CUDA_SUCCESS:
      *text = "no error";
      break;
    case CUDA_ERROR_INVALID_VALUE:
      *text = "invalid argument";
      break;
    case CUDA_ERROR_OUT_OF_MEMORY:
      *text = "out of memory";
      break;
    case CUDA_ERROR_NOT_INITIALIZED:
      *text = "initialization error";
      break;
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      *text = "the device at the other host is gone";
      break;
    case CUDA_ERROR_NO_DEVICE:
      *text = "no device is served where REMOTE_CUDA says";
      break;
    case CUDA_ERROR_INVALID_DEVICE:
      *text = "invalid device ordinal";
      break;
    case CUDA_ERROR_INVALID_IMAGE:
      *text = "device kernel image is invalid";
      break;
    case CUDA_ERROR_INVALID_CONTEXT:
      *text = "invalid device context";
      break;
    case CUDA_ERROR_INVALID_HANDLE:
      *text = "invalid resource handle";
      break;
    case CUDA_ERROR_NOT_FOUND:
      *text = "named symbol not found";
      break;
    case CUDA_ERROR_NOT_READY:
      *text = "device not ready";
      break;
    case CUDA_ERROR_LAUNCH_FAILED:
      *text = "unspecified launch failure";
      break;
    case CUDA_ERROR_NOT_SUPPORTED:
      *text = "operation not supported";
      break;
    default:
      *text = "unknown error";
      return result == CUDA_ERROR_UNKNOWN ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr*, std::size_t, unsigned) {
  return not_supported("cuMemAllocManaged", "memory cannot be shared by page faults with a device at another host");
}
EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr*, void*, unsigned) {
  return not_supported("cuMemHostGetDevicePointer", "a device at another host cannot reach this host's memory");
}
EXPORT CUresult cuLaunchHostFunc(CUstream, void (*)(void*), void*) {
  return not_supported("cuLaunchHostFunc", "channels call nothing back; wait for an event in a thread of yours");
}
EXPORT CUresult cuEventElapsedTime(float*, CUevent, CUevent) {
  return not_supported("cuEventElapsedTime", "marks have no times; measure from call to synchronize");
}
EXPORT CUresult cuStreamBeginCapture(CUstream, int) {
  return not_supported("cuStreamBeginCapture", "this stack has no graphs; ask again and again");
}
