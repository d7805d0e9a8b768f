// A trace: what a program asked of its device, call by call, and how long it computed between the calls.
//
// JSON lines (docs/benchmarks.md, "Traces"). The first is the header,
//   {"fairlead_trace": 1, "name": "...", "made": "how", "device_ns": 5000}
// and each other one a call:
//   {"gap_ns": 6000, "op": "launch", "bytes_out": 96, "bytes_back": 0, "blocking": false, "stream": 0, "device_ns":
//   7000}
// Values. Threads: functions without state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::bench {

enum class TraceOp : std::uint8_t {
  kLaunch,       // anything that occupies the device and is no copy; bytes_out: of its parameters
  kCopyIn,       // bytes_out to the device
  kCopyOut,      // bytes_back from it
  kMark,         // a place in the stream
  kFence,        // the stream waits until stream `on` is past its last mark
  kSynchronize,  // the program waits for the stream
};
inline constexpr std::size_t kTraceOps = 6;
/// "launch", "copy_in", "copy_out", "mark", "fence", "synchronize"
[[nodiscard]] std::string_view name_of(TraceOp op) noexcept;

// Beyond any of these a trace is refused.
inline constexpr std::size_t kMaxTraceFile = std::size_t{256} << 20;            // bytes
inline constexpr std::size_t kMaxTraceLine = 4096;                              // bytes, without the line feed
inline constexpr std::size_t kMaxTraceRecords = 1'000'000;                      //
inline constexpr std::size_t kMaxTraceText = 1024;                              // bytes of the name, and of `made`
inline constexpr std::uint64_t kMaxTraceNs = 10'000'000'000;                    // of a gap, and of a launch
inline constexpr std::uint64_t kMaxTraceTotalNs = 600'000'000'000;              // of all of them together
inline constexpr std::uint64_t kMaxTraceParameters = 4096;                      // bytes of a launch
inline constexpr std::uint64_t kMaxTraceCopy = std::uint64_t{64} << 20;         // bytes of a copy
inline constexpr std::uint64_t kMaxTraceTotalBytes = std::uint64_t{256} << 30;  // of all of them together
inline constexpr std::uint64_t kMaxTraceStreams = 16;                           // they count from 0

struct TraceRecord {
  std::uint64_t gap_ns = 0;  // that the program computes before this call
  std::uint64_t bytes_out = 0, bytes_back = 0;
  std::uint64_t device_ns = 0;  // of a launch: its own, else the header's
  TraceOp op = TraceOp::kLaunch;
  bool blocking = false;  // the program goes on when the device is past it
  std::uint8_t stream = 0;
  std::uint8_t on = 0;  // of a fence
};

struct Trace {
  std::string name, made;
  std::vector<TraceRecord> records;
};

/// What a trace adds up to.
struct TraceTotals {
  struct Op {
    std::uint64_t count = 0, blocking = 0, bytes_out = 0, bytes_back = 0;
  };
  std::array<Op, kTraceOps> ops{};
  std::uint64_t blocking = 0, bytes_out = 0, bytes_back = 0;
  std::uint64_t gap_ns = 0, device_ns = 0;
  std::size_t streams = 0;  // the highest, and 1
};
[[nodiscard]] TraceTotals totals_of(const Trace& trace);

/// `file` is for messages. Errors: kDataLoss, which name the line, the field, its value and what is legal.
Result<Trace> parse_trace(std::string_view text, std::string_view file);
/// Errors: those of the system and of parse_trace().
Result<Trace> read_trace(const std::string& path);

}  // namespace fairlead::bench
