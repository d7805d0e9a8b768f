// The CUDA driver of this process, asked once: its devices, their primary contexts, and what a pointer points to.
//
// Calls need a current context: ContextScope makes one current and gives the thread back the one that it had, so that
// an application's own thread may drive the engine. Ownership: shared; primary contexts are retained as long as the
// Driver lives. Threads: any. Errors name the call, what it answered, and the remedy.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "gpu/driver/driver_api.h"

namespace fairlead::gpu {

/// A device, as it says of itself.
struct DeviceFacts {
  std::string name;
  bool dma_buf = false;     // its memory can be exported as a dma-buf
  bool gpu_direct = false;  // and mapped for other PCIe devices at all
};

/// What a range of addresses is.
struct MemoryFacts {
  enum class Kind : std::uint8_t {
    kHost,  // unknown to CUDA, or pinned by it: host memory either way
    kPinned,
    kDevice,
    kManaged,  // migrates between host and devices
  };
  Kind kind = Kind::kHost;
  int ordinal = 0;              // of a device
  CuContext context = nullptr;  // the one that it was allocated in; null: none in particular
  std::span<std::byte> range;   // the allocation that the bytes are a part of: never less than they are
};

class Driver {
 public:
  /// Errors: kNotFound (no device, with the remedy), kUnimplemented (older than CUDA 11.0), kUnavailable (a call
  /// failed).
  static Result<std::shared_ptr<Driver>> open(const DriverApi& api);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  [[nodiscard]] const DriverApi& api() const noexcept { return api_; }
  /// 12040: CUDA 12.4.
  [[nodiscard]] int version() const noexcept { return version_; }
  [[nodiscard]] const std::vector<DeviceFacts>& devices() const noexcept { return devices_; }
  /// The primary context, which the CUDA runtime uses, too. Errors: kInvalidArgument (no such device), kUnavailable.
  Result<CuContext> primary(int ordinal);
  /// Errors: kInvalidArgument (bytes that leave the allocation), kUnavailable.
  Result<MemoryFacts> facts_of(std::span<std::byte> bytes);
  /// Makes copies that are called synchronous be so for this allocation, also against what a NIC does with it
  /// (GPUDirect RDMA needs that). Errors: kUnavailable.
  Status synchronize_copies(const MemoryFacts& memory);
  /// ok, or what the call answered: "cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY".
  [[nodiscard]] Status check(CuResult result, std::string_view call) const;

 private:
  explicit Driver(const DriverApi& api) : api_(api) {}
  Status ask();

  const DriverApi& api_;
  int version_ = 0;
  std::vector<DeviceFacts> devices_;
  std::mutex mutex_;                 // guards the next
  std::vector<CuContext> contexts_;  // by ordinal; null: not retained yet
};

/// This process's: the system's, opened at the first call. Errors: why there is none, always the same words.
Result<std::shared_ptr<Driver>> process_driver();
/// Tests: what process_driver() gives from now on; null: the system's again.
void replace_process_driver(std::shared_ptr<Driver> driver);

/// A context is current while this lives; afterwards the one that was. What the calling thread's stream captures think
/// of calls in between is turned off: they are not the application's. Not to be moved between threads.
class ContextScope {
 public:
  ContextScope(const DriverApi& api, CuContext context) noexcept;
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  /// kSuccess, or why no call may be made.
  [[nodiscard]] CuResult entered() const noexcept { return entered_; }

 private:
  const DriverApi& api_;
  CuResult entered_;
  int capture_mode_ = kCaptureRelaxed;
};

}  // namespace fairlead::gpu
