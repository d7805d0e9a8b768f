#include "datapath/engine/factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/words.h"
#include "shm/factory.h"
#include "tcp_fallback/factory.h"
#include "verbs/transport/factory.h"

namespace fairlead::datapath {
namespace {

constexpr std::string_view kVerbsPrefix = "verbs:";

constexpr std::string_view kSoftware = "verbs:soft";
constexpr std::size_t kMostOfAuto = 5;  // shm, and as many NICs as are left
const std::string kFirstSoftware = "verbs:soft0";

bool is_software(const DeviceInfo& device) { return device.transport.starts_with(kSoftware); }

/// Of a device that is not open.
Offer offer_named(const std::string& name) {
  return {name, name.substr(0, name.find(':')), name.starts_with(kSoftware), {}};
}

/// Everything, in order of preference.
std::vector<std::string> preferred(const EngineConfig& config) {
  std::vector<std::string> names;
  if (config.transport == "auto") {
    names.emplace_back("shm");
    // Software verbs rank below tcp; they are opened when a peer wants to meet there.
    for (const DeviceInfo& device : verbs::list_system_devices(config.verbs)) {
      const bool listed = !names.empty() && names.back() == device.transport;
      if (device.usable && !is_software(device) && !listed && names.size() < kMostOfAuto)
        names.push_back(device.transport);
    }
    names.emplace_back("tcp");
    return names;
  }
  for (const std::string& word : words_of(config.transport)) {
    if (std::ranges::find(names, word) == names.end()) names.push_back(word);
  }
  if (config.failover && std::ranges::find(names, "tcp") == names.end()) names.emplace_back("tcp");
  return names;
}

}  // namespace

/// Of "verbs" alone, what it is shows when it is open.
std::vector<std::string> transports_to_open(const EngineConfig& config) {
  const auto is_left_out = [&](const std::string& name) {
    return name != "verbs" && !why_not(policy_of(config), offer_named(name)).empty();
  };
  std::vector<std::string> names = preferred(config);
  std::erase_if(names, is_left_out);
  if (names.empty() && config.transport == "auto" && !is_left_out(kFirstSoftware)) names.emplace_back(kFirstSoftware);
  return names;
}

Status validate_transports(const EngineConfig& config) { return verbs::validate(config.verbs); }

Result<std::unique_ptr<Device>> open_device(const std::string& name, const EngineConfig& config) {
  if (name == "tcp") return tcp_fallback::open_device(config.tcp);
  if (name == "shm") {
    ShmConfig shm = config.shm;
    shm.arenas = gives_pool(config);
    return shm::open_device(shm);
  }
  if (name == "verbs") return verbs::open_device("", config.verbs);
  if (name.starts_with(kVerbsPrefix)) return verbs::open_device(name.substr(kVerbsPrefix.size()), config.verbs);
  return Status(Code::kInvalidArgument,
                fmt::format("transport '{}' is unknown; it is auto, verbs, verbs:DEVICE, shm or tcp", name));
}

bool gives_pool(const EngineConfig& config) {
  if (!config.shm.arenas || !config.keys_file.empty()) return false;
  const std::vector<std::string> words = words_of(config.transport);
  return (config.transport == "auto" || std::ranges::find(words, "shm") != words.end()) &&
         why_not(policy_of(config), offer_named("shm")).empty();
}

Offer offer_of(const Device& device) {
  const std::string name(device.name()), place = device.place();
  const std::string kind = name.substr(0, name.find(':'));
  return {name, place.empty() ? kind : kind + kPlace + place, device.capabilities().software, device.addresses()};
}

std::vector<DeviceInfo> list_devices(const EngineConfig& config, std::string_view peer) {
  std::vector<DeviceInfo> devices = verbs::list_devices(config.verbs, peer);
  const Result<std::string> place = shm::meeting_place(config.shm);
  devices.push_back({"shm", "memory of this host", place ? *place : "", place.has_value(),
                     place ? "reaches this user's processes on this host" : place.error().message()});
  devices.push_back({"tcp", "kernel sockets", "all addresses", true, "works everywhere"});
  // Whatever else there is to say of what is left out, it is not used.
  for (DeviceInfo& device : devices) {
    std::string why = why_not(policy_of(config), offer_named(device.transport));
    if (why.empty()) continue;
    device.usable = false;
    device.reason = std::move(why);
  }
  return devices;
}

}  // namespace fairlead::datapath
