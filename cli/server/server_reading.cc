#include "cli/server/server_reading.h"

#include <algorithm>

#include "bench/base/json.h"
#include "cli/server/status_page.h"

namespace fairlead::cli {
namespace {

using bench::Json;

std::string text(const Json& object, std::string_view name) {
  const Json* const found = object.find(name);
  return found != nullptr && found->string() != nullptr ? *found->string() : "";
}

std::optional<std::uint64_t> known_count(const Json& object, std::string_view name) {
  const Json* const found = object.find(name);
  return found == nullptr ? std::nullopt : found->uint();
}

std::uint64_t count(const Json& object, std::string_view name) { return known_count(object, name).value_or(0); }

template <typename Read>
void each(const Json& object, std::string_view name, Read read) {
  const Json* const found = object.find(name);
  if (found == nullptr || found->array() == nullptr) return;
  for (const Json& one : *found->array()) read(one);
}

double rate(std::uint64_t before, std::uint64_t now, double seconds) {
  return static_cast<double>(now >= before ? now - before : now) / seconds;
}

}  // namespace

Result<ServerReading> read_server(std::string_view page) {
  const Result<Json> json = Json::parse(page);
  if (!json) return json.error();
  if (text(*json, "schema") != kStatusSchema) return Status(Code::kDataLoss, "its /status is of no Fairlead server");
  ServerReading all;
  all.service = text(*json, "service");
  all.version = text(*json, "version");
  all.state = text(*json, "state");
  all.listen = text(*json, "listen");
  all.process = count(*json, "process");
  all.sessions = count(*json, "sessions");
  all.sessions_lost = count(*json, "sessions_lost");
  all.recoveries = count(*json, "recoveries");
  all.failovers = count(*json, "failovers");
  all.registered_bytes = count(*json, "registered_bytes");
  all.model_bytes = count(*json, "model_bytes");
  all.model_bytes_limit = count(*json, "model_bytes_limit");
  if (const Json* const up = json->find("up_seconds")) all.up_seconds = up->number().value_or(0);
  each(*json, "transports", [&](const Json& one) {
    TransportReading& read = all.transports.emplace_back();
    read.transport = text(one, "transport");
    read.lane = count(one, "lane");
    read.paths = count(one, "paths");
    read.paths_lost = count(one, "paths_lost");
    read.in_flight = count(one, "requests_in_flight");
    read.retransmissions = known_count(one, "retransmissions");
    read.bytes_sent = count(one, "bytes_sent");
    read.bytes_received = count(one, "bytes_received");
    read.requests = count(one, "requests");
  });
  each(*json, "clients", [&](const Json& one) {
    ClientReading& read = all.clients.emplace_back();
    read.name = text(one, "name");
    read.principal = text(one, "principal");
    read.address = text(one, "address");
    read.transport = text(one, "transport");
    read.path = text(one, "path");
    read.doing = text(one, "doing");
    read.model = text(one, "model");
    read.bytes = count(one, "bytes");
    read.arrived = count(one, "arrived_bytes");
    read.arrived_ever = count(one, "arrived_bytes_total");
  });
  each(*json, "models", [&](const Json& one) {
    all.models.push_back({text(one, "name"), text(one, "owner"), count(one, "tensors"), count(one, "bytes")});
  });
  return all;
}

void set_rates(const ServerReading& before, ServerReading& now, double seconds) {
  const bool anew = before.process != now.process || before.up_seconds > now.up_seconds;
  for (TransportReading& each : now.transports) {
    const auto same = std::ranges::find_if(before.transports, [&](const TransportReading& other) {
      return other.transport == each.transport && other.lane == each.lane;
    });
    const TransportReading then = anew || same == before.transports.end() ? TransportReading() : *same;
    each.sent = rate(then.bytes_sent, each.bytes_sent, seconds);
    each.received = rate(then.bytes_received, each.bytes_received, seconds);
    each.posted = rate(then.requests, each.requests, seconds);
  }
  for (ClientReading& each : now.clients) {
    const auto same = std::ranges::find_if(before.clients, [&](const ClientReading& other) {
      return other.name == each.name && other.address == each.address;
    });
    const bool known = !anew && same != before.clients.end();
    each.received = rate(known ? same->arrived_ever : 0, each.arrived_ever, seconds);
  }
}

}  // namespace fairlead::cli
