#include "verbs/soft/port/dpdk/eth_device.h"

#include <pthread.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "verbs/soft/port/dpdk/eal.h"
#include "verbs/soft/port/dpdk/mbuf_stack.h"

namespace fairlead::dpdk {
namespace {

constexpr std::uint16_t kDescriptors = 1024;
constexpr std::size_t kMostBacklog = 512;
constexpr unsigned kMoreBuffers = kMostBacklog + 256;  // bursts on their way through us
// Three quarters of memif's ring. With fewer the sender runs dry while the receiver works on a burst; a full ring makes
// frames wait in the backlog, which halves the rate of small ones.
constexpr std::size_t kPeerSlots = 192;
constexpr unsigned kTendsToReconnect = 100;
constexpr std::uint32_t kLeastMtu = 320;  // of path MTU 256

// Counts forks: what was opened before the last one is the parent's.
std::atomic<int> generation{0};

}  // namespace

int EthDevice::current_process() noexcept {
  static const int watched = ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  static_cast<void>(watched);
  return generation.load(std::memory_order_relaxed);
}

bool EthDevice::inherited() const noexcept { return generation.load(std::memory_order_relaxed) != owner_; }

std::unique_ptr<EthDevice> EthDevice::open(const DriverPlan& plan, std::uint32_t mtu, std::string& why) {
  std::uint16_t existing = 0;
  if (rte_eth_dev_get_port_by_name(plan.name.c_str(), &existing) == 0) {
    why = plan.name + " is in use in this process; give another name or device (net_memif1)";
    return nullptr;
  }
  forget_log();
  const int probed = rte_dev_probe(plan.device.c_str());
  if (probed != 0) {
    if (!plan.driver.empty() && !driver_loaded(plan.driver)) {
      why = "DPDK has no driver '" + plan.driver + "' here; if that is its name, apt-get install " +
            package_of(plan.driver);
    } else {
      why = "DPDK cannot open " + plan.device + " (" + rte_strerror(-probed) + "): " + recent_log() + plan.needs;
    }
    return nullptr;
  }
  auto device = std::unique_ptr<EthDevice>(new EthDevice(plan));
  if (rte_eth_dev_get_port_by_name(plan.name.c_str(), &device->port_) != 0) {
    device->port_ = RTE_MAX_ETHPORTS;
    why = plan.name + " is no Ethernet device of DPDK's";
    return nullptr;
  }
  if (!device->set_up(mtu, why)) return nullptr;
  return device;
}

bool EthDevice::set_up(std::uint32_t mtu, std::string& why) {
  const auto fail = [&](const char* what, int error) {
    why =
        plan_.name + ": " + what + " (" + rte_strerror(error < 0 ? -error : error) + "): " + recent_log() + plan_.needs;
    return false;
  };
  rte_eth_dev_info facts{};
  if (const int error = rte_eth_dev_info_get(port_, &facts); error != 0) return fail("tells nothing of itself", error);
  rte_eth_conf conf{};
  const std::uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
  const std::uint32_t most = facts.max_rx_pktlen > overhead ? facts.max_rx_pktlen - overhead : mtu;
  conf.rxmode.mtu = std::min({mtu, most, std::uint32_t{facts.max_mtu}});
  info_.mtu = plan_.mtu != 0 ? plan_.mtu : conf.rxmode.mtu;
  if (info_.mtu < kLeastMtu) {
    why = plan_.name + " carries packets of " + std::to_string(info_.mtu) + " bytes, and RoCE v2 needs " +
          std::to_string(kLeastMtu) + ": raise its MTU or buffer size (bsize, framesz)";
    return false;
  }
  if (const int error = rte_eth_dev_configure(port_, 1, 1, &conf); error != 0)
    return fail("refuses to be set up", error);

  std::uint16_t receives = kDescriptors;
  std::uint16_t sends = kDescriptors;
  rte_eth_dev_adjust_nb_rx_tx_desc(port_, &receives, &sends);
  const unsigned buffers = unsigned{receives} + sends + kMoreBuffers;
  pool_ = create_mbuf_stack("fl_" + std::to_string(port_) + "_" + std::to_string(generation.load()), buffers,
                            static_cast<std::uint16_t>(plan_.room));
  if (pool_ == nullptr) {
    why = plan_.name + " needs " + std::to_string(buffers) + " packet buffers of " + std::to_string(plan_.room) +
          " bytes, for which there is no memory (" + rte_strerror(rte_errno) +
          "); give the first port of the process more: memory=MEGABYTES";
    return false;
  }
  const int node = rte_eth_dev_socket_id(port_);
  if (int error = rte_eth_rx_queue_setup(port_, 0, receives, static_cast<unsigned>(node), nullptr, pool_); error != 0) {
    return fail("refuses a receive queue", error);
  }
  if (int error = rte_eth_tx_queue_setup(port_, 0, sends, static_cast<unsigned>(node), nullptr); error != 0) {
    return fail("refuses a transmit queue", error);
  }
  if (plan_.memif) gate_ = std::make_unique<ControlGate::Port>();
  // A client of memif does not start without its server; tend() tries again.
  if (const int error = start(); error != 0 && !plan_.memif_client) return fail("does not start", error);
  // Questions over IPv6 come to multicast addresses. Virtual devices without filters refuse both, and need neither.
  if (rte_eth_allmulticast_enable(port_) != 0) rte_eth_promiscuous_enable(port_);

  rte_ether_addr mac{};
  rte_eth_macaddr_get(port_, &mac);
  std::memcpy(info_.mac.bytes.data(), mac.addr_bytes, sizeof(mac.addr_bytes));
  if (!info_.mac.is_station()) rte_eth_random_addr(info_.mac.bytes.data());
  rte_eth_link link{};
  if (rte_eth_link_get_nowait(port_, &link) == 0 && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN) {
    info_.megabits = link.link_speed;
  }
  const std::uint32_t slots = plan_.receive_slots != 0 ? plan_.receive_slots : receives;
  info_.receive_bytes = std::size_t{slots} * info_.mtu / 2;
  // What the peer's ring does not take waits in the backlog.
  if (plan_.waits) info_.peer_slots = kPeerSlots;
  return true;
}

int EthDevice::start() noexcept {
  const auto try_it = [this] { return rte_eth_dev_start(port_); };
  const int error = gate_ ? gate_->alone(try_it) : try_it();
  started_ = error == 0;
  return error;
}

EthDevice::~EthDevice() {
  if (inherited()) {
    static_cast<void>(gate_.release());  // its mutex may be held for ever here
    return;
  }
  if (received_count_ > 0) rte_pktmbuf_free_bulk(received_.data(), received_count_);
  if (reserved_count_ > 0) rte_pktmbuf_free_bulk(reserved_.data(), reserved_count_);
  for (rte_mbuf* mbuf : backlog_) rte_pktmbuf_free(mbuf);
  if (port_ != RTE_MAX_ETHPORTS) {
    const auto close = [this] {
      rte_eth_dev_info facts{};
      rte_eth_dev_info_get(port_, &facts);
      if (started_) rte_eth_dev_stop(port_);
      if (facts.device != nullptr) rte_dev_remove(facts.device);  // closes the port
    };
    gate_ ? gate_->alone(close) : close();
  }
  rte_mempool_free(pool_);
}

std::size_t EthDevice::receive(std::span<std::span<const std::byte>> frames) noexcept {
  if (inherited() || !started_) return 0;
  if (received_count_ > 0) rte_pktmbuf_free_bulk(received_.data(), received_count_);
  received_count_ = 0;
  if (!backlog_.empty()) flush_backlog();
  if (gate_ && !gate_->enter()) return 0;
  received_count_ =
      rte_eth_rx_burst(port_, 0, received_.data(), static_cast<std::uint16_t>(std::min(frames.size(), kBurst)));
  if (gate_) gate_->leave();
  std::size_t count = 0;
  for (std::uint16_t i = 0; i < received_count_; ++i) {
    const rte_mbuf* mbuf = received_[i];
    if (mbuf->nb_segs != 1) continue;  // longer than any frame of ours
    frames[count++] = {rte_pktmbuf_mtod(mbuf, const std::byte*), mbuf->data_len};
  }
  return count;
}

std::size_t EthDevice::reserve(std::span<std::byte*> rooms) noexcept {
  if (inherited()) return 0;
  const auto count = static_cast<std::uint16_t>(std::min(rooms.size(), kBurst));
  if (rte_pktmbuf_alloc_bulk(pool_, reserved_.data(), count) != 0) return 0;
  reserved_count_ = count;
  for (std::uint16_t i = 0; i < count; ++i) rooms[i] = rte_pktmbuf_mtod(reserved_[i], std::byte*);
  return count;
}

std::size_t EthDevice::send(std::span<const std::uint32_t> sizes) noexcept {
  std::array<rte_mbuf*, kBurst> leaving;
  std::uint16_t count = 0;
  for (std::uint16_t i = 0; i < reserved_count_; ++i) {
    rte_mbuf* mbuf = reserved_[i];
    const std::uint32_t size = i < sizes.size() ? sizes[i] : 0;
    if (size == 0) {
      rte_pktmbuf_free(mbuf);
      continue;
    }
    mbuf->data_len = static_cast<std::uint16_t>(size);
    mbuf->pkt_len = size;
    leaving[count++] = mbuf;
  }
  reserved_count_ = 0;
  flush_backlog();
  std::uint16_t taken = backlog_.empty() ? transmit(leaving.data(), count) : std::uint16_t{0};
  // A driver's ring is full while its peer is not looking. Whoever waits for it here might keep it from looking.
  const bool up = taken == count || link_up();
  for (; taken < count && up && backlog_.size() < kMostBacklog; ++taken) backlog_.push_back(leaving[taken]);
  if (taken < count) rte_pktmbuf_free_bulk(&leaving[taken], static_cast<unsigned>(count - taken));
  return taken;
}

std::uint16_t EthDevice::transmit(rte_mbuf** mbufs, std::uint16_t count) noexcept {
  if (count == 0 || !started_ || (gate_ && !gate_->enter())) return 0;
  const std::uint16_t sent = rte_eth_tx_burst(port_, 0, mbufs, count);
  if (gate_) gate_->leave();
  return sent;
}

void EthDevice::flush_backlog() noexcept {
  while (!backlog_.empty()) {
    std::array<rte_mbuf*, kBurst> first;
    const auto count = static_cast<std::uint16_t>(std::min(backlog_.size(), kBurst));
    std::copy_n(backlog_.begin(), count, first.begin());
    const std::uint16_t sent = transmit(first.data(), count);
    backlog_.erase(backlog_.begin(), backlog_.begin() + sent);
    if (sent == 0 && !link_up()) {
      rte_pktmbuf_free_bulk(first.data(), count);
      backlog_.erase(backlog_.begin(), backlog_.begin() + count);
    } else if (sent < count) {
      return;
    }
  }
}

bool EthDevice::link_up() noexcept {
  rte_eth_link link{};
  return !inherited() && rte_eth_link_get_nowait(port_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

void EthDevice::tend() noexcept {
  if (gate_ == nullptr || inherited()) return;
  if (!plan_.memif_client || ++tends_ % kTendsToReconnect != 0 || link_up()) return;
  if (started_) gate_->alone([this] { return rte_eth_dev_stop(port_); });
  start();
}

}  // namespace fairlead::dpdk
