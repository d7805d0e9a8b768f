#include "verbs/soft/device/device.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string_view>

#include "base/system/no_cancellation.h"

namespace fairlead::soft {
namespace {

constexpr const char* kCommandFdName = "fairlead-softroce";

// IBTA 14.2.5.6, PortPhysicalState.
std::uint8_t physical_state(LinkState link) noexcept {
  switch (link) {
    case LinkState::kUp:
      return 5;  // link up
    case LinkState::kAwaited:
      return 2;  // polling
    default:
      return 3;  // disabled
  }
}

}  // namespace

ibv_mtu largest_ibv_mtu(std::uint32_t bytes) noexcept {
  int mtu = IBV_MTU_256;
  while (mtu < IBV_MTU_4096 && 128U << (mtu + 1) <= bytes) ++mtu;
  return static_cast<ibv_mtu>(mtu);
}

Device::Device(ibv_device& entry, Profile profile, std::shared_ptr<DeviceCore> core)
    : DeviceBase(core->domain(), profile), core_(std::move(core)), domain_(core_->domain()) {
  verbs_context::context.device = &entry;
  // Only to be known by: there is no kernel behind it (see is_soft_cmd_fd).
  cmd_fd_.reset(::memfd_create(kCommandFdName, MFD_CLOEXEC));
  verbs_context::context.cmd_fd = cmd_fd_.get();
  verbs_context::context.async_fd = async_events().fd();
  verbs_context::context.num_comp_vectors = 1;
  ::pthread_mutex_init(&(verbs_context::context.mutex), nullptr);
  set_context_ops(*this, profile);
  core_->add_listener(async_events());
}

Device::Device(ibv_device& entry, Profile profile, const Clock& clock, std::unique_ptr<PacketPort> port,
               std::uint64_t guid)
    : Device(entry, profile, std::make_shared<DeviceCore>(clock, std::move(port), guid)) {}

void Device::release() noexcept {
  if (references_.fetch_sub(1) != 1) return;
  const NoCancellation to_the_end;
  delete this;
}

Device::~Device() {
  core_->remove_listener(async_events());
  ::pthread_mutex_destroy(&(verbs_context::context.mutex));
}

ibv_mtu Device::active_mtu() const noexcept { return largest_ibv_mtu(core_->largest_mtu()); }

void Device::describe(ibv_device_attr& attr) const noexcept {
  attr = {};
  std::strncpy(attr.fw_ver, profile() == Profile::kFull ? "softroce" : "softroce-pvrdma", sizeof(attr.fw_ver) - 1);
  attr.node_guid = attr.sys_image_guid = __builtin_bswap64(core_->guid());
  attr.max_mr_size = ~std::uint64_t{0};
  attr.page_size_cap = 0xfffff000;
  attr.vendor_id = 0xfa17;
  attr.vendor_part_id = profile() == Profile::kFull ? 1 : 2;
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
  if (profile() == Profile::kFull) {
    attr.device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
    attr.max_mw = MrTable::kMaxWindows;
  }
  // They are atomic to the host's processor too, but UCX 1.13 takes IBV_ATOMIC_GLOB for none; pci_atomic_caps says it.
  attr.atomic_cap = profile() == Profile::kFull ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  attr.max_ah = 1 << 20;  // as many as memory holds; programs take 0 for none
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
  if (profile() != Profile::kFull) return;
  attr.completion_timestamp_mask = ~std::uint64_t{0};
  attr.hca_core_clock = 1'000'000;  // kHz: timestamps are nanoseconds
  attr.pci_atomic_caps.fetch_add = attr.pci_atomic_caps.compare_swap = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP;
  describe(attr.odp_caps);
  attr.max_dm_size = kMaxDeviceMemory;
}

void Device::describe(ibv_odp_caps& caps) const noexcept {
  caps = {};
  if (profile() == Profile::kPvrdma) return;
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
  const LinkState link = core_->link();
  attr.state = link == LinkState::kDown ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = active_mtu();
  attr.gid_tbl_len = kGidTableLength;
  attr.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attr.max_msg_sz = kMaxMessage;
  attr.pkey_tbl_len = 1;
  attr.max_vl_num = 1;
  attr.active_width = 2;   // 4x
  attr.active_speed = 16;  // FDR: what one core moves is of this order
  attr.phys_state = physical_state(link);
  attr.link_layer = IBV_LINK_LAYER_ETHERNET;
  attr.flags = IBV_QPF_GRH_REQUIRED;
}

bool is_soft_cmd_fd(int fd) noexcept {
  std::array<char, 64> path{};
  std::array<char, 64> target{};
  *fmt::format_to_n(path.data(), path.size() - 1, "/proc/self/fd/{}", fd).out = '\0';
  const ssize_t length = ::readlink(path.data(), target.data(), target.size());
  const std::string_view name(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return name.find(kCommandFdName) != std::string_view::npos;
}

}  // namespace fairlead::soft
