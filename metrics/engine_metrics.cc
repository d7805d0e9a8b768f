#include "metrics/engine_metrics.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/version/build_info.h"

namespace fairlead::metrics {
namespace {

Metric one(std::string name, std::string help, Kind kind, std::uint64_t value) {
  return {std::move(name), std::move(help), kind, {{static_cast<double>(value), {}}}};
}

Metric by_label(std::string name, std::string help, const char* label,
                std::initializer_list<std::pair<const char*, std::uint64_t>> values) {
  Metric metric{std::move(name), std::move(help), Kind::kCounter, {}};
  for (const auto& [text, value] : values) metric.samples.push_back({static_cast<double>(value), {{label, text}}});
  return metric;
}

Metric by_transport(const EngineStats& stats, std::string name, std::string help, Kind kind,
                    std::uint64_t TransportStats::* field) {
  Metric metric{std::move(name), std::move(help), kind, {}};
  for (const TransportStats& each : stats.transports) {
    metric.samples.push_back(
        {static_cast<double>(each.*field), {{"lane", std::to_string(each.lane)}, {"transport", each.transport}}});
  }
  return metric;
}

Metric retransmissions(const EngineStats& stats) {
  Metric metric{"fairlead_transport_retransmissions_total", "Segments that the system sent again.", Kind::kCounter, {}};
  for (const TransportStats& each : stats.transports) {
    if (!each.retransmissions) continue;
    metric.samples.push_back({static_cast<double>(*each.retransmissions),
                              {{"lane", std::to_string(each.lane)}, {"transport", each.transport}}});
  }
  return metric;
}

Metric copied_bytes(const EngineStats& stats) {
  Metric metric{"fairlead_shm_copied_bytes_total",
                "Bytes of one-sided operations by the way that they took.",
                Kind::kCounter,
                {}};
  for (const TransportStats& each : stats.transports) {
    if (!each.copied) continue;
    const CopiedBytes& copied = *each.copied;
    const std::pair<const char*, std::uint64_t> ways[] = {{"kernel", copied.by_kernel},
                                                          {"mapped", copied.mapped},
                                                          {"rings", copied.through_rings},
                                                          {"streamed", copied.streamed}};
    for (const auto& [way, bytes] : ways) {
      metric.samples.push_back({static_cast<double>(bytes), {{"lane", std::to_string(each.lane)}, {"way", way}}});
    }
  }
  return metric;
}

std::vector<Metric> transport_metrics(const EngineStats& stats) {
  using T = TransportStats;
  if (stats.transports.empty()) return {};
  std::vector<Metric> all{
      by_transport(stats, "fairlead_transport_sent_bytes_total", "Bytes sent, as this end sees them.", Kind::kCounter,
                   &T::bytes_sent),
      by_transport(stats, "fairlead_transport_received_bytes_total", "Bytes received, as this end sees them.",
                   Kind::kCounter, &T::bytes_received),
      by_transport(stats, "fairlead_transport_requests_total", "Work requests posted.", Kind::kCounter, &T::requests),
      by_transport(stats, "fairlead_transport_requests_in_flight", "Work requests that have not ended.", Kind::kGauge,
                   &T::requests_in_flight),
      by_transport(stats, "fairlead_transport_paths", "Paths that are ready.", Kind::kGauge, &T::paths),
      by_transport(stats, "fairlead_transport_paths_opened_total", "Paths that became ready.", Kind::kCounter,
                   &T::paths_opened),
      by_transport(stats, "fairlead_transport_paths_lost_total", "Paths that died under their sessions.",
                   Kind::kCounter, &T::paths_lost),
  };
  for (Metric some : {retransmissions(stats), copied_bytes(stats)}) {
    if (!some.samples.empty()) all.push_back(std::move(some));
  }
  return all;
}

Metric by_pages(const PoolStats& pool, std::string name, std::string help, std::uint64_t PoolArenas::* field) {
  Metric metric{std::move(name), std::move(help), Kind::kGauge, {}};
  for (const PoolArenas& each : pool.arenas) {
    metric.samples.push_back({static_cast<double>(each.*field), {{"pages", each.pages}}});
  }
  return metric;
}

std::vector<Metric> pool_metrics(const PoolStats& pool) {
  std::vector<Metric> all{
      one("fairlead_pool_blocks", "Blocks of the pool that are handed out.", Kind::kGauge, pool.blocks),
      one("fairlead_pool_cached_bytes", "Free blocks of the pool that are kept for threads.", Kind::kGauge,
          pool.cached_bytes),
      one("fairlead_pool_arenas_given_back_total", "Idle arenas of the pool that were given back to the system.",
          Kind::kCounter, pool.given_back),
      one("fairlead_pool_given_back_bytes_total", "Bytes of these arenas.", Kind::kCounter, pool.given_back_bytes),
  };
  if (pool.arenas.empty()) return all;
  all.push_back(
      by_pages(pool, "fairlead_pool_arenas", "Arenas of the pool, by the pages that they have.", &PoolArenas::arenas));
  all.push_back(by_pages(pool, "fairlead_pool_arena_bytes", "Bytes of these arenas.", &PoolArenas::bytes));
  return all;
}

// What there is from the beginning, at 0, so that a rate sees the first of it. A peer may name others: those that there
// were are added.
constexpr Code kPathCauses[] = {Code::kOk,      Code::kProtectionError, Code::kUnavailable, Code::kDeadlineExceeded,
                                Code::kAborted, Code::kDataLoss,        Code::kInternal};
constexpr Code kRefusalCauses[] = {Code::kInvalidArgument,   Code::kNotFound,       Code::kPermissionDenied,
                                   Code::kResourceExhausted, Code::kPeerDied,       Code::kCancelled,
                                   Code::kDataLoss,          Code::kVersionMismatch};

void add_causes(Metric& metric, const CodeCounts& counts, std::span<const Code> known,
                const std::vector<std::pair<std::string, std::string>>& labels = {}) {
  for (std::size_t i = 0; i < kCodes; ++i) {
    const auto code = static_cast<Code>(i);
    const std::uint64_t count = counts.get(code);
    if (count == 0 && std::ranges::find(known, code) == known.end()) continue;
    std::string cause(code == Code::kOk ? "ended" : to_string(code));
    std::ranges::replace(cause, ' ', '_');
    Sample sample{static_cast<double>(count), {{"cause", std::move(cause)}}};
    sample.labels.insert(sample.labels.end(), labels.begin(), labels.end());
    metric.samples.push_back(std::move(sample));
  }
}

}  // namespace

std::vector<Metric> engine_metrics(const EngineStats& stats) {
  const PeerStats& total = stats.total;
  std::vector<Metric> all{
      by_label("fairlead_transfer_bytes_total", "Payload of completed one-sided transfers that this engine posted.",
               "op", {{"write", total.bytes_written}, {"read", total.bytes_read}}),
      by_label("fairlead_messages_total", "Messages sent and received.", "direction",
               {{"sent", total.messages_sent}, {"received", total.messages_received}}),
      by_label("fairlead_transfers_total", "Transfers that this engine posted, by how they ended.", "result",
               {{"completed", total.transfers_completed}, {"failed", total.transfers_failed}}),
      one("fairlead_recoveries_total", "Paths that took the place of one that had died.", Kind::kCounter,
          total.recoveries),
      one("fairlead_failovers_total", "Recoveries that went over another transport.", Kind::kCounter, total.failovers),
      one("fairlead_failbacks_total", "Better transports that work again and took over from a path that lived.",
          Kind::kCounter, total.failbacks),
      one("fairlead_path_measured_total", "Measurements of paths, where they are chosen by that.", Kind::kCounter,
          total.paths_measured),
      one("fairlead_resumptions_total", "Control connections that took the place of one that had broken.",
          Kind::kCounter, total.resumptions),
      one("fairlead_replayed_transfers_total", "Transfers posted again after a failover.", Kind::kCounter,
          total.replayed_transfers),
      one("fairlead_atomics_total", "Atomic operations on words of peers that ended well.", Kind::kCounter,
          total.atomics),
      one("fairlead_atomics_served_total", "Atomic operations of peers that were carried out on words here.",
          Kind::kCounter, total.atomics_served),
      one("fairlead_duplicate_notifications_dropped_total", "Notifications that arrived again after a failover.",
          Kind::kCounter, total.duplicate_notifications_dropped),
      one("fairlead_staged_bytes_total", "Payload that crossed through a staging ring.", Kind::kCounter,
          total.staged_bytes),
      one("fairlead_rail_bytes_total", "Payload over paths beside a session's first.", Kind::kCounter,
          total.rail_bytes),
      one("fairlead_sessions_total", "Sessions that became ready.", Kind::kCounter, stats.peers_connected),
      one("fairlead_sessions_lost_total", "Sessions that ended because the peer was lost.", Kind::kCounter,
          stats.peers_lost),
      one("fairlead_sessions_failed_total",
          "Peers that connected to us and said hello, but whose session never became ready.", Kind::kCounter,
          stats.peers_failed),
      one("fairlead_handshakes_refused_total", "Connections to this engine that did not become sessions.",
          Kind::kCounter, stats.handshakes_refused),
      one("fairlead_sleeps_total", "Times that the engine had nothing to do and went to sleep.", Kind::kCounter,
          stats.sleeps),
      one("fairlead_transfers_under_way", "Transfers that this engine posted and that have not ended.", Kind::kGauge,
          total.transfers_under_way),
      one("fairlead_events_untaken", "Messages, notifications and news of sessions that the application has not taken.",
          Kind::kGauge, total.events_untaken),
      one("fairlead_sessions_awaiting_credit", "Sessions with a message that waits until the peer takes some.",
          Kind::kGauge, total.awaiting_credit),
      one("fairlead_registered_bytes", "Memory registered with transports now.", Kind::kGauge, stats.registered_bytes),
      one("fairlead_cuda_registered_bytes", "Memory of GPUs registered now.", Kind::kGauge,
          stats.cuda_registered_bytes),
      one("fairlead_cuda_staging_bytes", "Pinned host memory that GPU memory goes through.", Kind::kGauge,
          stats.cuda_staging_bytes),
      by_label("fairlead_cuda_copied_bytes_total", "Bytes copied to and from GPUs on the way.", "direction",
               {{"in", stats.cuda_bytes_in}, {"out", stats.cuda_bytes_out}}),
      one("fairlead_pool_bytes", "Memory that the pool holds.", Kind::kGauge, stats.pool_bytes),
      one("fairlead_pool_used_bytes", "Part of the pool that is handed out.", Kind::kGauge, stats.pool_bytes_used),
      one("fairlead_cache_hits_total", "Look-ups in the registration cache that found one.", Kind::kCounter,
          stats.cache.hits),
      one("fairlead_cache_misses_total", "Look-ups in the registration cache that made one.", Kind::kCounter,
          stats.cache.misses),
      one("fairlead_cache_evicted_total", "Cached registrations that gave way to others.", Kind::kCounter,
          stats.cache.evicted),
      one("fairlead_cache_invalidated_total", "Cached registrations whose memory changed.", Kind::kCounter,
          stats.cache.invalidated),
      one("fairlead_cache_registrations", "Registrations that the cache holds.", Kind::kGauge,
          stats.cache.registrations),
      one("fairlead_cache_bytes", "Memory that the cache's registrations pin.", Kind::kGauge, stats.cache.bytes),
  };
  for (Metric& metric : pool_metrics(stats.pool)) all.push_back(std::move(metric));
  for (Metric& metric : transport_metrics(stats)) all.push_back(std::move(metric));
  return all;
}

std::vector<Metric> placement_metrics(const PlacementReport& placement) {
  Metric cpus{"fairlead_lane_cpu", "CPU that the lane's thread is pinned to; -1: none.", Kind::kGauge, {}};
  for (std::size_t lane = 0; lane < placement.lanes.size(); ++lane) {
    const LanePlacement& placed = placement.lanes[lane];
    const double cpu = placed.pinned && !placed.cpus.empty() ? static_cast<double>(placed.cpus.front()) : -1;
    cpus.samples.push_back({cpu, {{"lane", std::to_string(lane)}}});
  }
  Metric pages{"fairlead_pool_sampled_pages",
               "Pages of the pool that were looked at, by the NUMA node that they are on.",
               Kind::kGauge,
               {}};
  for (std::size_t node = 0; node < placement.pool_pages.size(); ++node) {
    pages.samples.push_back({static_cast<double>(placement.pool_pages[node]), {{"node", std::to_string(node)}}});
  }
  Metric shares{"fairlead_transport_planned_bytes_per_second",
                "What the placement plan gives a transport when all of them send; 0: nothing is known of it.",
                Kind::kGauge,
                {}};
  for (const PlannedShare& share : placement.shares) {
    shares.samples.push_back({share.bytes_per_second, {{"transport", share.transport}}});
  }
  std::vector<Metric> all{std::move(cpus),
                          {"fairlead_pool_node",
                           "NUMA node that the pool is bound to; -1: none.",
                           Kind::kGauge,
                           {{placement.pool_node ? static_cast<double>(*placement.pool_node) : -1, {}}}}};
  for (Metric* each : {&pages, &shares}) {
    if (!each->samples.empty()) all.push_back(std::move(*each));
  }
  return all;
}

std::vector<Metric> reason_metrics(const Tally& tally) {
  Metric deaths{"fairlead_path_deaths_total", "Paths that died under their sessions, by cause.", Kind::kCounter, {}};
  Metric changes{"fairlead_path_changes_total",
                 "Paths that took the place of one that had died, by cause, over the same or another transport.",
                 Kind::kCounter,
                 {}};
  Metric refused{"fairlead_refused_handshakes_total",
                 "Connections to any engine of the process that did not become sessions, by cause.",
                 Kind::kCounter,
                 {}};
  add_causes(deaths, tally.path_deaths, kPathCauses);
  add_causes(changes, tally.recoveries, kPathCauses, {{"over", "same"}});
  add_causes(changes, tally.failovers, kPathCauses, {{"over", "another"}});
  add_causes(refused, tally.handshakes_refused, kRefusalCauses);
  return {one("fairlead_credit_waits_total", "Times that messages began to wait until the peer takes some.",
              Kind::kCounter, tally.credit_waits.load(std::memory_order_relaxed)),
          std::move(deaths), std::move(changes), std::move(refused)};
}

Metric session_metric(const std::vector<SessionCount>& counts) {
  Metric metric{"fairlead_sessions",
                "Sessions that are there now, by the transport of their first path and their state (connecting, ready, "
                "recovering).",
                Kind::kGauge,
                {}};
  std::map<std::pair<std::string, std::string>, std::uint64_t> all;
  for (const SessionCount& each : counts) {
    all[{each.transport, each.state}] += each.count;
    if (each.transport.empty()) continue;  // no path yet: it can only be connecting
    for (const char* const state : {"connecting", "ready", "recovering"}) all.try_emplace({each.transport, state});
  }
  for (const auto& [labels, count] : all) {
    metric.samples.push_back({static_cast<double>(count), {{"transport", labels.first}, {"state", labels.second}}});
  }
  return metric;
}

Metric ready_metric(bool ready) {
  return {"fairlead_ready",
          "1 while the server takes what is new; 0 while it starts, and while it drains.",
          Kind::kGauge,
          {{ready ? 1.0 : 0.0, {}}}};
}

Metric build_metric(std::string version, std::string commit, std::string build_type) {
  return {
      "fairlead_build_info",
      "What this program was built from; always 1.",
      Kind::kGauge,
      {{1, {{"version", std::move(version)}, {"commit", std::move(commit)}, {"build_type", std::move(build_type)}}}}};
}

Metric build_metric() {
  const BuildInfo& build = build_info();
  return build_metric(std::string(build.version), std::string(build.commit), std::string(build.build_type));
}

}  // namespace fairlead::metrics
