#include "metrics/process.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/tally.h"
#include "fairlead/softroce.h"
#include "metrics/engine_metrics.h"
#include "metrics/process_metrics.h"
#include "metrics/softroce_metrics.h"

namespace fairlead::metrics {
namespace {

/// Of the transports that are open also where there are none.
std::vector<SessionCount> count_sessions(const std::vector<Peer>& peers, const EngineStats& stats) {
  std::map<std::pair<std::string, std::string>, std::uint64_t> counts;
  for (const TransportStats& each : stats.transports) counts[{each.transport, "ready"}] = 0;
  for (const Peer& peer : peers) {
    const PeerState state = peer.state();
    if (state == PeerState::kClosed) continue;
    ++counts[{peer.transport(), std::string(to_string(state))}];
  }
  std::vector<SessionCount> all;
  for (const auto& [key, count] : counts) all.push_back({key.first, key.second, count});
  return all;
}

}  // namespace

std::vector<Metric> metrics_of(const Engine& engine) {
  const EngineStats stats = engine.stats();
  std::vector<Metric> all = engine_metrics(stats);
  const auto add = [&all](std::vector<Metric> more) { std::ranges::move(more, std::back_inserter(all)); };
  const std::vector<SessionCount> sessions = count_sessions(engine.peers(), stats);
  if (!sessions.empty()) all.push_back(session_metric(sessions));
  add(reason_metrics(tally()));
  add(placement_metrics(engine.placement()));
  add(process_metrics());
  add(softroce_metrics(softroce_devices(), static_cast<std::uint32_t>(::getpid())));
  return all;
}

}  // namespace fairlead::metrics
