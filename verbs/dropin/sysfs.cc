#include "verbs/dropin/sysfs.h"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <vector>

#include "verbs/soft/api/api.h"
#include "verbs/soft/api/per_process.h"

namespace fairlead::dropin {
namespace {

constexpr std::string_view kDevices = "/dev/infiniband/";
constexpr std::string_view kClass = "/sys/class/infiniband/";
constexpr std::string_view kVirtual = "/sys/devices/virtual/infiniband/";

struct OpenContexts {
  std::mutex mutex;                // held while the host's addresses are listed
  std::vector<ibv_context*> list;  // by age
};

OpenContexts& open_contexts() {
  static auto& contexts = *new soft::PerProcess<OpenContexts>;
  return contexts.get();
}

bool take(std::string_view& text, std::string_view prefix) noexcept {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::string interface_name(std::uint32_t index) {
  char name[IF_NAMESIZE] = "";
  return ::if_indextoname(index, name) != nullptr ? name : "";
}

// The kernel's text of a GID: eight groups of four digits.
std::string gid_text(const ibv_gid& gid) {
  std::string text;
  for (std::size_t i = 0; i < 16; i += 2) {
    text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
  }
  return text;
}

// Whether a softroce device has this text in `field`.
template <typename Field>
bool one_of_ours(Field field, std::string_view text) {
  ibv_device** list = soft::api::get_device_list(nullptr);
  bool ours = false;
  for (ibv_device** at = list; at != nullptr && *at != nullptr; ++at) ours = ours || text == (*at)->*field;
  if (list != nullptr) soft::api::free_device_list(list);
  return ours;
}

bool is_character_device(const char* path) {
  std::string_view rest = path != nullptr ? path : "";
  return take(rest, kDevices) && one_of_ours(&ibv_device::dev_name, rest);
}

struct Place {
  std::string_view device;
  std::string_view file;  // below its folder; empty for that itself
};

std::optional<Place> place(const char* path) {
  std::string_view rest = path != nullptr ? path : "";
  if (!take(rest, kClass) && !take(rest, kVirtual)) return std::nullopt;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const Place place{rest.substr(0, slash), rest.substr(std::min(slash + 1, rest.size()))};
  if (!one_of_ours(&ibv_device::name, place.device)) return std::nullopt;
  return place;
}

// `file` is below ports/1.
std::optional<std::string> port_text(ibv_context* context, std::string_view file) {
  const std::size_t slash = file.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view table = file.substr(0, slash);
  std::uint32_t index = 0;
  const auto [end, error] = std::from_chars(file.data() + slash + 1, file.data() + file.size(), index);
  ibv_gid_entry entry{};
  if (error != std::errc() || end != file.data() + file.size()) return std::nullopt;
  if (soft::api::query_gid_ex(context, 1, index, &entry) != 0) return std::nullopt;
  if (table == "gids") return gid_text(entry.gid) + "\n";
  if (table == "gid_attrs/types") return entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2\n" : "IB/RoCE v1\n";
  if (table == "gid_attrs/ndevs") return interface_name(entry.ndev_ifindex) + "\n";
  return std::nullopt;
}

}  // namespace

void add_open_context(ibv_context* context) {
  OpenContexts& contexts = open_contexts();
  const std::lock_guard lock(contexts.mutex);
  contexts.list.push_back(context);
}

void remove_open_context(ibv_context* context) noexcept {
  OpenContexts& contexts = open_contexts();
  const std::lock_guard lock(contexts.mutex);
  std::erase(contexts.list, context);
}

std::optional<std::string> sysfs_text(const char* path) {
  const auto at = place(path);
  if (!at) return std::nullopt;
  if (at->file == "device/numa_node") return "-1\n";
  std::string_view file = at->file;
  if (!take(file, "ports/1/")) return std::nullopt;
  OpenContexts& contexts = open_contexts();
  const std::lock_guard lock(contexts.mutex);
  for (auto open = contexts.list.rbegin(); open != contexts.list.rend(); ++open) {
    if (at->device == (*open)->device->name) return port_text(*open, file);
  }
  return std::nullopt;
}

std::optional<std::string> sysfs_path(const char* path) {
  const auto at = place(path);
  if (!at) return std::nullopt;
  std::string whole = std::filesystem::path(fmt::format("{}{}/{}", kVirtual, at->device, at->file)).lexically_normal();
  if (whole.size() > 1 && whole.back() == '/') whole.pop_back();
  return whole;
}

const char* stand_in(const char* path) {
  if (is_character_device(path)) return "/dev/null";
  const auto at = place(path);
  if (!at) return nullptr;
  if (at->file.empty()) return "/sys/devices/virtual";
  return sysfs_text(path) ? "/proc/version" : nullptr;
}

}  // namespace fairlead::dropin
