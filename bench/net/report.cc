#include "bench/net/report.h"

#include <fmt/format.h>

#include "bench/base/host.h"
#include "bench/base/report_head.h"
#include "bench/base/sizes.h"

namespace fairlead::bench {
namespace {

constexpr std::size_t kFewestForInterval = 3;

double per_second(double amount, const Sample& sample) { return sample.seconds > 0 ? amount / sample.seconds : 0; }

Json to_json(const CpuUse& cpu, const Sample& sample) {
  return Json::Object{{"user_seconds", cpu.user},
                      {"system_seconds", cpu.system},
                      {"host_softirq_seconds", cpu.softirq},
                      {"cores", per_second(cpu.total(), sample)}};
}

Json to_json(const Spread& spread) {
  return Json::Object{{"mean", spread.mean}, {"stddev", spread.deviation}, {"low", spread.low}, {"high", spread.high}};
}

Json repeats(const Measured& measured) {
  if (measured.bytes_per_second.size() < 2) return {};
  return Json::Object{{"count", std::uint64_t{measured.bytes_per_second.size()}},
                      {"bytes_per_second", to_json(spread_of(measured.bytes_per_second))},
                      {"latency_p50_ns", to_json(spread_of(measured.latency_p50))}};
}

Json or_null(std::optional<std::uint64_t> value) { return value ? Json(*value) : Json(); }

Json end_of(const std::optional<EndFacts>& facts, std::optional<std::uint64_t> buffer) {
  if (!facts) return {};
  return Json::Object{{"cores", facts->cores},
                      {"lanes", facts->lanes},
                      {"memory", facts->memory.empty() ? Json() : Json(facts->memory)},
                      {"socket_buffer_bytes", buffer && *buffer != 0 ? Json(*buffer) : Json()}};
}

Json to_json(const LinkFacts& link) {
  const auto known = [](std::uint32_t value) { return value != 0 ? Json(value) : Json(); };
  return Json::Object{{"name", link.name.empty() ? Json() : Json(link.name)},
                      {"mtu", known(link.mtu)},
                      {"payload_bytes", known(link.payload)},
                      {"megabits", or_null(link.megabits)}};
}

Json parts_of(const Sample& sample) {
  Json::Array parts;
  for (const Share& part : sample.parts) {
    parts.push_back(Json::Object{{"name", part.name},
                                 {"iterations", part.iterations},
                                 {"bytes_per_second", bytes_per_second(part, sample.size)}});
  }
  return parts;
}

Json to_json(const Measured& measured) {
  const Sample& sample = measured.sample;
  const Histogram& latency = sample.latency;
  return Json::Object{{"size_bytes", sample.size},
                      {"iterations", sample.iterations},
                      {"seconds", sample.seconds},
                      {"bytes_per_second", bytes_per_second(sample)},
                      {"messages_per_second", per_second(static_cast<double>(sample.iterations), sample)},
                      {"latency_ns", Json::Object{{"min", latency.min()},
                                                  {"p50", latency.percentile(50)},
                                                  {"p90", latency.percentile(90)},
                                                  {"p99", latency.percentile(99)},
                                                  {"p999", latency.percentile(99.9)},
                                                  {"max", latency.max()}}},
                      {"cpu_seconds_per_gb", Json::Object{{"initiator", per_gb(sample.initiator_cpu, sample)},
                                                          {"target", per_gb(sample.target_cpu, sample)}}},
                      {"cpu", Json::Object{{"initiator", to_json(sample.initiator_cpu, sample)},
                                           {"target", to_json(sample.target_cpu, sample)}}},
                      {"retransmissions", Json::Object{{"initiator", or_null(sample.initiator_sent_again)},
                                                       {"target", or_null(sample.target_sent_again)}}},
                      {"parts", parts_of(sample)},
                      {"repeats", repeats(measured)},
                      {"verified", sample.verified},
                      {"interrupted", sample.interrupted}};
}

std::string sent_again(const Sample& sample) {
  const std::uint64_t here = sample.initiator_sent_again.value_or(0), there = sample.target_sent_again.value_or(0);
  return here + there == 0 ? "" : fmt::format("  retransmissions: {}, target {}", here, there);
}

// An empty field: it is not known.
std::string or_nothing(std::optional<std::uint64_t> value) { return value ? fmt::format("{}", *value) : ""; }

}  // namespace

std::string_view op_name(const Plan& plan) noexcept { return plan.bidirectional ? "write+read" : to_string(plan.op); }

std::string_view latency_kind(const Plan& plan) noexcept {
  if (plan.rate > 0) return plan.kind == Kind::kBandwidth ? "completion_since_due" : "round_trip_since_due";
  if (plan.kind == Kind::kBandwidth) return "completion_under_load";
  return plan.op == Op::kRead ? "full_read" : "half_round_trip";
}

Json report(const Plan& plan, const EngineConfig& config, const Setting& setting, std::span<const Measured> sizes) {
  const bool soft = setting.transport.starts_with("verbs:soft");
  Json::Array results;
  for (const Measured& measured : sizes) results.push_back(to_json(measured));
  Json::Array warnings(setting.warnings.begin(), setting.warnings.end());
  return report_head("fairlead.bench/1",
                     {{"host", to_json(host_info())},
                      {"target_host", setting.target ? to_json(setting.target->host) : Json()},
                      {"warnings", std::move(warnings)},
                      {"local", setting.local},
                      {"transport", setting.transport},
                      {"device", setting.device},
                      {"path", setting.path},
                      {"packet_io", soft ? Json(config.verbs.packet_io) : Json()},
                      {"profile", soft ? Json(config.verbs.profile) : Json()},
                      {"ends", Json::Object{{"initiator", end_of(setting.initiator, setting.link.buffer)},
                                            {"target", end_of(setting.target, setting.link.target_buffer)}}},
                      {"link", to_json(setting.link)},
                      {"lanes", std::uint64_t{config.lanes}},
                      {"paths", std::uint64_t{config.paths}},
                      {"placement", config.placement},
                      {"duration_seconds", plan.iterations == 0 ? Json(plan.duration) : Json()},
                      {"warmup", plan.warmup},
                      {"targets", Json::Array(setting.targets.begin(), setting.targets.end())},
                      {"sessions", setting.sessions},
                      {"initiators", setting.initiators},
                      {"kind", to_string(plan.kind)},
                      {"op", op_name(plan)},
                      {"depth", plan.kind == Kind::kBandwidth ? plan.depth : std::uint64_t{1}},
                      {"batch", plan.kind == Kind::kBandwidth ? plan.batch : std::uint64_t{1}},
                      {"burst", plan.kind == Kind::kBandwidth && plan.burst},
                      {"footprint_bytes", plan.kind == Kind::kBandwidth ? Json(plan.footprint) : Json()},
                      {"rate", plan.rate > 0 ? Json(plan.rate) : Json()},
                      {"latency_kind", latency_kind(plan)},
                      {"arrival", plan.is_ping_pong_of_writes() ? Json(to_string(plan.arrival)) : Json()},
                      {"interrupted", setting.interrupted},
                      {"error", setting.error.empty() ? Json() : Json(setting.error)},
                      {"results", std::move(results)}});
}

std::string table_head(const Plan& plan) {
  return fmt::format("{:>8} {:>10} {:>12} {:>12} {:>10} {:>10} {:>10} {:>12} {:>12}  ({} {}, latency: {}{})", "size",
                     "count", "MB/s", "messages/s", "min us", "p50 us", "p99 us", "cpu s/GB", "target s/GB",
                     to_string(plan.kind), op_name(plan), latency_kind(plan),
                     plan.burst       ? " of groups"
                     : plan.batch > 1 ? fmt::format(" of {} at a time", plan.batch)
                                      : "");
}

std::string table_line(const Sample& sample) {
  const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  return fmt::format("{:>8} {:>10} {:>12.2f} {:>12.0f} {:>10.2f} {:>10.2f} {:>10.2f} {:>12.3f} {:>12.3f}{}",
                     format_size(sample.size), sample.iterations, bytes_per_second(sample) / 1e6,
                     per_second(static_cast<double>(sample.iterations), sample), us(sample.latency.min()),
                     us(sample.latency.percentile(50)), us(sample.latency.percentile(99)),
                     per_gb(sample.initiator_cpu, sample), per_gb(sample.target_cpu, sample), mark_of(sample)) +
         sent_again(sample);
}

std::string part_line(const Share& part, std::uint64_t size) {
  return fmt::format("{:>8} {:>10} {:>12.2f} {:>12.0f}  {}", "of that", part.iterations,
                     bytes_per_second(part, size) / 1e6,
                     part.seconds > 0 ? static_cast<double>(part.iterations) / part.seconds : 0, part.name);
}

std::string repeats_line(const Measured& measured) {
  const Spread rate = spread_of(measured.bytes_per_second), latency = spread_of(measured.latency_p50);
  const double spread = rate.mean > 0 ? 100 * rate.deviation / rate.mean : 0;
  const std::string all = fmt::format("{} runs", rate.count);
  if (rate.count < kFewestForInterval) {  // Student's t of two is from far below 0 to anywhere
    return fmt::format(
        "{:>8} {:>10} {:>12.2f} MB/s on average, spread {:.1f} %; p50 {:.2f} us; too few for an interval", "of", all,
        rate.mean / 1e6, spread, latency.mean / 1e3);
  }
  return fmt::format(
      "{:>8} {:>10} {:>12.2f} MB/s on average, 95 % interval {:.2f} to {:.2f}, spread {:.1f} %; p50 {:.2f} us, {:.2f} "
      "to {:.2f}",
      "of", all, rate.mean / 1e6, rate.low / 1e6, rate.high / 1e6, spread, latency.mean / 1e3, latency.low / 1e3,
      latency.high / 1e3);
}

std::string interval_line(const Interval& interval, std::uint64_t size) {
  const double seconds = interval.to - interval.from;
  const double operations = seconds > 0 ? static_cast<double>(interval.operations) / seconds : 0;
  return fmt::format("{:>8} {:>6.1f} to {:.1f} s {:>12.2f} MB/s {:>12.0f} messages/s", format_size(size), interval.from,
                     interval.to, operations * static_cast<double>(size) / 1e6, operations);
}

std::string csv_head() {
  return "transport,kind,op,size_bytes,iterations,seconds,bytes_per_second,messages_per_second,latency_kind,min_ns,p50_"
         "ns,p90_ns,"
         "p99_ns,p999_ns,max_ns,initiator_user_s,initiator_system_s,initiator_host_softirq_s,target_user_s,target_"
         "system_s,"
         "target_host_softirq_s,repeats,bytes_per_second_low,bytes_per_second_high,sessions,initiators,targets,"
         "initiator_retransmissions,target_retransmissions,verified,interrupted\n";
}

std::string csv_line(const Plan& plan, const Setting& setting, const Measured& measured) {
  const Sample& sample = measured.sample;
  const Histogram& latency = sample.latency;
  const CpuUse &here = sample.initiator_cpu, &there = sample.target_cpu;
  const Spread rate = spread_of(measured.bytes_per_second);
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                     setting.transport, to_string(plan.kind), op_name(plan), sample.size, sample.iterations,
                     sample.seconds, bytes_per_second(sample),
                     per_second(static_cast<double>(sample.iterations), sample), latency_kind(plan), latency.min(),
                     latency.percentile(50), latency.percentile(90), latency.percentile(99), latency.percentile(99.9),
                     latency.max(), here.user, here.system, here.softirq, there.user, there.system, there.softirq,
                     rate.count, rate.low, rate.high, setting.sessions, setting.initiators, setting.targets.size(),
                     or_nothing(sample.initiator_sent_again), or_nothing(sample.target_sent_again), sample.verified,
                     sample.interrupted);
}

}  // namespace fairlead::bench
