#include "verbs/soft/device.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "verbs/soft/port/udp_port.h"

namespace fairlead::soft {
namespace {

// Never destroyed: a device that a program leaves open at exit is watched to the end.
const Clock& steady_clock() {
  static const Clock& clock = *new SteadyClock;
  return clock;
}

std::uint64_t random64() noexcept {
  std::uint64_t value = 0;
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}

ibv_mtu to_verbs(std::uint32_t bytes) noexcept {
  int mtu = IBV_MTU_256;
  while (mtu < IBV_MTU_4096 && 128U << (mtu + 1) <= bytes) ++mtu;
  return static_cast<ibv_mtu>(mtu);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Result<Gid> parse_address(const std::string& text) {
  in_addr parsed{};
  if (::inet_pton(AF_INET, text.c_str(), &parsed) != 1) {
    return {Code::kInvalidArgument,
            fmt::format("softroce address '{}' is no IPv4 address; give one of this host, such as 127.0.0.7", text)};
  }
  return Gid::from_ipv4(ntohl(parsed.s_addr));
}

std::uint64_t random_guid() noexcept { return (random64() & ~(std::uint64_t{1} << 56)) | std::uint64_t{2} << 56; }

Result<std::unique_ptr<Device>> Device::open(ibv_device& entry, const DeviceConfig& config, std::uint64_t guid) {
  auto spec = parse_port_spec(config.packet_io);
  if (!spec) return spec.error();
  const std::string mode = environment("FAIRLEAD_SOFT_CONGESTION");
  const auto congestion = parse_congestion_mode(mode.empty() ? "auto" : mode);
  if (!congestion) return congestion.error();
  Gid own;
  std::unique_ptr<UdpPort> port;
  std::optional<std::uint8_t> partition;
  if (config.address.empty()) {
    auto bound = bind_free_loopback(own);
    if (!bound) return bound.error();
    port = std::make_unique<UdpPort>(own, std::move(*bound));
  } else {
    auto parsed = parse_address(config.address);
    if (!parsed) return parsed.error();
    own = *parsed;
    auto place = SharedAddress::join(own);
    if (!place) return place.error();
    partition = (*place)->member();
    port = std::make_unique<UdpPort>(own, std::move(*place));
  }
  if (port->max_mtu() == 0) {
    return {Code::kUnavailable,
            fmt::format("the interface of {} is too small for any RoCE path MTU; raise its MTU to 320 or more",
                        to_string(own))};
  }
  if (spec->pcap.empty()) spec->pcap = environment("FAIRLEAD_PCAP");
  auto decorated = decorate(std::move(port), *spec);
  if (!decorated) return decorated.error();
  auto device = std::make_unique<Device>(entry, config.profile, steady_clock(), std::move(*decorated), guid);
  if (partition) device->domain_.set_partition(*partition);
  device->port_spec_ = *spec;
  device->congestion_ = *congestion;
  device->set_congestion(choose_congestion(*congestion, device->gids_[1].address));
  device->domain_.counter_page.publish(config.name, to_string(own));
  device->watcher_ = std::make_unique<Watcher>(device->domain_);
  return device;
}

Device::Device(ibv_device& entry, Profile profile, const Clock& clock, std::unique_ptr<PacketPort> port,
               std::uint64_t guid)
    : verbs_context{}, profile_(profile), guid_(guid), domain_(clock, random64()) {
  verbs_context::context.device = &entry;
  verbs_context::context.cmd_fd = -1;
  verbs_context::context.async_fd = async_events_.fd();
  verbs_context::context.num_comp_vectors = 1;
  ::pthread_mutex_init(&(verbs_context::context.mutex), nullptr);
  set_context_ops(*this, profile_);

  list_gids(port->address());
  gids_[1].port = &domain_.add_port(std::move(port));
}

Device::~Device() {
  watcher_.reset();
  ::pthread_mutex_destroy(&(verbs_context::context.mutex));
}

void Device::list_gids(const Gid& own) {
  Gid link_local;
  link_local.bytes[0] = 0xfe;
  link_local.bytes[1] = 0x80;
  for (unsigned i = 0; i < 8; ++i) link_local.bytes[8 + i] = static_cast<std::uint8_t>(guid_ >> (56 - 8 * i));
  InterfaceAddress own_address = interface_of(own);
  gids_.push_back({{link_local, own_address.interface, own_address.index, own_address.mtu, own_address.loopback}});
  gids_.push_back({std::move(own_address)});
  for (InterfaceAddress& address : host_addresses()) {
    if (address.loopback || address.gid == own || gids_.size() == kGidTableLength) continue;
    gids_.push_back({std::move(address)});
  }
}

void Device::watch() {
  if (watcher_) watcher_->start();
}

ibv_gid_entry Device::gid(std::uint32_t index) const noexcept {
  ibv_gid_entry entry{};
  if (index < gids_.size()) {
    entry = {gids_[index].address.gid.to_verbs(), index, 1, IBV_GID_TYPE_ROCE_V2, gids_[index].address.index};
  }
  return entry;
}

Result<PortSlot*> Device::port_of_gid(std::uint32_t index) {
  if (index >= gids_.size()) {
    return {Code::kInvalidArgument,
            fmt::format("sgid_index {} is empty; this device has GIDs 0..{}", index, gids_.size() - 1)};
  }
  GidSlot& slot = gids_[index];
  if (slot.port != nullptr) return slot.port;
  if (!slot.address.gid.is_ipv4()) {
    return {Code::kInvalidArgument,
            fmt::format("sgid_index {} is {}, which no socket can send from; use index 1 or another IPv4-mapped GID",
                        index, to_string(slot.address.gid))};
  }
  auto socket = bind_roce_port(slot.address.gid, PortUse::kReceive);
  if (!socket) return socket.error();
  auto decorated = decorate(std::make_unique<UdpPort>(slot.address.gid, std::move(*socket)), port_spec_);
  if (!decorated) return decorated.error();
  slot.port = &domain_.add_port(std::move(*decorated));
  slot.port->congestion = choose_congestion(congestion_, slot.address);
  domain_.wake_watcher();
  return slot.port;
}

void Device::describe(ibv_device_attr& attr) const noexcept {
  attr = {};
  std::strncpy(attr.fw_ver, profile_ == Profile::kFull ? "softroce" : "softroce-pvrdma", sizeof(attr.fw_ver) - 1);
  attr.node_guid = attr.sys_image_guid = __builtin_bswap64(guid_);
  attr.max_mr_size = ~std::uint64_t{0};
  attr.page_size_cap = 0xfffff000;
  attr.vendor_id = 0xfa17;
  attr.vendor_part_id = profile_ == Profile::kFull ? 1 : 2;
  attr.hw_ver = 1;
  attr.max_qp = static_cast<int>(domain_.queue_pair_limit());
  attr.max_qp_wr = kMaxQueuePairWrs;
  attr.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE;
  attr.max_sge = attr.max_sge_rd = kMaxSegments;
  attr.max_cq = 1 << 16;
  attr.max_cqe = kMaxCompletions;
  attr.max_mr = MrTable::kMaxKeys;
  attr.max_pd = 1 << 16;
  attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = kMaxReads;
  attr.max_res_rd_atom = kMaxReads << 8;
  if (profile_ == Profile::kFull) {
    attr.device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    attr.max_mw = MrTable::kMaxKeys;
  }
  attr.atomic_cap = profile_ == Profile::kFull ? IBV_ATOMIC_GLOB : IBV_ATOMIC_NONE;
  attr.max_srq = 1 << 16;
  attr.max_srq_wr = kMaxQueuePairWrs;
  attr.max_srq_sge = kMaxSegments;
  attr.max_pkeys = 1;
  attr.local_ca_ack_delay = 15;
  attr.phys_port_cnt = 1;
}

void Device::describe(ibv_device_attr_ex& attr) const noexcept {
  attr = {};
  describe(attr.orig_attr);
  attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags;
  attr.phys_port_cnt_ex = attr.orig_attr.phys_port_cnt;
  if (profile_ != Profile::kFull) return;
  attr.completion_timestamp_mask = ~std::uint64_t{0};
  attr.hca_core_clock = 1'000'000;  // kHz: timestamps are nanoseconds
}

void Device::describe(ibv_odp_caps& caps) const noexcept {
  caps = {};
  if (profile_ == Profile::kPvrdma) return;
  // Memory is reached as a program reaches it, so every region is paged on demand, whether it asks for that or not.
  caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  constexpr std::uint32_t kMessages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  caps.per_transport_caps.rc_odp_caps =
      kMessages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
  caps.per_transport_caps.uc_odp_caps = kMessages | IBV_ODP_SUPPORT_WRITE;
  caps.per_transport_caps.ud_odp_caps = kMessages;
}

void Device::describe(ibv_port_attr& attr) const noexcept {
  attr = {};
  attr.state = IBV_PORT_ACTIVE;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = to_verbs(largest_path_mtu(gids_[1].address.mtu));
  attr.gid_tbl_len = kGidTableLength;
  attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attr.max_msg_sz = kMaxMessage;
  attr.pkey_tbl_len = 1;
  attr.max_vl_num = 1;
  attr.active_width = 2;   // 4x
  attr.active_speed = 16;  // FDR: what one core moves is of this order
  attr.phys_state = 5;     // link up
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
}

}  // namespace fairlead::soft
