#include "cli/topo_json.h"

#include <string_view>

namespace fairlead::cli {
namespace {

using bench::Json;
using namespace topology;

template <typename T>
Json list(const std::vector<T>& values) {
  Json::Array array;
  for (const T& value : values) {
    if constexpr (std::is_same_v<T, std::string>) {
      array.emplace_back(value);
    } else {
      array.emplace_back(static_cast<std::uint64_t>(value));
    }
  }
  return array;
}

Json known(double value) { return value > 0 ? Json(value) : Json(); }
Json known(const std::string& value) { return value.empty() ? Json() : Json(value); }

std::string_view name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kNic:
      return "nic";
    case DeviceKind::kGpu:
      return "gpu";
    case DeviceKind::kNvSwitch:
      return "nvswitch";
    case DeviceKind::kOther:
      return "other";
  }
  return "other";
}

std::string_view name_of(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kMemory:
      return "memory";
    case EdgeKind::kMesh:
      return "mesh";
    case EdgeKind::kSocket:
      return "socket";
    case EdgeKind::kRoot:
      return "root";
    case EdgeKind::kPci:
      return "pci";
    case EdgeKind::kNvLink:
      return "nvlink";
    case EdgeKind::kPort:
      return "port";
  }
  return "pci";
}

std::string_view name_of(NodeKind kind) {
  switch (kind) {
    case NodeKind::kMemory:
      return "memory";
    case NodeKind::kDomain:
      return "numa domain";
    case NodeKind::kPackage:
      return "socket";
    case NodeKind::kHostBridge:
      return "host bridge";
    case NodeKind::kPciBridge:
      return "pci bridge";
    case NodeKind::kNic:
      return "nic";
    case NodeKind::kGpu:
      return "gpu";
    case NodeKind::kNvSwitch:
      return "nvswitch";
    case NodeKind::kNetwork:
      return "network";
  }
  return "network";
}

Json to_json(const Bandwidth& bandwidth) {
  return Json::Object{{"bytes_per_second", bandwidth.bytes_per_second},
                      {"origin", to_string(bandwidth.origin)},
                      {"source", known(bandwidth.source)}};
}

Json to_json(const Machine& machine) {
  Json::Array packages, cores, caches, memories, devices;
  for (const Package& package : machine.packages) {
    packages.push_back(Json::Object{{"sockets", list(package.sockets)}, {"model", known(package.model)}});
  }
  for (const Core& core : machine.cores) {
    cores.push_back(Json::Object{{"package", std::uint64_t{core.package}},
                                 {"pus", list(core.pus)},
                                 {"usable_pus", list(core.usable_pus)},
                                 {"isolated", core.isolated}});
  }
  for (const Cache& cache : machine.caches) {
    caches.push_back(Json::Object{
        {"level", cache.level}, {"bytes", std::uint64_t{cache.bytes}}, {"count", std::uint64_t{cache.count}}});
  }
  for (const Memory& memory : machine.memories) {
    memories.push_back(Json::Object{{"name", topology::name_of(memory)},
                                    {"bytes", std::uint64_t{memory.bytes}},
                                    {"kind", known(memory.kind)},
                                    {"cores", list(memory.cores)},
                                    {"allowed", memory.allowed},
                                    {"latency_ns", known(memory.latency_ns)}});
  }
  for (const Device& device : machine.devices) {
    devices.push_back(Json::Object{{"name", device.name},
                                   {"kind", name_of(device.kind)},
                                   {"pci", known(device.bus_id)},
                                   {"model", known(device.model)},
                                   {"rdma_devices", list(device.rdma_devices)},
                                   {"net_devices", list(device.net_devices)},
                                   {"packages", list(packages_of(machine, device.cores))},
                                   {"link", known(device.link)},
                                   {"rate", known(device.rate)}});
  }
  return Json::Object{{"name", machine.name},
                      {"this_machine", machine.this_machine},
                      {"packages", packages},
                      {"cores", cores},
                      {"caches", caches},
                      {"memories", memories},
                      {"devices", devices},
                      {"cpu_quota", known(machine.cpu_quota)},
                      {"remarks", list(machine.remarks)}};
}

Json to_json(const Graph& graph) {
  Json::Array nodes, edges;
  for (const Node& node : graph.nodes()) {
    nodes.push_back(Json::Object{{"kind", name_of(node.kind)}, {"name", node.name}});
  }
  for (const Edge& edge : graph.edges()) {
    edges.push_back(Json::Object{{"kind", name_of(edge.kind)},
                                 {"from", std::uint64_t{edge.from}},
                                 {"to", std::uint64_t{edge.to}},
                                 {"forward", to_json(edge.forward)},
                                 {"backward", to_json(edge.backward)}});
  }
  return Json::Object{{"nodes", nodes}, {"edges", edges}};
}

Json to_json(const Machine& machine, const Graph& graph, const NicUse& nic) {
  Json::Array routes;
  for (const Route& route : nic.routes) {
    Json::Array through;
    for (const Hop hop : route.hops) through.emplace_back(graph.nodes()[end_of(graph, hop)].name);
    routes.push_back(Json::Object{{"bytes_per_second", route.rate}, {"through", through}});
  }
  return Json::Object{{"name", machine.devices[nic.device].name},
                      {"bytes_per_second", nic.rate},
                      {"width", nic.width},
                      {"assumed", nic.assumed},
                      {"reason", nic.reason},
                      {"limit", known(nic.limit)},
                      {"core", nic.lane.core ? Json(std::uint64_t{*nic.lane.core}) : Json()},
                      {"pu", nic.lane.core ? Json(nic.lane.pu) : Json()},
                      {"core_reason", nic.lane.reason},
                      {"routes", routes}};
}

Json to_json(const Machine& machine, const Graph& graph, const Plan& plan) {
  Json::Array placements;
  for (const Placement& placement : plan.placements) {
    Json::Array nics, passed;
    for (const NicUse& nic : placement.nics) nics.push_back(to_json(machine, graph, nic));
    for (const NicPassed& nic : placement.passed) {
      passed.push_back(Json::Object{{"name", machine.devices[nic.device].name}, {"reason", nic.reason}});
    }
    placements.push_back(
        Json::Object{{"memory", topology::name_of(machine, placement.pair.endpoint)},
                     {"peer", placement.pair.peer},
                     {"bytes_per_second", placement.rate},
                     {"alone", placement.alone},
                     {"nics", nics},
                     {"passed_over", passed},
                     {"pool", placement.pool ? Json(topology::name_of(machine.memories[*placement.pool])) : Json()},
                     {"pool_reason", placement.pool_reason}});
  }
  return Json::Object{{"placements", placements}, {"remarks", list(plan.remarks)}};
}

}  // namespace

bench::Json topo_to_json(const Machine& machine, const MachineGraph& made, const std::vector<const Plan*>& plans) {
  Json::Array written;
  for (const Plan* plan : plans) written.push_back(to_json(machine, made.graph, *plan));
  return Json::Object{{"machine", to_json(machine)}, {"graph", to_json(made.graph)}, {"plans", written}};
}

}  // namespace fairlead::cli
