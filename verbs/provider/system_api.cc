#include "verbs/provider/system_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sys/utsname.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "base/symbols.h"
#include "fairlead/log.h"

namespace fairlead::verbs {
namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

using QueryGidEx = int (*)(ibv_context*, std::uint32_t port, std::uint32_t index, ibv_gid_entry*, std::uint32_t flags,
                           std::size_t entry_size);
using QueryPort = int (*)(ibv_context*, std::uint8_t port, _compat_ibv_port_attr*);

// Set before the table is handed out, constant afterwards.
QueryGidEx g_query_gid_ex = nullptr;  // null: libibverbs before 32
QueryPort g_query_port = nullptr;
VerbsApi g_api{};

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What libibverbs before 32 does not offer, the kernel shows in sysfs.
int query_gid_by_sysfs(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry) {
  *entry = {};
  const int error = g_api.query_gid(context, static_cast<std::uint8_t>(port), static_cast<int>(index), &entry->gid);
  if (error != 0) return error > 0 ? error : ENODATA;
  const std::string attributes = fmt::format("{}/ports/{}/gid_attrs", context->device->ibdev_path, port);
  const std::string type = read_line(fmt::format("{}/types/{}", attributes, index));
  if (type.empty()) return ENODATA;
  entry->gid_type = type == "RoCE v2" ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
  entry->gid_index = index;
  entry->port_num = port;
  const std::string interface = read_line(fmt::format("{}/ndevs/{}", attributes, index));
  entry->ndev_ifindex = interface.empty() ? 0 : ::if_nametoindex(interface.c_str());
  return 0;
}

int query_gid_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry) {
  if (g_query_gid_ex == nullptr) return query_gid_by_sysfs(context, port, index, entry);
  return g_query_gid_ex(context, port, index, entry, 0, sizeof *entry);
}

// The exported symbol writes the fields of an old, shorter structure.
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr) {
  std::memset(attr, 0, sizeof *attr);
  return g_query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(attr));
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) { return ::ibv_modify_cq(cq, attr); }  // inline in verbs.h

// There libibverbs keeps what is registered out of children, if it is told so before anything is. Of a distribution's
// kernel with an older number it knows whether that is needed; a libibverbs before 35 never does.
void survive_forks(int (*fork_init)()) {
  utsname system{};
  if (::uname(&system) == 0 && copies_pinned_pages(system.release)) return;
  const int error = fork_init != nullptr ? fork_init() : ENOSYS;
  if (error != 0) {
    log(LogLevel::kInfo, fmt::format("{}: ibv_fork_init: {}; on Linux {} a program that forks may send bytes from "
                                     "before the fork",
                                     kLibrary, std::strerror(error), system.release));
  }
}

Status load() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return {Code::kNotFound, fmt::format("no system verbs: {}; install libibverbs1 and ibverbs-providers to use RDMA "
                                         "hardware",
                                         ::dlerror())};
  }
  Symbols symbols(library);
  g_api.source = kLibrary;
  symbols.required(g_api.get_device_list, "ibv_get_device_list");
  symbols.required(g_api.free_device_list, "ibv_free_device_list");
  symbols.required(g_api.get_device_name, "ibv_get_device_name");
  symbols.required(g_api.open_device, "ibv_open_device");
  symbols.required(g_api.close_device, "ibv_close_device");
  symbols.required(g_api.query_device, "ibv_query_device");
  symbols.required(g_query_port, "ibv_query_port");
  symbols.required(g_api.query_gid, "ibv_query_gid");
  symbols.optional(g_query_gid_ex, "_ibv_query_gid_ex");
  symbols.required(g_api.alloc_pd, "ibv_alloc_pd");
  symbols.required(g_api.dealloc_pd, "ibv_dealloc_pd");
  symbols.required(g_api.reg_mr, "ibv_reg_mr");
  symbols.required(g_api.dereg_mr, "ibv_dereg_mr");
  symbols.optional(g_api.reg_dmabuf_mr, "ibv_reg_dmabuf_mr");
  int (*fork_init)() = nullptr;
  symbols.optional(fork_init, "ibv_fork_init");
  symbols.required(g_api.create_comp_channel, "ibv_create_comp_channel");
  symbols.required(g_api.destroy_comp_channel, "ibv_destroy_comp_channel");
  symbols.required(g_api.create_cq, "ibv_create_cq");
  symbols.required(g_api.destroy_cq, "ibv_destroy_cq");
  symbols.required(g_api.get_cq_event, "ibv_get_cq_event");
  symbols.required(g_api.ack_cq_events, "ibv_ack_cq_events");
  symbols.required(g_api.create_qp, "ibv_create_qp");
  symbols.required(g_api.modify_qp, "ibv_modify_qp");
  symbols.required(g_api.query_qp, "ibv_query_qp");
  symbols.required(g_api.destroy_qp, "ibv_destroy_qp");
  symbols.required(g_api.get_async_event, "ibv_get_async_event");
  symbols.required(g_api.ack_async_event, "ibv_ack_async_event");
  g_api.query_port = &query_port;
  g_api.query_gid_ex = &query_gid_entry;
  g_api.modify_cq = &modify_cq;
  g_api.take_refusal = [] { return std::string(); };               // an errno is all it says
  g_api.activity = [](ibv_context*) { return DeviceActivity(); };  // it works by itself
  if (symbols.missing() != nullptr) {
    return {Code::kUnimplemented,
            fmt::format("{} has no {}; install libibverbs1 of rdma-core 22 or later", kLibrary, symbols.missing())};
  }
  survive_forks(fork_init);
  return {};
}

}  // namespace

bool copies_pinned_pages(std::string_view release) noexcept {
  unsigned major = 0, minor = 0;
  const char* const end = release.data() + release.size();
  const auto [dot, error] = std::from_chars(release.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.') return false;
  std::from_chars(dot + 1, end, minor);
  return major > 5 || (major == 5 && minor >= 12);
}

Result<const VerbsApi*> system_api() {
  static const Status kLoaded = load();
  if (!kLoaded.ok()) return kLoaded;
  return &g_api;
}

}  // namespace fairlead::verbs
