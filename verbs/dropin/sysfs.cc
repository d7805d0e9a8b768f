#include "verbs/dropin/sysfs.h"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "verbs/soft/api.h"

namespace fairlead::dropin {
namespace {

constexpr std::string_view kDevices = "/dev/infiniband/";
constexpr std::string_view kClass = "/sys/class/infiniband/";

struct OpenContexts {
  std::mutex mutex;
  std::vector<ibv_context*> list;  // by age
};

OpenContexts& open_contexts() {
  static OpenContexts& contexts = *new OpenContexts;
  return contexts;
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

bool is_character_device(const char* path) noexcept {
  std::string_view rest = path != nullptr ? path : "";
  if (!take(rest, kDevices)) return false;
  bool ours = false;
  ibv_device** list = soft::api::get_device_list(nullptr);
  for (ibv_device** at = list; at != nullptr && *at != nullptr; ++at) ours = ours || rest == (*at)->dev_name;
  if (list != nullptr) soft::api::free_device_list(list);
  return ours;
}

std::optional<std::string> sysfs_text(const char* path) {
  std::string_view rest = path != nullptr ? path : "";
  if (!take(rest, kClass)) return std::nullopt;
  OpenContexts& contexts = open_contexts();
  const std::lock_guard lock(contexts.mutex);
  for (auto at = contexts.list.rbegin(); at != contexts.list.rend(); ++at) {
    std::string_view file = rest;
    if (take(file, (*at)->device->name) && take(file, "/ports/1/")) return port_text(*at, file);
  }
  return std::nullopt;
}

}  // namespace fairlead::dropin
