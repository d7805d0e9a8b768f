#include "bench/trace/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "bench/trace/busy_executor.h"

namespace fairlead::bench {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t ns_between(Clock::time_point begin, Clock::time_point end) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(end - begin).count());
}

}  // namespace

TraceMemory::TraceMemory(const Trace& trace) {
  std::array<std::uint64_t, kMaxTraceStreams> back{};
  for (const TraceRecord& record : trace.records) {
    if (record.op != TraceOp::kCopyIn && record.op != TraceOp::kCopyOut) continue;
    std::uint64_t& most = device_bytes_[record.stream];
    most = std::max({most, record.bytes_out, record.bytes_back});
    back[record.stream] = std::max(back[record.stream], record.bytes_back);
  }
  pattern_.resize(*std::ranges::max_element(device_bytes_));
  for (std::size_t i = 0; i < pattern_.size(); ++i) pattern_[i] = static_cast<std::byte>((i * 2654435761U) >> 13 | 1);
  for (std::size_t stream = 0; stream < kMaxTraceStreams; ++stream) results_[stream].resize(back[stream]);
}

std::span<const std::byte> TraceMemory::pattern(std::uint64_t bytes) const noexcept {
  return std::span(pattern_).first(bytes);
}

std::span<std::byte> TraceMemory::result(std::uint8_t stream, std::uint64_t bytes) noexcept {
  return std::span(results_[stream]).first(bytes);
}

Status TraceMemory::check() const {
  for (std::size_t stream = 0; stream < kMaxTraceStreams; ++stream) {
    const auto& result = results_[stream];
    const auto [found, wanted] = std::ranges::mismatch(result, std::span(pattern_).first(result.size()));
    if (found == result.end()) continue;
    return {Code::kDataLoss,
            fmt::format("byte {} of what stream {} copied out is {}, and was {} at the device", found - result.begin(),
                        stream, static_cast<int>(*found), static_cast<int>(*wanted))};
  }
  return {};
}

void TraceMemory::clear() noexcept {
  for (auto& result : results_) std::ranges::fill(result, std::byte{0});  // the pattern has no 0
}

Result<ReplayTimes> replay(const Trace& trace, TraceDevice& device) {
  device.clear();
  ReplayTimes times;
  const Clock::time_point begin = Clock::now();
  Clock::time_point at = begin;
  std::size_t streams = 0;
  for (const TraceRecord& record : trace.records) {
    if (record.gap_ns != 0) {
      busy_until(at + std::chrono::nanoseconds(record.gap_ns));
      at = Clock::now();
    }
    Status status = device.call(record);
    if (status.ok() && record.blocking) status = device.wait(record.stream);
    if (!status.ok()) return status;
    streams = std::max<std::size_t>(streams, std::size_t{record.stream} + 1);
    const Clock::time_point now = Clock::now();
    times.op_ns[static_cast<std::size_t>(record.op)] += ns_between(at, now);
    at = now;
  }
  for (std::size_t stream = 0; stream < streams; ++stream) {
    if (Status status = device.wait(static_cast<std::uint8_t>(stream)); !status.ok()) return status;
  }
  const Clock::time_point end = Clock::now();
  times.end_ns = ns_between(at, end);
  times.total_ns = ns_between(begin, end);
  if (Status status = device.check(); !status.ok()) return status;
  return times;
}

}  // namespace fairlead::bench
