#include "bench/trace/trace_report.h"

#include <algorithm>

namespace fairlead::bench {
namespace {

Json to_json(const TraceSpread& spread) {
  return Json::Object{{"min", spread.min}, {"p50", spread.p50}, {"max", spread.max}};
}

template <typename Value>
std::uint64_t mean(const std::vector<ReplayTimes>& replays, Value value) {
  std::uint64_t sum = 0;
  for (const ReplayTimes& times : replays) sum += value(times);
  return replays.empty() ? 0 : sum / replays.size();
}

}  // namespace

TraceSpread spread_of(const std::vector<ReplayTimes>& replays) {
  if (replays.empty()) return {};
  std::vector<std::uint64_t> totals;
  for (const ReplayTimes& times : replays) totals.push_back(times.total_ns);
  std::ranges::sort(totals);
  return {totals.front(), totals[totals.size() / 2], totals.back()};
}

double overhead_of(const TraceSample& sample) {
  const auto here = static_cast<double>(spread_of(sample.local).p50);
  return here > 0 ? static_cast<double>(spread_of(sample.remote).p50) / here - 1 : 0.0;
}

Json to_json(const Trace& trace, const std::string& file) {
  const TraceTotals totals = totals_of(trace);
  return Json::Object{{"file", file},
                      {"name", trace.name},
                      {"made", trace.made},
                      {"calls", std::uint64_t{trace.records.size()}},
                      {"streams", std::uint64_t{totals.streams}},
                      {"blocking", totals.blocking},
                      {"bytes_out", totals.bytes_out},
                      {"bytes_back", totals.bytes_back},
                      {"gap_ns", totals.gap_ns},
                      {"device_ns", totals.device_ns}};
}

Json::Object to_json(const Trace& trace, const TraceSample& sample) {
  const TraceTotals totals = totals_of(trace);
  Json::Object ops;
  for (std::size_t i = 0; i < kTraceOps; ++i) {
    const TraceTotals::Op& op = totals.ops[i];
    if (op.count == 0) continue;
    const auto time = [i](const ReplayTimes& times) { return times.op_ns[i]; };
    ops.emplace_back(name_of(static_cast<TraceOp>(i)), Json::Object{{"count", op.count},
                                                                    {"blocking", op.blocking},
                                                                    {"bytes_out", op.bytes_out},
                                                                    {"bytes_back", op.bytes_back},
                                                                    {"local_ns", mean(sample.local, time)},
                                                                    {"remote_ns", mean(sample.remote, time)}});
  }
  const auto end = [](const ReplayTimes& times) { return times.end_ns; };
  return {{"replays", std::uint64_t{sample.remote.size()}},
          {"local_ns", to_json(spread_of(sample.local))},
          {"remote_ns", to_json(spread_of(sample.remote))},
          {"overhead", overhead_of(sample)},
          {"by_op", std::move(ops)},
          {"waiting_at_end_ns",
           Json::Object{{"local_ns", mean(sample.local, end)}, {"remote_ns", mean(sample.remote, end)}}}};
}

}  // namespace fairlead::bench
