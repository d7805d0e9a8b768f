#include "cli/server/status_page.h"

#include <unistd.h>

#include "base/version/build_info.h"

namespace fairlead::cli {
namespace {

using bench::Json;

Json transports_of(const EngineStats& stats) {
  Json::Array all;
  for (const TransportStats& each : stats.transports) {
    all.push_back(Json::Object{{"transport", each.transport},
                               {"lane", std::uint64_t{each.lane}},
                               {"bytes_sent", each.bytes_sent},
                               {"bytes_received", each.bytes_received},
                               {"requests", each.requests},
                               {"requests_in_flight", each.requests_in_flight},
                               {"paths", each.paths},
                               {"paths_lost", each.paths_lost},
                               {"retransmissions", each.retransmissions ? Json(*each.retransmissions) : Json()}});
  }
  return all;
}

}  // namespace

Json peers_of(const Engine& engine) {
  Json::Array all;
  for (const Peer& peer : engine.peers()) {
    all.push_back(Json::Object{{"name", peer.name()},
                               {"principal", peer.principal()},
                               {"address", peer.address()},
                               {"state", to_string(peer.state())},
                               {"transport", peer.transport()},
                               {"lane", std::uint64_t{peer.lane()}},
                               {"path", peer.explain()}});
  }
  return all;
}

std::string status_page(const StatusFacts& facts, const Engine& engine, const std::function<void(Json::Object&)>& own) {
  const EngineStats stats = engine.stats();
  const auto up = std::chrono::duration<double>(std::chrono::steady_clock::now() - facts.since).count();
  Json::Object document{{"schema", kStatusSchema},
                        {"service", facts.service},
                        {"version", build_info().version},
                        {"process", static_cast<std::uint64_t>(::getpid())},
                        {"state", facts.state},
                        {"listen", facts.listen},
                        {"up_seconds", up},
                        {"sessions", stats.peers_connected},
                        {"sessions_lost", stats.peers_lost},
                        {"recoveries", stats.total.recoveries},
                        {"failovers", stats.total.failovers},
                        {"registered_bytes", stats.registered_bytes},
                        {"transports", transports_of(stats)}};
  own(document);
  return Json(std::move(document)).dump() + "\n";
}

}  // namespace fairlead::cli
