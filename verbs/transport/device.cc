#include "verbs/transport/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fairlead/log.h"
#include "transport/check_memory.h"
#include "verbs/discovery/device_list.h"
#include "verbs/transport/cuda_memory.h"
#include "verbs/transport/domain.h"
#include "verbs/transport/endpoint.h"
#include "verbs/transport/message_header.h"

namespace fairlead::verbs {
namespace {

std::uint8_t to_byte(int value) noexcept { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

}  // namespace

Result<std::unique_ptr<VerbsDevice>> VerbsDevice::open(DeviceSource source, const VerbsConfig& config,
                                                       const Clock& clock) {
  const VerbsApi& api = *source.api;
  ibv_context* context = source.context.get();
  auto port = query_port_facts(api, context, source.name, config.port);
  if (!port) return port.error();
  const GidChoice choice = choose_gid(*port, nullptr, config.gid_index);
  if (!choice.chosen) return Status(Code::kUnavailable, choice.reason);
  ibv_device_attr attr{};
  const int error = api.query_device(context, &attr);
  if (error != 0) {
    return Status(Code::kUnavailable,
                  fmt::format("{}: cannot query the device: {}", source.name, std::strerror(error)));
  }
  RegionLimits regions = region_limits(attr);
  regions.pins = !source.software;
  auto limits = queue_limits_for(source.name, config, attr, *port);
  if (!limits) return limits.error();
  ProtectionDomain pd(api, api.alloc_pd(context));
  if (!pd) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{}: cannot allocate a protection domain: {}", source.name, std::strerror(errno)));
  }
  if (limits->one_sided && !source.software && !has_remote_keys(api, pd.get())) {
    limits->one_sided = false;
    log(LogLevel::kWarning, fmt::format("{} gives all memory the same remote key, which no peer can write or read by: "
                                        "data goes as messages (staged mode)",
                                        source.name));
  }
  std::string name = "verbs:" + source.name;
  return std::unique_ptr<VerbsDevice>(new VerbsDevice({.source = std::move(source),
                                                       .config = config,
                                                       .name = std::move(name),
                                                       .limits = *limits,
                                                       .regions = regions,
                                                       .max_cqe = static_cast<std::uint32_t>(std::max(attr.max_cqe, 0)),
                                                       .max_rd_atomic = to_byte(attr.max_qp_init_rd_atom),
                                                       .max_dest_rd_atomic = to_byte(attr.max_qp_rd_atom),
                                                       .pd = std::move(pd),
                                                       .clock = &clock},
                                                      port->bits_per_second));
}

VerbsDevice::VerbsDevice(DeviceParts parts, std::uint64_t bits_per_second)
    : parts_(std::move(parts)), events_(parts_.api(), parts_.source.context.get(), parts_.name) {
  const QueueLimits& limits = parts_.limits;
  capabilities_.one_sided = limits.one_sided;
  capabilities_.write_notifies = limits.one_sided;
  capabilities_.software = parts_.source.software;
  capabilities_.grants_are_entries = parts_.source.software;
  capabilities_.max_region = parts_.regions.largest;
  capabilities_.max_message = limits.message_bytes - kMessageHeaderBytes;
  capabilities_.max_segments = limits.max_segments;
  capabilities_.max_outstanding = limits.send_depth;
  capabilities_.link_bits_per_second = bits_per_second;
}

std::vector<std::string> VerbsDevice::addresses() const {
  const VerbsApi& api = parts_.api();
  const auto port = query_port_facts(api, parts_.source.context.get(), parts_.source.name, parts_.config.port);
  std::vector<std::string> found;
  if (!port) return found;
  for (const GidFacts& gid : port->gids) {
    const bool is_v2 = gid.type == IBV_GID_TYPE_ROCE_V2;
    if (is_v2 && !gid.address.is_loopback() && !gid.address.is_link_local()) found.push_back(gid.address.to_string());
  }
  return found;
}

std::string VerbsDevice::describe() const {
  return fmt::format("{} ({}), port {}", parts_.name, parts_.source.detail, parts_.config.port);
}

Result<ibv_mr*> VerbsDevice::make_region(ibv_pd* pd, const datapath::MemoryDescriptor& memory, Access access) {
  RegionLimits limits = parts_.regions;
  limits.held = usage().registrations;
  const auto* cuda = std::get_if<datapath::CudaMemory>(&memory.kind);
  if (cuda == nullptr) return register_user_memory(parts_.api(), pd, parts_.source.name, memory.bytes, access, limits);
  limits.pins = false;  // nothing of this host's
  return register_cuda_memory(parts_.api(), pd, parts_.source.name, *cuda, memory.bytes, access,
                              parts_.source.peer_memory, limits);
}

void VerbsDevice::drop_region(std::uint64_t handle) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the handle is opaque to the engine, a pointer to us
  MemoryRegion(parts_.api(), reinterpret_cast<ibv_mr*>(handle)).reset();
}

Result<datapath::Registration> VerbsDevice::register_in(ibv_pd* pd, const datapath::MemoryDescriptor& memory) {
  const bool cuda = std::holds_alternative<datapath::CudaMemory>(memory.kind) && !parts_.source.software;
  if (Status known = datapath::check_host_memory(memory, parts_.source.name); !cuda && !known.ok()) return known;
  const bool read_only = allows(memory.access, Access::kLocalReadOnly);
  auto region = make_region(pd, memory, read_only ? Access::kLocalReadOnly : Access::kNone);
  if (!region) return region.error();
  registrations_.fetch_add(1, std::memory_order_relaxed);
  return datapath::Registration{.local = (*region)->lkey, .handle = reinterpret_cast<std::uintptr_t>(*region)};
}

void VerbsDevice::deregister(const datapath::Registration& registration) noexcept {
  drop_region(registration.handle);
  registrations_.fetch_sub(1, std::memory_order_relaxed);
}

Result<datapath::Grant> VerbsDevice::grant_in(ibv_pd* pd, const datapath::MemoryDescriptor& part) {
  auto region = make_region(pd, part, part.access);
  if (!region) return region.error();
  grants_.fetch_add(1, std::memory_order_relaxed);
  return datapath::Grant{.address = reinterpret_cast<std::uintptr_t>(part.bytes.data()),
                         .key = (*region)->rkey,
                         .handle = reinterpret_cast<std::uintptr_t>(*region)};
}

void VerbsDevice::revoke(const datapath::Grant& grant) noexcept {
  drop_region(grant.handle);
  grants_.fetch_sub(1, std::memory_order_relaxed);
}

datapath::DeviceUsage VerbsDevice::usage() const noexcept {
  const std::size_t grants = grants_.load(std::memory_order_relaxed);
  const std::size_t mapped = registrations_.load(std::memory_order_relaxed);
  return {.registrations = mapped + (capabilities_.grants_are_entries ? 0 : grants), .grants = grants};
}

Result<std::unique_ptr<datapath::MemoryDomain>> VerbsDevice::open_domain() { return VerbsDomain::open(*this); }

Result<std::unique_ptr<datapath::MemoryDomain>> VerbsDomain::open(VerbsDevice& device) {
  const DeviceParts& parts = device.parts();
  ProtectionDomain pd(parts.api(), parts.api().alloc_pd(parts.source.context.get()));
  if (!pd) {
    return Status(Code::kResourceExhausted, fmt::format("{}: cannot allocate one more protection domain: {}",
                                                        parts.source.name, std::strerror(errno)));
  }
  return std::unique_ptr<datapath::MemoryDomain>(new VerbsDomain(device, std::move(pd)));
}

ibv_pd* VerbsDevice::pd_of(const datapath::MemoryDomain* domain) const noexcept {
  const auto* own = dynamic_cast<const VerbsDomain*>(domain);
  return own != nullptr ? own->pd() : parts_.pd.get();
}

Result<std::unique_ptr<datapath::Endpoint>> VerbsDevice::open_endpoint() {
  auto endpoint = VerbsEndpoint::open(*this);
  if (!endpoint) return endpoint.error();
  return std::unique_ptr<datapath::Endpoint>(std::move(*endpoint));
}

}  // namespace fairlead::verbs
