#include "tests/gpu/real_device.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "gpu/driver/driver.h"
#include "tests/gpu/kernel_parameters.h"

namespace fairlead::gpu::testing {
namespace {

constexpr char kCode[] = "FAIRLEAD_TEST_CUDA";
// What stands in the code for the address of the signals.
constexpr char kPlace[] = "81985529216486895";

void must(CuResult result, const char* call) {
  if (result != CuResult::kSuccess) throw std::runtime_error(fmt::format("{}: {}", call, static_cast<int>(result)));
}

const std::shared_ptr<Driver>& driver() {
  static const std::shared_ptr<Driver> opened = [] {
    Result<std::shared_ptr<Driver>> made = process_driver();
    if (!made) throw std::runtime_error(made.error().to_string());
    return *std::move(made);
  }();
  return opened;
}

CuContext context(int ordinal = 0) {
  const Result<CuContext> primary = driver()->primary(ordinal);
  if (!primary) throw std::runtime_error(primary.error().to_string());
  return *primary;
}

/// Of the system's library, which this process has open.
template <typename Call>
Call symbol(const char* name) {
  void* const found = ::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), name);
  if (found == nullptr) throw std::runtime_error(fmt::format("libcuda.so.1 has no {}", name));
  return reinterpret_cast<Call>(found);
}

}  // namespace

bool on_real_device() { return std::getenv(kCode) != nullptr; }

command::CudaModule real_code(std::span<const command::HostKernel> kernels, const void* signals,
                              const std::string& name) {
  std::ifstream file(std::getenv(kCode));
  std::string text{std::istreambuf_iterator(file), {}};
  const std::size_t place = text.find(kPlace);
  if (place == std::string::npos) {
    throw std::runtime_error(fmt::format("{}={}: not the code of device_kernels.cu", kCode, std::getenv(kCode)));
  }
  text.replace(place, sizeof kPlace - 1, std::to_string(reinterpret_cast<std::uintptr_t>(signals)));
  text += "\n// " + name + "\n";
  const auto bytes = std::as_bytes(std::span(text));
  return {{bytes.begin(), bytes.end()}, functions_of(kernels)};
}

std::shared_ptr<void> let_device_reach(void* memory, std::size_t bytes) {
  constexpr unsigned kPortableMapped = 3;  // CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP
  const ContextScope scope(driver()->api(), context());
  must(scope.entered(), "cuCtxPushCurrent");
  must(symbol<CuResult (*)(void*, std::size_t, unsigned)>("cuMemHostRegister_v2")(memory, bytes, kPortableMapped),
       "cuMemHostRegister");
  return {memory, [](void* registered) {
            const ContextScope last(driver()->api(), context());
            static_cast<void>(symbol<CuResult (*)(void*)>("cuMemHostUnregister")(registered));
          }};
}

RealBytes::RealBytes(std::size_t bytes, int ordinal) : bytes_(bytes), ordinal_(ordinal) {
  const ContextScope scope(driver()->api(), context(ordinal));
  must(driver()->api().memory_alloc(&at_, bytes), "cuMemAlloc");
}

RealBytes::~RealBytes() {
  const ContextScope scope(driver()->api(), context(ordinal_));
  static_cast<void>(driver()->api().memory_free(at_));
}

std::span<std::byte> RealBytes::bytes() const noexcept {
  return {reinterpret_cast<std::byte*>(at_), bytes_};  // NOLINT(performance-no-int-to-ptr): so the engine takes it
}

void put(std::span<std::byte> device, std::span<const std::byte> from) {
  const ContextScope scope(driver()->api(), context());
  must(driver()->api().copy_to_device(reinterpret_cast<CuAddress>(device.data()), from.data(), from.size(), nullptr),
       "cuMemcpyHtoDAsync");
  must(driver()->api().context_synchronize(), "cuCtxSynchronize");
}

std::vector<std::byte> get(std::span<const std::byte> device) {
  std::vector<std::byte> bytes(device.size());
  const ContextScope scope(driver()->api(), context());
  must(driver()->api().copy_to_host(bytes.data(), reinterpret_cast<CuAddress>(device.data()), bytes.size(), nullptr),
       "cuMemcpyDtoHAsync");
  must(driver()->api().context_synchronize(), "cuCtxSynchronize");
  return bytes;
}

}  // namespace fairlead::gpu::testing
