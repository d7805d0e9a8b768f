#include "gpu/driver/driver.h"

#include <fmt/format.h>

#include <utility>

#include "gpu/driver/system_driver.h"

namespace fairlead::gpu {
namespace {

constexpr int kOldest = 11000;

/// No allocation, or none that CUDA knows.
bool is_unknown(CuResult result) noexcept { return result == CuResult::kInvalidValue; }

}  // namespace

// ---- what there is -------------------------------------------------------------------------------------------------

Result<std::shared_ptr<Driver>> Driver::open(const DriverApi& api) {
  std::shared_ptr<Driver> driver(new Driver(api));
  if (Status asked = driver->ask(); !asked.ok()) return asked;
  return driver;
}

Status Driver::ask() {
  const CuResult begun = api_.init(0);
  int count = 0;
  const CuResult counted = begun == CuResult::kSuccess ? api_.device_count(&count) : begun;
  if (counted == CuResult::kNoDevice || (counted == CuResult::kSuccess && count == 0)) {
    return {Code::kNotFound,
            fmt::format("{} is there, but no CUDA device; is one in this machine, does the container have it, and is "
                        "CUDA_VISIBLE_DEVICES right?",
                        api_.source)};
  }
  if (Status fine = check(counted, "cuInit"); !fine.ok()) return fine;
  if (Status fine = check(api_.driver_version(&version_), "cuDriverGetVersion"); !fine.ok()) return fine;
  if (version_ < kOldest) {
    return {Code::kUnimplemented, fmt::format("{} is of CUDA {}.{}; install a driver for CUDA {}.0 or later",
                                              api_.source, version_ / 1000, version_ % 1000 / 10, kOldest / 1000)};
  }
  for (int i = 0; i < count; ++i) {
    CuDevice device = 0;
    if (Status fine = check(api_.device_get(&device, i), "cuDeviceGet"); !fine.ok()) return fine;
    char name[128] = "";
    if (Status fine = check(api_.device_name(name, sizeof name - 1, device), "cuDeviceGetName"); !fine.ok()) {
      return fine;
    }
    const auto has = [&](int attribute) {  // one that a driver does not know it does not have
      int value = 0;
      return api_.device_attribute(&value, attribute, device) == CuResult::kSuccess && value != 0;
    };
    devices_.push_back({name, api_.export_range != nullptr && has(kAttributeDmaBuf), has(kAttributeGpuDirectRdma)});
  }
  contexts_.resize(devices_.size());
  return {};
}

Driver::~Driver() {
  for (std::size_t i = 0; i < contexts_.size(); ++i) {
    CuDevice device = 0;
    if (contexts_[i] != nullptr && api_.device_get(&device, static_cast<int>(i)) == CuResult::kSuccess) {
      static_cast<void>(api_.primary_release(device));  // nothing is to be done about it
    }
  }
}

Status Driver::check(CuResult result, std::string_view call) const {
  if (result == CuResult::kSuccess) return {};
  const char* name = nullptr;
  if (api_.error_name(result, &name) != CuResult::kSuccess || name == nullptr) name = "an unknown error";
  return {result == CuResult::kOutOfMemory ? Code::kResourceExhausted : Code::kUnavailable,
          fmt::format("{}: {} ({})", call, name, static_cast<int>(result))};
}

Result<CuContext> Driver::primary(int ordinal) {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices_.size()) {
    return {Code::kInvalidArgument,
            fmt::format("there is no CUDA device {}; legal: 0 to {}", ordinal, devices_.size() - 1)};
  }
  const std::lock_guard lock(mutex_);
  CuContext& context = contexts_[static_cast<std::size_t>(ordinal)];
  if (context != nullptr) return context;
  CuDevice device = 0;
  if (Status fine = check(api_.device_get(&device, ordinal), "cuDeviceGet"); !fine.ok()) return fine;
  CuContext retained = nullptr;
  Status fine = check(api_.primary_retain(&retained, device), "cuDevicePrimaryCtxRetain");
  if (!fine.ok()) return fine;
  return context = retained;
}

// ---- what a pointer points to --------------------------------------------------------------------------------------

Result<MemoryFacts> Driver::facts_of(std::span<std::byte> bytes) {
  const auto address = reinterpret_cast<CuAddress>(bytes.data());
  MemoryFacts facts{.range = bytes};
  unsigned type = 0;
  const CuResult known = api_.pointer_attribute(&type, kPointerMemoryType, address);
  if (is_unknown(known)) return facts;
  if (Status fine = check(known, "cuPointerGetAttribute"); !fine.ok()) return fine;
  unsigned managed = 0;
  if (api_.pointer_attribute(&managed, kPointerIsManaged, address) == CuResult::kSuccess && managed != 0) {
    facts.kind = MemoryFacts::Kind::kManaged;
    return facts;
  }
  if (type != kMemoryDevice) {
    facts.kind = MemoryFacts::Kind::kPinned;
    return facts;
  }
  facts.kind = MemoryFacts::Kind::kDevice;
  if (Status fine = check(api_.pointer_attribute(&facts.ordinal, kPointerOrdinal, address), "cuPointerGetAttribute");
      !fine.ok()) {
    return fine;
  }
  // Memory of a pool, or mapped from handles, belongs to no context.
  if (api_.pointer_attribute(&facts.context, kPointerContext, address) != CuResult::kSuccess) facts.context = nullptr;
  CuAddress base = 0;
  std::size_t size = 0;
  const Result<CuContext> context = facts.context != nullptr ? facts.context : primary(facts.ordinal);
  if (!context) return context.error();
  const ContextScope scope(api_, *context);
  if (Status fine = check(scope.entered(), "cuCtxPushCurrent"); !fine.ok()) return fine;
  if (Status fine = check(api_.address_range(&base, &size, address), "cuMemGetAddressRange"); !fine.ok()) return fine;
  // Of memory that is mapped from several handles it is only the one that the first byte is in. What is beyond is the
  // caller's word, as long as it is device memory of the same device.
  CuAddress end = base + size;
  while (end < address + bytes.size()) {
    int ordinal = -1;
    if (api_.pointer_attribute(&ordinal, kPointerOrdinal, end) != CuResult::kSuccess || ordinal != facts.ordinal) {
      return {Code::kInvalidArgument,
              fmt::format("{} bytes at {} of CUDA device {} leave the memory there after {} bytes; give what was "
                          "allocated",
                          bytes.size(), static_cast<void*>(bytes.data()), facts.ordinal, end - address)};
    }
    CuAddress next = 0;
    if (Status fine = check(api_.address_range(&next, &size, end), "cuMemGetAddressRange"); !fine.ok()) return fine;
    if (next + size <= end) return {Code::kUnavailable, "cuMemGetAddressRange gave a range that ends before its start"};
    end = next + size;
  }
  facts.range = {reinterpret_cast<std::byte*>(base), end - base};  // NOLINT(performance-no-int-to-ptr)
  return facts;
}

Status Driver::synchronize_copies(const MemoryFacts& memory) {
  const unsigned on = 1;
  const Result<CuContext> context = memory.context != nullptr ? memory.context : primary(memory.ordinal);
  if (!context) return context.error();
  const ContextScope scope(api_, *context);
  if (Status fine = check(scope.entered(), "cuCtxPushCurrent"); !fine.ok()) return fine;
  // Of each allocation in the range by itself.
  auto at = reinterpret_cast<CuAddress>(memory.range.data());
  const CuAddress last = at + memory.range.size();
  while (at < last) {
    if (Status fine = check(api_.set_pointer_attribute(&on, kPointerSyncMemops, at), "cuPointerSetAttribute");
        !fine.ok()) {
      return fine;
    }
    CuAddress base = 0;
    std::size_t size = 0;
    if (Status fine = check(api_.address_range(&base, &size, at), "cuMemGetAddressRange"); !fine.ok()) return fine;
    if (base + size <= at) break;
    at = base + size;
  }
  return {};
}

// ---- the process's -------------------------------------------------------------------------------------------------

namespace {

std::mutex g_replacing;
std::shared_ptr<Driver> g_replacement;  // guarded by it

Result<std::shared_ptr<Driver>> open_system_driver() {
  static DriverApi api;
  if (Status loaded = load_driver("libcuda.so.1", api); !loaded.ok()) return loaded;
  return Driver::open(api);
}

}  // namespace

Result<std::shared_ptr<Driver>> process_driver() {
  {
    const std::lock_guard lock(g_replacing);
    if (g_replacement != nullptr) return g_replacement;
  }
  // Never destroyed: CUDA may be gone before static objects are.
  static const auto* const system = new Result<std::shared_ptr<Driver>>(open_system_driver());
  return *system;
}

void replace_process_driver(std::shared_ptr<Driver> driver) {
  const std::lock_guard lock(g_replacing);
  g_replacement = std::move(driver);
}

// ---- contexts ------------------------------------------------------------------------------------------------------

ContextScope::ContextScope(const DriverApi& api, CuContext context) noexcept
    : api_(api), entered_(api.context_push(context)) {
  if (entered_ == CuResult::kSuccess && api_.exchange_capture_mode != nullptr) {
    static_cast<void>(api_.exchange_capture_mode(&capture_mode_));
  }
}

ContextScope::~ContextScope() {
  if (entered_ != CuResult::kSuccess) return;
  if (api_.exchange_capture_mode != nullptr) static_cast<void>(api_.exchange_capture_mode(&capture_mode_));
  CuContext last = nullptr;
  static_cast<void>(api_.context_pop(&last));
}

}  // namespace fairlead::gpu
