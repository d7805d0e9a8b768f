// Replays a trace at a device, and says where the time went.
//
// Between calls the program's gaps are spent on this core. What is copied is a pattern, and what came back is compared
// with it. Threads: one, the caller's, and what a device has of its own.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/trace/trace.h"
#include "fairlead/command_service.h"
#include "fairlead/engine.h"
#include "fairlead/status.h"

namespace fairlead::bench {

/// What a trace's calls are made at. Errors: the first thing that went wrong, from there on.
class TraceDevice {
 public:
  virtual ~TraceDevice() = default;
  /// Makes a call, and does not wait for the device. Of synchronize and blocking calls: replay() waits.
  virtual Status call(const TraceRecord& record) = 0;
  /// Waits until the device is past all calls of that stream, and what they copy out is here.
  virtual Status wait(std::uint8_t stream) = 0;
  /// kDataLoss if what the calls since the last clear() copied out is not what is at the device.
  [[nodiscard]] virtual Status check() const = 0;
  virtual void clear() = 0;
};

/// The memory at this end: what is copied in, and a place for what each stream copies out.
class TraceMemory {
 public:
  explicit TraceMemory(const Trace& trace);
  /// The first bytes of the pattern, at most device_bytes() of any stream.
  [[nodiscard]] std::span<const std::byte> pattern(std::uint64_t bytes) const noexcept;
  [[nodiscard]] std::span<std::byte> result(std::uint8_t stream, std::uint64_t bytes) noexcept;
  /// Of the largest copy of that stream; 0: it has none, and is not used or needs no memory.
  [[nodiscard]] std::uint64_t device_bytes(std::uint8_t stream) const noexcept { return device_bytes_[stream]; }
  [[nodiscard]] Status check() const;
  void clear() noexcept;

 private:
  std::vector<std::byte> pattern_;
  std::array<std::vector<std::byte>, kMaxTraceStreams> results_;
  std::array<std::uint64_t, kMaxTraceStreams> device_bytes_{};
};

/// The executor in this process, on a thread of its own behind a queue as a driver has one. Destroy it before something
/// else is measured: its thread looks for work until then.
Result<std::unique_ptr<TraceDevice>> make_local_device(const Trace& trace);
/// The executor of a service elsewhere, a channel for each stream. The session is the device's; `engine` outlives it.
struct RemoteDevice {
  std::unique_ptr<TraceDevice> device;
  std::string transport, path;
};
Result<RemoteDevice> make_remote_device(const Trace& trace, Engine& engine, const std::string& address);

struct ReplayTimes {
  std::uint64_t total_ns = 0;                    // from the first gap until everything is complete
  std::array<std::uint64_t, kTraceOps> op_ns{};  // in calls of that kind, waits included
  std::uint64_t end_ns = 0;                      // waiting at the end for what no call waited for
};

/// Once. Checks what came back, outside of the clock.
Result<ReplayTimes> replay(const Trace& trace, TraceDevice& device);

}  // namespace fairlead::bench
