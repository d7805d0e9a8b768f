#include "verbs/discovery/device_list.h"

#include <net/if.h>

#include <algorithm>
#include <cerrno>

#include "verbs/soft/port/interfaces.h"

namespace fairlead::verbs {
namespace {

// IBTA 14.2.5.6 PortInfo: LinkSpeedActive and LinkWidthActive. 0 for a code that is not known.
std::uint64_t link_speed(std::uint8_t speed, std::uint8_t width) noexcept {
  double lane = 0;
  switch (speed) {
    case 1:
      lane = 2.5e9;
      break;
    case 2:
      lane = 5e9;
      break;
    case 4:
    case 8:
      lane = 10e9;
      break;
    case 16:
      lane = 14e9;
      break;
    case 32:
      lane = 25e9;
      break;
    case 64:
      lane = 50e9;
      break;
    case 128:
      lane = 100e9;
      break;
    default:
      return 0;
  }
  switch (width) {
    case 1:
      return static_cast<std::uint64_t>(lane);
    case 2:
      return static_cast<std::uint64_t>(lane * 4);
    case 4:
      return static_cast<std::uint64_t>(lane * 8);
    case 8:
      return static_cast<std::uint64_t>(lane * 12);
    case 16:
      return static_cast<std::uint64_t>(lane * 2);
    default:
      return 0;
  }
}

std::string interface_name(std::uint32_t index) {
  char name[IF_NAMESIZE] = "";
  return index != 0 && ::if_indextoname(index, name) != nullptr ? fmt::format(", {}", name) : std::string();
}

void query_gids(const VerbsApi& api, ibv_context* context, int table_length, PortFacts& facts) {
  for (int index = 0; index < table_length; ++index) {
    ibv_gid_entry entry{};
    if (api.query_gid_ex(context, static_cast<std::uint32_t>(facts.port), static_cast<std::uint32_t>(index), &entry) !=
        0) {
      continue;
    }
    const Address address = address_of(entry.gid);
    if (address.is_zero()) continue;
    facts.gids.push_back({index, address, entry.gid_type, entry.ndev_ifindex, soft::interface_mtu(entry.ndev_ifindex)});
  }
}

}  // namespace

Result<PortFacts> query_port_facts(const VerbsApi& api, ibv_context* context, std::string name, int port) {
  ibv_device_attr device{};
  int error = api.query_device(context, &device);
  if (error != 0) {
    return Status(Code::kUnavailable, fmt::format("{}: cannot query the device: {}", name, std::strerror(error)));
  }
  if (port < 1 || port > device.phys_port_cnt) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} has no port {}: legal are 1..{}", name, port, device.phys_port_cnt));
  }
  ibv_port_attr attr{};
  error = api.query_port(context, static_cast<std::uint8_t>(port), &attr);
  if (error != 0) {
    return Status(Code::kUnavailable, fmt::format("{}: cannot query port {}: {}", name, port, std::strerror(error)));
  }
  PortFacts facts;
  facts.device = std::move(name);
  facts.port = port;
  facts.transport = context->device->transport_type;
  facts.state = attr.state;
  facts.link_layer = attr.link_layer;
  facts.active_mtu = 128U << std::clamp<unsigned>(attr.active_mtu, IBV_MTU_256, IBV_MTU_4096);
  facts.bits_per_second = link_speed(attr.active_speed, attr.active_width);
  facts.max_message_bytes = attr.max_msg_sz;
  query_gids(api, context, attr.gid_tbl_len, facts);
  return facts;
}

std::vector<std::string> device_names(const VerbsApi& api) {
  std::vector<std::string> names;
  int count = 0;
  ibv_device** list = api.get_device_list(&count);
  if (list == nullptr) return names;
  for (int i = 0; i < count; ++i) names.emplace_back(api.get_device_name(list[i]));
  api.free_device_list(list);
  return names;
}

Result<DeviceContext> open_by_name(const VerbsApi& api, std::string_view name) {
  int count = 0;
  ibv_device** list = api.get_device_list(&count);
  ibv_context* context = nullptr;
  int error = ENOENT;
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (api.get_device_name(list[i]) != name) continue;
    errno = 0;
    context = api.open_device(list[i]);
    error = errno;
    break;
  }
  if (list != nullptr) api.free_device_list(list);  // an open device stays
  if (context != nullptr) return DeviceContext(api, context);
  return Status(error == ENOENT ? Code::kNotFound : Code::kUnavailable,
                fmt::format("cannot open {} of {}: {}", name, api.source, std::strerror(error)));
}

std::vector<DeviceInfo> explain_device(const PortFacts& port, const Route* route, const VerbsConfig& config,
                                       const std::string& detail) {
  const GidChoice choice = choose_gid(port, route, config.gid_index);
  const std::string facts = fmt::format("{}, port {}", detail, port.port);
  std::vector<DeviceInfo> infos;
  infos.reserve(choice.verdicts.size());
  for (const GidVerdict& verdict : choice.verdicts) {
    infos.push_back(
        {.transport = "verbs:" + port.device,
         .detail = fmt::format("{}, GID {}{}, MTU {}", facts, verdict.gid.index, interface_name(verdict.gid.interface),
                               path_mtu(port, verdict.gid, route, config.mtu)),
         .address = verdict.gid.address.to_string(),
         .usable = verdict.usable,
         .reason = verdict.reason});
  }
  const auto chosen = std::find_if(infos.begin(), infos.end(),
                                   [](const DeviceInfo& info) { return info.reason.starts_with("chosen"); });
  if (chosen != infos.end()) std::rotate(infos.begin(), chosen, chosen + 1);
  if (!choice.chosen && infos.empty()) infos.push_back({"verbs:" + port.device, facts, "", false, choice.reason});
  return infos;
}

}  // namespace fairlead::verbs
