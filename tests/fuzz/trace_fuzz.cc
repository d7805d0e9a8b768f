// Any bytes as a trace: calls within the limits, or an error with a reason.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "bench/trace/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::bench;
  const auto trace = parse_trace({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!trace) {
    if (trace.error().message().empty()) std::abort();
    return 0;
  }
  if (trace->records.empty() || trace->records.size() > kMaxTraceRecords) std::abort();
  for (const TraceRecord& record : trace->records) {
    const bool launch = record.op == TraceOp::kLaunch;
    if (record.gap_ns > kMaxTraceNs || record.device_ns > (launch ? kMaxTraceNs : 0)) std::abort();
    if (record.bytes_out > (launch ? kMaxTraceParameters : kMaxTraceCopy) || record.bytes_back > kMaxTraceCopy) {
      std::abort();
    }
    if (record.stream >= kMaxTraceStreams || record.on >= kMaxTraceStreams) std::abort();
  }
  const TraceTotals totals = totals_of(*trace);
  if (totals.gap_ns + totals.device_ns > kMaxTraceTotalNs ||
      totals.bytes_out + totals.bytes_back > kMaxTraceTotalBytes || totals.streams > kMaxTraceStreams)
    std::abort();
  return 0;
}
