#include "tests/gpu/cuda_double.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "tests/gpu/handle_numbers.h"

namespace fairlead::gpu::testing {
namespace {

CudaDouble* g_double = nullptr;
thread_local std::vector<CuContext> t_contexts;
thread_local int t_capture_mode = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL, as it is unless somebody says otherwise

CuContext context_of(int ordinal) { return handle_of<CuContext>(static_cast<std::uint64_t>(0x100 + ordinal)); }

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

/// What is to happen whatever else does.
bool undoes(std::string_view call) { return call == "context_pop" || call == "exchange_capture_mode"; }
bool is_sticky(CuResult result) { return result == CuResult::kIllegalAddress || result == CuResult::kLaunchFailed; }

}  // namespace

// ---- the table -----------------------------------------------------------------------------------------------------

struct CudaDouble::Calls {
  static CudaDouble& self() { return CudaDouble::self(); }
  static CuResult enter(const char* call, bool needs_context = false) { return self().enter(call, needs_context); }

  static CuResult init(unsigned) { return enter("init"); }
  static CuResult driver_version(int* version) {
    *version = self().features_.version;
    return enter("driver_version");
  }
  static CuResult device_count(int* count) {
    *count = self().features_.devices;
    return enter("device_count");
  }
  static CuResult device_get(CuDevice* device, int ordinal) {
    *device = ordinal;
    return enter("device_get");
  }
  static CuResult device_name(char* name, int bytes, CuDevice device) {
    fmt::format_to_n(name, static_cast<std::size_t>(bytes) - 1, "Double {}", device).out[0] = '\0';
    return enter("device_name");
  }
  static CuResult device_attribute(int* value, int attribute, CuDevice) {
    const CudaDouble::Features& features = self().features_;
    *value = attribute == kAttributeDmaBuf          ? features.dma_buf
             : attribute == kAttributeGpuDirectRdma ? features.gpu_direct
             : attribute == kAttributeMapping       ? features.mapping
             : attribute == kAttributeBlockThreads  ? 1024
             : attribute == kAttributeSharedBytes   ? 48 << 10
             : attribute == kAttributeGrid[0]       ? 0x7fff'ffff
                                                    : 0xffff;
    return enter("device_attribute");
  }
  static CuResult error_name(CuResult result, const char** name) {
    *name = result == CuResult::kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == CuResult::kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == CuResult::kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT"
            : result == CuResult::kInvalidValue   ? "CUDA_ERROR_INVALID_VALUE"
            : result == CuResult::kLaunchFailed   ? "CUDA_ERROR_LAUNCH_FAILED"
            : result == CuResult::kNotFound       ? "CUDA_ERROR_NOT_FOUND"
                                                  : "CUDA_ERROR_UNKNOWN";
    return CuResult::kSuccess;
  }

  static CuResult primary_retain(CuContext* context, CuDevice device) {
    const CuResult result = enter("primary_retain");
    if (result != CuResult::kSuccess) return result;
    *context = context_of(device);
    const std::lock_guard lock(self().mutex_);
    ++self().retained_;
    return result;
  }
  static CuResult primary_release(CuDevice) {
    const CuResult result = enter("primary_release");
    const std::lock_guard lock(self().mutex_);
    if (self().retained_-- == 0) self().violations_.push_back("a primary context is released that nobody retained");
    return result;
  }
  static CuResult context_push(CuContext context) {
    const CuResult result = enter("context_push");
    if (result == CuResult::kSuccess) t_contexts.push_back(context);
    return result;
  }
  static CuResult context_pop(CuContext* context) {
    const CuResult result = enter("context_pop", true);
    if (result != CuResult::kSuccess) return result;
    *context = t_contexts.back();
    t_contexts.pop_back();
    return result;
  }
  static CuResult exchange_capture_mode(int* mode) {
    std::swap(*mode, t_capture_mode);
    return enter("exchange_capture_mode");
  }

  static CuResult pointer_attribute(void* value, int attribute, CuAddress pointer) {
    const CuResult result = enter("pointer_attribute");
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto pinned = std::ranges::find_if(self().pinned_, [pointer](const auto& each) {
      const auto begin = reinterpret_cast<CuAddress>(each.first);
      return pointer >= begin && pointer < begin + each.second;
    });
    const auto at = self().allocation_at(pointer);
    if (pinned == self().pinned_.end() && at == self().allocations_.end()) return CuResult::kInvalidValue;
    const bool device = at != self().allocations_.end();
    switch (attribute) {
      case kPointerMemoryType:
        *static_cast<unsigned*>(value) = device ? kMemoryDevice : kMemoryHost;
        return result;
      case kPointerIsManaged:
        *static_cast<unsigned*>(value) = device && at->second.managed ? 1 : 0;
        return result;
      case kPointerOrdinal:
        *static_cast<int*>(value) = device ? at->second.ordinal : 0;
        return result;
      case kPointerContext:
        if (self().features_.no_context_of_memory || !device) return CuResult::kInvalidValue;
        *static_cast<CuContext*>(value) = context_of(at->second.ordinal);
        return result;
      default:
        return CuResult::kInvalidValue;
    }
  }
  static CuResult set_pointer_attribute(const void* value, int attribute, CuAddress pointer) {
    const CuResult result = enter("set_pointer_attribute", true);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto at = self().allocation_at(pointer);
    if (attribute != kPointerSyncMemops || at == self().allocations_.end()) return CuResult::kInvalidValue;
    at->second.synchronizes = *static_cast<const unsigned*>(value) != 0;
    return result;
  }
  static CuResult address_range(CuAddress* base, std::size_t* bytes, CuAddress pointer) {
    const CuResult result = enter("address_range", true);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto at = self().allocation_at(pointer);
    if (at == self().allocations_.end()) return CuResult::kInvalidValue;
    *base = at->first;
    *bytes = at->second.bytes;
    return result;
  }
  static CuResult export_range(void* handle, CuAddress address, std::size_t bytes, int type, unsigned long long) {
    const CuResult result = enter("export_range", true);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const CudaDouble::Features& features = self().features_;
    if (type != kRangeDmaBufFd || address % CudaDouble::kPage != 0 || bytes % CudaDouble::kPage != 0 || bytes == 0) {
      return CuResult::kInvalidValue;
    }
    if (self().shadow_of(address, bytes) == nullptr) return CuResult::kInvalidValue;
    if (features.largest_export != 0 && bytes > features.largest_export) return CuResult::kOutOfMemory;
    self().exports_.push_back({address, bytes});
    if (!features.null_exports) *static_cast<int*>(handle) = ::memfd_create("dma_buf", MFD_CLOEXEC);
    return result;
  }

  static CuResult host_alloc(void** memory, std::size_t bytes, unsigned) {
    const CuResult result = enter("host_alloc", true);
    if (result != CuResult::kSuccess) return result;
    void* const got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return CuResult::kOutOfMemory;
    *memory = got;
    const std::lock_guard lock(self().mutex_);
    self().pinned_[got] = bytes;
    self().own(number_of(got));
    return result;
  }
  static CuResult host_free(void* memory) {
    const CuResult result = enter("host_free", true);
    const std::lock_guard lock(self().mutex_);
    const auto at = self().pinned_.find(memory);
    if (at == self().pinned_.end()) {
      self().violations_.push_back("pinned memory is freed that is none");
      return CuResult::kInvalidValue;
    }
    ::munmap(memory, at->second);
    self().owners_.erase(number_of(memory));
    self().pinned_.erase(at);
    return result;
  }

  static CuResult stream_create(CuStream* stream, unsigned) {
    const CuResult result = enter("stream_create", true);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    self().streams_[++self().next_] = 0;
    self().own(self().next_);
    *stream = handle_of<CuStream>(self().next_);
    return result;
  }
  static CuResult stream_create_priority(CuStream* stream, unsigned flags, int priority) {
    const CuResult result = stream_create(stream, flags);
    const std::lock_guard lock(self().mutex_);
    if (result == CuResult::kSuccess) self().priorities_.push_back(priority);
    return result;
  }
  static CuResult stream_priorities(int* least, int* greatest) {
    *least = 0;
    *greatest = self().features_.greatest_priority;
    return enter("stream_priorities", true);
  }
  static CuResult stream_destroy(CuStream stream) {
    const CuResult result = enter("stream_destroy", true);
    const std::lock_guard lock(self().mutex_);
    const auto at = self().streams_.find(number_of(stream));
    if (at == self().streams_.end() || at->second != 0) self().violations_.push_back("a busy stream is destroyed");
    self().forbid_capture("stream_destroy", stream);
    self().streams_.erase(number_of(stream));
    self().owners_.erase(number_of(stream));
    return result;
  }
  static CuResult stream_synchronize(CuStream stream) {
    const CuResult result = enter("stream_synchronize", true);
    std::unique_lock lock(self().mutex_);
    self().changed_.wait(lock, [stream] { return self().streams_[number_of(stream)] == 0; });
    return self().lost_[number_of(stream)] ? CuResult::kIllegalAddress : result;
  }
  static CuResult event_create(CuEvent* event, unsigned) {
    const CuResult result = enter("event_create", true);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    self().events_[++self().next_] = CuResult::kSuccess;
    self().own(self().next_);
    *event = handle_of<CuEvent>(self().next_);
    return result;
  }
  static CuResult event_destroy(CuEvent event) {
    const CuResult result = enter("event_destroy", true);
    const std::lock_guard lock(self().mutex_);
    self().owners_.erase(number_of(event));
    self().tickets_.erase(number_of(event));
    if (self().events_.erase(number_of(event)) == 0) self().violations_.push_back("an event is destroyed twice");
    return result;
  }
  static CuResult event_record(CuEvent event, CuStream stream) {
    const CuResult result = enter("event_record", true);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    self().forbid_capture("event_record", stream);
    self().events_[number_of(event)] = CuResult::kNotReady;
    ++self().streams_[number_of(stream)];
    const std::uint64_t ticket = ++self().next_;
    self().tickets_[number_of(event)] = ticket;
    self().unredeemed_.insert(ticket);
    self().queue_.push_back(
        {.stream = stream, .event = number_of(event), .ticket = ticket, .context = t_contexts.back()});
    self().changed_.notify_all();
    return result;
  }
  static CuResult event_query(CuEvent event) {
    const CuResult result = enter("event_query", true);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    // The device may have come to a fault, and past this event, since the call began.
    const auto context = self().contexts_.find(t_contexts.back());
    const bool is_lost = context != self().contexts_.end() && context->second.lost != CuResult::kSuccess;
    return is_lost ? context->second.lost : self().events_[number_of(event)];
  }
  static CuResult copy(bool to_device, CuAddress device, void* host, std::size_t bytes, CuStream stream) {
    const CuResult result = enter(to_device ? "copy_to_device" : "copy_to_host", true);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    if (self().shadow_of(device, bytes) == nullptr) {
      self().violations_.push_back(
          fmt::format("a copy of {} bytes at {:#x}, which is no device memory", bytes, device));
      return CuResult::kInvalidValue;
    }
    const auto pinned = self().pinned_.upper_bound(host);
    const bool is_pinned = pinned != self().pinned_.begin() &&
                           static_cast<std::byte*>(host) + bytes <=
                               static_cast<std::byte*>(std::prev(pinned)->first) + std::prev(pinned)->second;
    if (!is_pinned) self().violations_.push_back("a copy of host memory that is not pinned, which would block");
    self().forbid_capture("a copy to or from the host", stream);
    const bool broken = self().break_armed_ && self().break_in_-- == 0;
    if (broken) self().break_armed_ = false;
    ++self().streams_[number_of(stream)];
    self().queue_.push_back({.stream = stream,
                             .context = t_contexts.back(),
                             .to_device = to_device,
                             .device = device,
                             .host = static_cast<std::byte*>(host),
                             .bytes = bytes,
                             .broken = broken});
    self().changed_.notify_all();
    return result;
  }
  static CuResult copy_to_device(CuAddress to, const void* from, std::size_t bytes, CuStream stream) {
    return copy(true, to, const_cast<void*>(from), bytes, stream);
  }
  static CuResult copy_to_host(void* to, CuAddress from, std::size_t bytes, CuStream stream) {
    return copy(false, from, to, bytes, stream);
  }
};

const DriverApi& CudaDouble::api() {
  static const DriverApi table = [] {
    DriverApi calls{};
    calls.source = "the double of CUDA";
    calls.init = Calls::init;
    calls.driver_version = Calls::driver_version;
    calls.device_count = Calls::device_count;
    calls.device_get = Calls::device_get;
    calls.device_name = Calls::device_name;
    calls.device_attribute = Calls::device_attribute;
    calls.error_name = Calls::error_name;
    calls.primary_retain = Calls::primary_retain;
    calls.primary_release = Calls::primary_release;
    calls.context_push = Calls::context_push;
    calls.context_pop = Calls::context_pop;
    calls.pointer_attribute = Calls::pointer_attribute;
    calls.set_pointer_attribute = Calls::set_pointer_attribute;
    calls.address_range = Calls::address_range;
    calls.host_alloc = Calls::host_alloc;
    calls.host_free = Calls::host_free;
    calls.stream_create = Calls::stream_create;
    calls.stream_create_priority = Calls::stream_create_priority;
    calls.stream_priorities = Calls::stream_priorities;
    calls.stream_destroy = Calls::stream_destroy;
    calls.stream_synchronize = Calls::stream_synchronize;
    calls.event_create = Calls::event_create;
    calls.event_destroy = Calls::event_destroy;
    calls.event_record = Calls::event_record;
    calls.event_query = Calls::event_query;
    calls.copy_to_device = Calls::copy_to_device;
    calls.copy_to_host = Calls::copy_to_host;
    calls.export_range = Calls::export_range;
    calls.exchange_capture_mode = Calls::exchange_capture_mode;
    add_work_calls(calls);
    add_map_calls(calls);
    return calls;
  }();
  return table;
}

CuResult CudaDouble::enter(const char* call, bool needs_context) {
  const std::lock_guard lock(mutex_);
  ++calls_[call];
  if (needs_context && t_contexts.empty()) {
    violations_.push_back(fmt::format("{} without a current context", call));
    return CuResult::kInvalidContext;
  }
  if (needs_context && call != std::string_view("context_pop") && t_capture_mode != kCaptureRelaxed) {
    violations_.push_back(fmt::format("{} would end a stream capture of the application's", call));
  }
  const auto context = needs_context ? contexts_.find(t_contexts.back()) : contexts_.end();
  if (!undoes(call)) {
    ++counted_;
    if (fail_in_ != 0 && (fail_name_.empty() || fail_name_ == call) && --fail_in_ == 0) {
      failed_call_ = call;
      failed_at_ = counted_;
      if (context != contexts_.end() && is_sticky(fail_with_)) lose(context->first, fail_with_);
      return fail_with_;
    }
    if (context != contexts_.end() && context->second.lost != CuResult::kSuccess) return context->second.lost;
  }
  const auto fault = faults_.find(call);
  if (fault == faults_.end() || fault->second.skip-- != 0) return CuResult::kSuccess;
  const CuResult result = fault->second.result;
  faults_.erase(fault);
  return result;
}

// ---- life ----------------------------------------------------------------------------------------------------------

CudaDouble::CudaDouble(Features features) : features_(features), random_(features.shuffle) {
  if (g_double != nullptr) throw std::logic_error("one double at a time");
  g_double = this;
  worker_ = std::thread([this] { work(); });
}

CudaDouble::~CudaDouble() {
  replace_process_driver(nullptr);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    held_ = false;
  }
  changed_.notify_all();
  worker_.join();
  for (const Mapping& each : mappings_) {
    ::munmap(each.device, each.bytes);
    ::munmap(each.shadow, each.bytes);
  }
  for (const auto& [memory, bytes] : pinned_) ::munmap(memory, bytes);
  g_double = nullptr;
}

std::shared_ptr<Driver> CudaDouble::install() {
  Result<std::shared_ptr<Driver>> driver = Driver::open(api());
  if (!driver) throw std::runtime_error(driver.error().to_string());
  replace_process_driver(*driver);
  return *driver;
}

/// The device's: one piece of work after the other.
void CudaDouble::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    auto chosen = queue_.end();
    changed_.wait(lock, [this, &chosen] { return (chosen = choose()) != queue_.end() || stopping_; });
    if (chosen == queue_.end()) return;
    const Work next = std::move(*chosen);
    queue_.erase(chosen);
    const std::uint64_t stream = number_of(next.stream);
    const auto context = contexts_.find(next.context);
    const bool is_lost = context != contexts_.end() && context->second.lost != CuResult::kSuccess;
    if (next.event != 0) {
      // Recorded anew meanwhile, it speaks of that.
      if (const auto last = tickets_.find(next.event); last != tickets_.end() && last->second == next.ticket) {
        events_[next.event] = lost_[stream] ? CuResult::kIllegalAddress : CuResult::kSuccess;
      }
      unredeemed_.erase(next.ticket);
    } else if (is_lost || next.awaits != 0) {
      // Nothing.
    } else if (next.run) {
      lock.unlock();
      const CuResult result = next.run();
      lock.lock();
      if (result != CuResult::kSuccess) lose(next.context, result);
    } else if (next.broken) {
      lost_[stream] = true;
    } else if (std::byte* const at = shadow_of(next.device, next.bytes)) {
      std::memcpy(next.to_device ? at : next.host, next.to_device ? next.host : at, next.bytes);
      ++copies_done_;
    }
    --streams_[stream];
    changed_.notify_all();
  }
}

// ---- memory --------------------------------------------------------------------------------------------------------

CudaDouble::Mapping& CudaDouble::map(std::size_t bytes, int ordinal, bool managed) {
  const std::size_t whole = rounded(bytes, kBlock);
  // Aligned as a device's blocks are.
  auto* const reserved = static_cast<std::byte*>(
      ::mmap(nullptr, whole + kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (reserved == static_cast<void*>(MAP_FAILED)) throw std::runtime_error("no addresses");
  std::byte* const at = reserved + (rounded(reinterpret_cast<std::uintptr_t>(reserved), kBlock) -
                                    reinterpret_cast<std::uintptr_t>(reserved));
  if (at != reserved) ::munmap(reserved, static_cast<std::size_t>(at - reserved));
  if (at + whole != reserved + whole + kBlock) {
    ::munmap(at + whole, static_cast<std::size_t>(reserved + kBlock - at));
  }
  return map_at(at, whole, ordinal, managed);
}

CudaDouble::Mapping& CudaDouble::map_at(std::byte* at, std::size_t whole, int ordinal, bool managed) {
  const int fd = ::memfd_create("device", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(whole)) != 0) throw std::runtime_error("no memfd");
  void* const device = ::mmap(at, whole, managed ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0);
  void* const shadow = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (device == MAP_FAILED || shadow == MAP_FAILED) throw std::runtime_error("no memory for a device");
  return mappings_.emplace_back(
      Mapping{static_cast<std::byte*>(device), static_cast<std::byte*>(shadow), whole, ordinal, managed});
}

std::span<std::byte> CudaDouble::allocate(std::size_t bytes, int ordinal) {
  const std::lock_guard lock(mutex_);
  Mapping& made = map(bytes, ordinal, false);
  allocations_[reinterpret_cast<CuAddress>(made.device)] = {.bytes = bytes, .ordinal = ordinal};
  return {made.device, bytes};
}

std::vector<std::span<std::byte>> CudaDouble::allocate_together(std::span<const std::size_t> sizes) {
  const std::lock_guard lock(mutex_);
  constexpr std::size_t kGrain = 256;
  std::size_t whole = 0;
  for (const std::size_t size : sizes) whole += rounded(size, kGrain);
  Mapping& made = map(whole, 0, false);
  std::vector<std::span<std::byte>> all;
  std::byte* at = made.device;
  for (const std::size_t size : sizes) {
    allocations_[reinterpret_cast<CuAddress>(at)] = {.bytes = size};
    all.emplace_back(at, size);
    at += rounded(size, kGrain);
  }
  return all;
}

std::span<std::byte> CudaDouble::map_handles(std::size_t handles, std::size_t bytes_each) {
  const std::lock_guard lock(mutex_);
  Mapping& made = map(handles * bytes_each, 0, false);
  for (std::size_t i = 0; i < handles; ++i) {
    allocations_[reinterpret_cast<CuAddress>(made.device + i * bytes_each)] = {.bytes = bytes_each};
  }
  return {made.device, handles * bytes_each};
}

std::span<std::byte> CudaDouble::allocate_managed(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Mapping& made = map(bytes, 0, true);
  allocations_[reinterpret_cast<CuAddress>(made.device)] = {.bytes = bytes, .managed = true};
  return {made.device, bytes};
}

std::span<std::byte> CudaDouble::allocate_pinned(std::size_t bytes) {
  const ContextScope scope(api(), context_of(0));
  void* memory = nullptr;
  if (api().host_alloc(&memory, bytes, 0) != CuResult::kSuccess) throw std::runtime_error("no pinned memory");
  return {static_cast<std::byte*>(memory), bytes};
}

std::map<CuAddress, CudaDouble::Allocation>::iterator CudaDouble::allocation_at(CuAddress address) {
  auto at = allocations_.upper_bound(address);
  if (at == allocations_.begin()) return allocations_.end();
  --at;
  return address < at->first + at->second.bytes ? at : allocations_.end();
}

std::byte* CudaDouble::shadow_of(CuAddress address, std::size_t bytes) {
  for (const Mapping& each : mappings_) {
    const auto begin = reinterpret_cast<CuAddress>(each.device);
    if (address >= begin && bytes <= each.bytes && address - begin <= each.bytes - bytes) {
      return each.shadow + (address - begin);
    }
  }
  return nullptr;
}

std::span<std::byte> CudaDouble::shadow(std::span<std::byte> device) {
  const std::lock_guard lock(mutex_);
  return {shadow_of(reinterpret_cast<CuAddress>(device.data()), device.size()), device.size()};
}

bool CudaDouble::synchronizes(std::span<std::byte> device) {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<CuAddress>(device.data());
  return std::ranges::all_of(allocations_, [&](const auto& each) {
    const bool apart = each.first + each.second.bytes <= begin || each.first >= begin + device.size();
    return apart || each.second.synchronizes;
  });
}

// ---- faults, and what was seen -------------------------------------------------------------------------------------

void CudaDouble::fail_next(const std::string& call, CuResult result, std::size_t skip) {
  const std::lock_guard lock(mutex_);
  faults_[call] = {result, skip};
}

void CudaDouble::break_copy(std::size_t skip) {
  const std::lock_guard lock(mutex_);
  break_in_ = skip;
  break_armed_ = true;
}

void CudaDouble::hold_copies() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void CudaDouble::let_copies_go() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

bool CudaDouble::wait_for_copies(std::size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(60), [this, count] {
    return static_cast<std::size_t>(std::ranges::count_if(
               queue_, [](const Work& each) { return each.event == 0 && each.awaits == 0 && !each.run; })) >= count;
  });
}

std::size_t CudaDouble::calls(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto at = calls_.find(name);
  return at != calls_.end() ? at->second : 0;
}

std::vector<std::string> CudaDouble::names_counted() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, count] : calls_) {
    if (!undoes(name)) names.push_back(name);
  }
  return names;
}

std::size_t CudaDouble::copies_done() const {
  const std::lock_guard lock(mutex_);
  return copies_done_;
}

std::vector<std::string> CudaDouble::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

std::size_t CudaDouble::live_objects() const {
  const std::lock_guard lock(mutex_);
  return retained_ + contexts_.size() + given_.size() + reserved_.size() + memories_.size() + modules_.size() +
         graphs_.size() + execs_.size() + pinned_.size() + streams_.size() + events_.size();
}

std::vector<CudaDouble::Export> CudaDouble::exports() const {
  const std::lock_guard lock(mutex_);
  return exports_;
}

std::vector<int> CudaDouble::priorities() const {
  const std::lock_guard lock(mutex_);
  return priorities_;
}

std::vector<CuContext> CudaDouble::context_stack() { return t_contexts; }
CudaDouble& CudaDouble::self() { return *g_double; }
std::vector<CuContext>& CudaDouble::stack() { return t_contexts; }

CuContext CudaDouble::foreign_context() const noexcept { return context_of(100); }

}  // namespace fairlead::gpu::testing
