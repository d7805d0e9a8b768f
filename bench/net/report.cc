#include "bench/net/report.h"

#include <fmt/format.h>

#include "bench/base/build_info.h"
#include "bench/base/host.h"
#include "bench/base/sizes.h"

namespace fairlead::bench {
namespace {

double bytes_of(const Sample& sample) {
  return static_cast<double>(sample.size) * static_cast<double>(sample.iterations);
}

double per_second(double amount, const Sample& sample) { return sample.seconds > 0 ? amount / sample.seconds : 0; }

double per_gb(double seconds, const Sample& sample) {
  return bytes_of(sample) > 0 ? seconds * 1e9 / bytes_of(sample) : 0;
}

Json to_json(const Sample& sample) {
  const Histogram& latency = sample.latency;
  return Json::Object{{"size_bytes", sample.size},
                      {"iterations", sample.iterations},
                      {"seconds", sample.seconds},
                      {"bytes_per_second", per_second(bytes_of(sample), sample)},
                      {"messages_per_second", per_second(static_cast<double>(sample.iterations), sample)},
                      {"latency_ns", Json::Object{{"min", latency.min()},
                                                  {"p50", latency.percentile(50)},
                                                  {"p90", latency.percentile(90)},
                                                  {"p99", latency.percentile(99)},
                                                  {"p999", latency.percentile(99.9)},
                                                  {"max", latency.max()}}},
                      {"cpu_seconds_per_gb", Json::Object{{"initiator", per_gb(sample.initiator_cpu, sample)},
                                                          {"target", per_gb(sample.target_cpu, sample)}}},
                      {"verified", sample.verified},
                      {"interrupted", sample.interrupted}};
}

}  // namespace

std::string_view latency_kind(const Plan& plan) noexcept {
  if (plan.kind == Kind::kBandwidth) return "completion_under_load";
  return plan.op == Op::kRead ? "full_read" : "half_round_trip";
}

Json report(const Plan& plan, const EngineConfig& config, const Setting& setting, std::span<const Sample> samples) {
  const BuildInfo& build = build_info();
  const bool soft = setting.transport.starts_with("verbs:soft");
  Json::Array results;
  for (const Sample& sample : samples) results.push_back(to_json(sample));
  return Json::Object{{"schema", "fairlead.bench/1"},
                      {"version", build.version},
                      {"commit", build.commit},
                      {"build_type", build.build_type},
                      {"host", to_json(host_info())},
                      {"local", setting.local},
                      {"transport", setting.transport},
                      {"device", setting.device},
                      {"path", setting.path},
                      {"packet_io", soft ? Json(config.verbs.packet_io) : Json()},
                      {"profile", soft ? Json(config.verbs.profile) : Json()},
                      {"kind", to_string(plan.kind)},
                      {"op", to_string(plan.op)},
                      {"depth", plan.kind == Kind::kBandwidth ? plan.depth : std::uint64_t{1}},
                      {"footprint_bytes", plan.kind == Kind::kBandwidth ? Json(plan.footprint) : Json()},
                      {"latency_kind", latency_kind(plan)},
                      {"arrival", plan.is_ping_pong_of_writes() ? Json(to_string(plan.arrival)) : Json()},
                      {"results", std::move(results)}};
}

std::string table_head(const Plan& plan) {
  return fmt::format("{:>8} {:>10} {:>12} {:>12} {:>10} {:>10} {:>10} {:>12} {:>12}  ({} {}, latency: {})", "size",
                     "count", "MB/s", "messages/s", "min us", "p50 us", "p99 us", "cpu s/GB", "target s/GB",
                     to_string(plan.kind), to_string(plan.op), latency_kind(plan));
}

std::string table_line(const Sample& sample) {
  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  return fmt::format("{:>8} {:>10} {:>12.2f} {:>12.0f} {:>10.2f} {:>10.2f} {:>10.2f} {:>12.3f} {:>12.3f}{}",
                     format_size(sample.size), sample.iterations, per_second(bytes_of(sample), sample) / 1e6,
                     per_second(static_cast<double>(sample.iterations), sample), us(sample.latency.min()),
                     us(sample.latency.percentile(50)), us(sample.latency.percentile(99)),
                     per_gb(sample.initiator_cpu, sample), per_gb(sample.target_cpu, sample),
                     sample.interrupted ? "  interrupted, not verified"
                     : sample.verified  ? ""
                                        : "  not verified");
}

}  // namespace fairlead::bench
