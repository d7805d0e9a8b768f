#include "cli/status_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "bench/base/sizes.h"

namespace fairlead::cli {
namespace {

using bench::format_bytes;
using bench::Json;

/// Of a server that was there before this program: its names are of its clients' making.
std::string shown(const std::string& text, std::size_t most) {
  std::string safe = printable(text);
  if (safe.size() > most) safe = safe.substr(0, most - 3) + "...";
  return safe;
}

std::string duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 172'800) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / 86'400);
}

std::string head(const std::string& where, const ServerReading& server) {
  std::string text =
      fmt::format("{}: {} {}, {}{}, up {}\n", printable(where), shown(server.service, 20), shown(server.version, 20),
                  shown(server.state, 20), server.listen.empty() ? "" : ", listening on " + shown(server.listen, 60),
                  duration(server.up_seconds));
  text += fmt::format("{} sessions so far, {} lost; {} paths replaced, {} by another transport; {} registered",
                      server.sessions, server.sessions_lost, server.recoveries, server.failovers,
                      format_bytes(server.registered_bytes));
  if (server.model_bytes_limit != 0) {
    text += fmt::format("; models and pushes take {} of {}", format_bytes(server.model_bytes),
                        format_bytes(server.model_bytes_limit));
  }
  return text + "\n";
}

std::string transports(const ServerReading& server) {
  std::string text = fmt::format("\n{:<20} {:>4} {:>6} {:>6} {:>12} {:>12} {:>12} {:>10} {:>10}\n", "transport", "lane",
                                 "paths", "lost", "in/s", "out/s", "requests/s", "in flight", "sent again");
  for (const TransportReading& each : server.transports) {
    text +=
        fmt::format("{:<20} {:>4} {:>6} {:>6} {:>12} {:>12} {:>12.0f} {:>10} {:>10}\n", shown(each.transport, 20),
                    each.lane, each.paths, each.paths_lost, format_bytes(each.received), format_bytes(each.sent),
                    each.posted, each.in_flight, each.retransmissions ? fmt::to_string(*each.retransmissions) : "-");
  }
  const auto in_use = [&](std::string_view kind) {
    return std::ranges::any_of(server.transports, [&](const TransportReading& each) {
      return each.transport.starts_with(kind) && each.paths != 0;
    });
  };
  if (in_use("verbs")) {
    text += "over verbs in/s and out/s have no part of what peers write and read without a word: the device moves it\n";
  }
  if (in_use("shm")) text += "over shm out/s has no part of what peers read: they copy it themselves\n";
  return text;
}

std::string clients(const ServerReading& server) {
  if (server.clients.empty()) return "\nno clients\n";
  std::string text =
      fmt::format("\n{:<24} {:<16} {:<16} {:<32} {:>12}\n", "client", "principal", "over", "does", "in/s");
  for (const ClientReading& each : server.clients) {
    std::string does = each.doing.empty() ? "" : fmt::format("{} of {}", each.doing, each.model);
    if (each.doing == "push" && each.bytes != 0) {
      does += fmt::format(", {:.0f} %", 100 * static_cast<double>(each.arrived) / static_cast<double>(each.bytes));
    }
    text += fmt::format("{:<24} {:<16} {:<16} {:<32} {:>12}\n", shown(each.name, 24), shown(each.principal, 16),
                        shown(each.transport, 16), shown(does, 32), format_bytes(each.received));
  }
  return text;
}

std::string models(const ServerReading& server) {
  if (server.models.empty()) return "";
  std::string text = fmt::format("\n{:<40} {:<16} {:>8} {:>12}\n", "model", "owner", "tensors", "size");
  for (const ModelReading& each : server.models) {
    text += fmt::format("{:<40} {:<16} {:>8} {:>12}\n", shown(each.name, 40), shown(each.owner, 16), each.tensors,
                        format_bytes(each.bytes));
  }
  return text;
}

std::string tenants_table(const std::vector<TenantRates>& all) {
  std::string text;
  text += fmt::format("\n{:<20} {:>8} {:>5} {:>10} {:>8} {:>12} {:>12} {:>12} {:>6} {:>6} {:>8} {:>7}\n", "tenant",
                      "sessions", "away", "memory", "waiting", "commands/s", "in/s", "out/s", "busy", "share",
                      "rejected", "failed");
  for (const TenantRates& each : all) {
    const double failures = each.now.failures[0] + each.now.failures[1] + each.now.failures[2];
    text += fmt::format(
        "{:<20} {:>8.0f} {:>5.0f} {:>10} {:>8.0f} {:>12.0f} {:>12} {:>12} {:>5.0f}% {:>5.0f}% {:>8.0f} {:>7.0f}\n",
        printable(each.name), each.now.sessions, each.now.away, format_bytes(each.now.memory_bytes), each.now.waiting,
        each.commands, format_bytes(each.bytes_in), format_bytes(each.bytes_out), 100 * each.busy, 100 * each.share,
        each.now.rejections, failures);
  }
  return text;
}

std::string devices_table(const std::vector<TenantRates>& all) {
  std::string text = fmt::format("\n{:<20} {:>10} {:>12} {:>12} {:>12} {:>6} {:>7}\n", "device", "memory", "commands/s",
                                 "in/s", "out/s", "busy", "failed");
  for (const TenantRates& each : all) {
    const double failures = each.now.failures[0] + each.now.failures[1] + each.now.failures[2];
    text += fmt::format("{:<20} {:>10} {:>12.0f} {:>12} {:>12} {:>5.0f}% {:>7.0f}\n", printable(each.name),
                        format_bytes(each.now.memory_bytes), each.commands, format_bytes(each.bytes_in),
                        format_bytes(each.bytes_out), 100 * each.busy, failures);
  }
  return text;
}

/// What came as a number of Prometheus' is a count, if it can be one.
std::uint64_t count(double value) {
  constexpr double kMost = 9e18;
  return value >= 0 && value < kMost ? static_cast<std::uint64_t>(value) : 0;
}

Json failures_json(const TenantReading& of) {
  return Json::Object{
      {"command", count(of.failures[0])}, {"stream", count(of.failures[1])}, {"context", count(of.failures[2])}};
}

Json devices_json(const std::vector<TenantRates>& all) {
  Json::Array devices;
  for (const TenantRates& each : all) {
    devices.push_back(Json::Object{{"name", each.name},
                                   {"memory_bytes", count(each.now.memory_bytes)},
                                   {"commands", count(each.now.commands)},
                                   {"commands_per_second", each.commands},
                                   {"bytes_in_per_second", each.bytes_in},
                                   {"bytes_out_per_second", each.bytes_out},
                                   {"busy", each.busy},
                                   {"failures", failures_json(each.now)}});
  }
  return devices;
}

Json tenants_json(const std::vector<TenantRates>& all) {
  Json::Array tenants;
  for (const TenantRates& each : all) {
    tenants.push_back(Json::Object{{"name", each.name},
                                   {"sessions", count(each.now.sessions)},
                                   {"away", count(each.now.away)},
                                   {"memory_bytes", count(each.now.memory_bytes)},
                                   {"waiting", count(each.now.waiting)},
                                   {"commands", count(each.now.commands)},
                                   {"commands_per_second", each.commands},
                                   {"bytes_in_per_second", each.bytes_in},
                                   {"bytes_out_per_second", each.bytes_out},
                                   {"busy", each.busy},
                                   {"share", each.share},
                                   {"rejections", count(each.now.rejections)},
                                   {"failures", failures_json(each.now)}});
  }
  return tenants;
}

}  // namespace

std::string status_tables(const std::string& where, const ServerReading& server, const GpuRates& gpu) {
  std::string text = head(where, server) + transports(server) + clients(server) + models(server);
  if (!gpu.devices.empty()) text += devices_table(gpu.devices);
  if (!gpu.tenants.empty()) text += tenants_table(gpu.tenants);
  return text;
}

Json status_document(const std::string& where, const ServerReading& server, const GpuRates& gpu, double seconds) {
  Json::Array transports, clients, models;
  for (const TransportReading& each : server.transports) {
    transports.push_back(Json::Object{{"transport", each.transport},
                                      {"lane", each.lane},
                                      {"paths", each.paths},
                                      {"paths_lost", each.paths_lost},
                                      {"requests_in_flight", each.in_flight},
                                      {"retransmissions", each.retransmissions ? Json(*each.retransmissions) : Json()},
                                      {"bytes_sent", each.bytes_sent},
                                      {"bytes_received", each.bytes_received},
                                      {"bytes_sent_per_second", each.sent},
                                      {"bytes_received_per_second", each.received},
                                      {"requests_per_second", each.posted}});
  }
  for (const ClientReading& each : server.clients) {
    clients.push_back(Json::Object{{"name", each.name},
                                   {"principal", each.principal},
                                   {"address", each.address},
                                   {"transport", each.transport},
                                   {"path", each.path},
                                   {"doing", each.doing},
                                   {"model", each.model},
                                   {"bytes", each.bytes},
                                   {"arrived_bytes", each.arrived},
                                   {"arrived_bytes_per_second", each.received}});
  }
  for (const ModelReading& each : server.models) {
    models.push_back(
        Json::Object{{"name", each.name}, {"owner", each.owner}, {"tensors", each.tensors}, {"bytes", each.bytes}});
  }
  return Json::Object{{"schema", "fairlead.status/2"},
                      {"server", where},
                      {"seconds", seconds},
                      {"service", server.service},
                      {"version", server.version},
                      {"state", server.state},
                      {"listen", server.listen},
                      {"up_seconds", server.up_seconds},
                      {"sessions", server.sessions},
                      {"sessions_lost", server.sessions_lost},
                      {"recoveries", server.recoveries},
                      {"failovers", server.failovers},
                      {"registered_bytes", server.registered_bytes},
                      {"model_bytes", server.model_bytes},
                      {"model_bytes_limit", server.model_bytes_limit},
                      {"transports", std::move(transports)},
                      {"clients", std::move(clients)},
                      {"models", std::move(models)},
                      {"devices", devices_json(gpu.devices)},
                      {"tenants", tenants_json(gpu.tenants)}};
}

}  // namespace fairlead::cli
