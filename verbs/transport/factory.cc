#include "verbs/transport/factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "base/words.h"
#include "verbs/discovery/device_list.h"
#include "verbs/provider/system_api.h"
#include "verbs/soft/api/soft.h"
#include "verbs/transport/cuda_memory.h"
#include "verbs/transport/device.h"

namespace fairlead::verbs {
namespace {

constexpr std::string_view kSoftDevice = "soft0";

// "soft0", or "soft0q1": the second lane of it.
struct SoftName {
  std::string_view device;
  std::size_t number = 0;
  unsigned lane = 0;
};

std::optional<SoftName> parse_soft(std::string_view name) {
  constexpr std::string_view kPrefix = "soft";
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t end = std::min(name.find('q'), name.size());
  const std::string_view number = name.substr(std::min(kPrefix.size(), end), end - std::min(kPrefix.size(), end));
  if (!name.starts_with(kPrefix) || number.empty() || number.find_first_not_of(kDigits) != number.npos) {
    return std::nullopt;
  }
  SoftName parsed{name.substr(0, end)};
  if (std::from_chars(number.data(), number.data() + number.size(), parsed.number).ec != std::errc())
    return std::nullopt;
  if (end == name.size()) return parsed;
  const auto [last, error] = std::from_chars(name.data() + end + 1, name.data() + name.size(), parsed.lane);
  if (error != std::errc() || last != name.data() + name.size()) return std::nullopt;
  return parsed;
}

bool is_soft(std::string_view name) { return parse_soft(name).has_value(); }

Result<soft::DeviceConfig> soft_config(std::string_view name, const VerbsConfig& config) {
  auto profile = soft::parse_profile(config.profile);
  if (!profile) return profile.error();
  const SoftName parsed = parse_soft(name).value_or(SoftName{name});
  const std::vector<std::string> addresses = words_of(config.soft_address);
  std::string address;  // one is for whichever device is named
  if (addresses.size() == 1) address = addresses.front();
  if (addresses.size() > parsed.number) address = addresses[parsed.number];
  return soft::DeviceConfig{.name = std::string(parsed.device),
                            .profile = *profile,
                            .packet_io = config.packet_io,
                            .address = address,
                            .lane = parsed.lane};
}

Result<ibv_device*> find_soft(std::string_view name, const VerbsConfig& config) {
  const auto wanted = soft_config(name, config);
  if (!wanted) return wanted.error();
  return soft::find_or_add_device(*wanted);
}

Result<DeviceSource> open_soft(std::string_view name, const VerbsConfig& config) {
  auto found = find_soft(name, config);
  if (!found) return found.error();
  const VerbsApi& api = soft::verbs_api();
  auto context = soft::open_device(*found);
  if (!context) {
    return Status(context.error().code(), fmt::format("cannot open {}: {}", name, context.error().message()));
  }
  return DeviceSource{
      .api = &api,
      .context = DeviceContext(api, *context),
      .name = std::string(name),
      .detail = fmt::format("softroce, packet I/O {}{}, profile {}", config.packet_io,
                            soft::crosses_memory(config.packet_io) ? " and memory of this host" : "", config.profile),
      .software = true};
}

Result<DeviceSource> open_system(const std::string& name) {
  auto api = system_api();
  if (!api) return api.error();
  auto context = open_by_name(**api, name);
  if (!context) return context.error();
  return DeviceSource{.api = *api,
                      .context = std::move(*context),
                      .name = name,
                      .detail = (*api)->source,
                      .peer_memory = has_peer_memory()};
}

std::vector<std::string> system_names() {
  auto api = system_api();
  return api ? device_names(**api) : std::vector<std::string>();
}

std::string all_names() {
  std::string text;
  for (const std::string& name : system_names()) text += name + ", ";
  return text + std::string(kSoftDevice);
}

// The fastest device of the system that has a usable GID; empty if there is none.
std::string best_system_device(const VerbsConfig& config) {
  std::string best;
  std::uint64_t best_speed = 0;
  for (const std::string& name : system_names()) {
    auto device = open_system(name);
    if (!device) continue;
    auto port = query_port_facts(*device->api, device->context.get(), name, config.port);
    if (!port || !choose_gid(*port, nullptr, config.gid_index).chosen) continue;
    if (best.empty() || port->bits_per_second > best_speed) {
      best = name;
      best_speed = port->bits_per_second;
    }
  }
  return best;
}

// `peer`: numeric; empty: none in particular.
void list_device(const std::string& name, const Result<DeviceSource>& device, const VerbsConfig& config,
                 std::string_view peer, std::vector<DeviceInfo>& out) {
  if (!device) {
    out.push_back({"verbs:" + name, "", "", false, device.error().message()});
    return;
  }
  auto port = query_port_facts(*device->api, device->context.get(), name, config.port);
  if (!port) {
    out.push_back({"verbs:" + name, device->detail, "", false, port.error().message()});
    return;
  }
  std::optional<Route> route;
  if (!peer.empty()) {
    auto found = route_to(peer, "");
    if (!found) {
      out.push_back({"verbs:" + name, device->detail, "", false, found.error().message()});
      return;
    }
    route = *found;
  }
  auto lines = explain_device(*port, route ? &*route : nullptr, config, device->detail);
  out.insert(out.end(), std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end()));
}

}  // namespace

Result<std::unique_ptr<datapath::Device>> open_device(std::string_view device, const VerbsConfig& config) {
  std::string name(device);
  if (name.empty()) name = best_system_device(config);
  if (name.empty()) name = kSoftDevice;
  if (!is_soft(name)) {
    const auto names = system_names();
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return Status(Code::kNotFound, fmt::format("no verbs device '{}'; this host has: {}", name, all_names()));
    }
  }
  auto opened = is_soft(name) ? open_soft(name, config) : open_system(name);
  if (!opened) return opened.error();
  auto made = VerbsDevice::open(std::move(*opened), config);
  if (!made) return made.error();
  return Result<std::unique_ptr<datapath::Device>>(std::move(*made));
}

Status validate(const VerbsConfig& config) { return find_soft(kSoftDevice, config).status(); }

std::vector<DeviceInfo> list_system_devices(const VerbsConfig& config, std::string_view peer) {
  std::vector<DeviceInfo> out;
  for (const std::string& name : system_names()) list_device(name, open_system(name), config, peer, out);
  return out;
}

std::vector<DeviceInfo> list_devices(const VerbsConfig& config, std::string_view peer) {
  std::vector<DeviceInfo> out = list_system_devices(config, peer);
  soft::DeviceConfig soft{.name = std::string(kSoftDevice), .packet_io = config.packet_io, .address = ""};
  std::vector<Result<DeviceSource>> lanes;  // open until all are listed: with the last one the port closes
  for (const unsigned count = soft::lanes(soft); soft.lane < count; ++soft.lane) {
    const std::string name = soft::device_name(soft);
    lanes.push_back(open_soft(name, config));
    list_device(name, lanes.back(), config, peer, out);
  }
  return out;
}

}  // namespace fairlead::verbs
