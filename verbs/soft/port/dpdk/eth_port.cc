#include "verbs/soft/port/dpdk/eth_port.h"

#include <pthread.h>
#include <rte_dev.h>
#include <rte_errno.h>

#include <algorithm>
#include <cstring>

#include "verbs/soft/port/dpdk/calls.h"
#include "verbs/soft/port/dpdk/eal.h"
#include "verbs/soft/port/dpdk/mbuf_stack.h"
#include "verbs/soft/port/dpdk/steering.h"

namespace fairlead::dpdk {
namespace {

constexpr std::uint16_t kDescriptors = 1024;
constexpr unsigned kMoreBuffers = 512 + 256;  // a full backlog, and bursts on their way through us
// Three quarters of memif's ring. With fewer the sender runs dry while the receiver works on a burst; a full ring makes
// frames wait in the backlog, which halves the rate of small ones.
constexpr std::size_t kPeerSlots = 192;
constexpr unsigned kTendsToReconnect = 100;
constexpr unsigned kTendsToGiveUp = 5000;  // a server that does not greet
constexpr std::uint32_t kLeastMtu = 320;   // of path MTU 256

// Counts forks: what was opened before the last one is the parent's.
std::atomic<int> generation{0};

}  // namespace

int EthPort::current_process() noexcept {
  static const int watched = ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  static_cast<void>(watched);
  return generation.load(std::memory_order_relaxed);
}

bool EthPort::inherited() const noexcept { return generation.load(std::memory_order_relaxed) != owner_; }

EthPort::EthPort(const DriverPlan& plan) : plan_(plan), queues_(plan.queues) {
  if (!plan.interface.empty()) interface_.emplace(plan.interface);
  // Before anything can fail: closing the port, too, must pass the gate, which works while it has queues.
  for (Queue& queue : queues_) {
    if (plan.memif) queue.gate = std::make_unique<ControlGate::Queue>();
  }
}

std::shared_ptr<EthPort> EthPort::open(const DriverPlan& plan, std::uint32_t mtu, std::string& why) {
  std::uint16_t existing = 0;
  if (rte_eth_dev_get_port_by_name(plan.name.c_str(), &existing) == 0) {
    why = plan.name + " is in use in this process; give another name or device (net_memif1)";
    return nullptr;
  }
  forget_log();
  auto port = std::shared_ptr<EthPort>(new EthPort(plan));
  // A listener that is made here may get the number of a connection whose event DPDK has fetched, but not dealt with.
  const int probed = port->alone([&] {
    port->listener_.emplace(plan.memif_client ? std::string() : plan.socket);
    return rte_dev_probe(plan.device.c_str());
  });
  if (probed != 0) {
    if (!plan.driver.empty() && !driver_loaded(plan.driver)) {
      why = "DPDK has no driver '" + plan.driver + "' here; if that is its name, apt-get install " +
            package_of(plan.driver);
    } else {
      why = "DPDK cannot open " + plan.device + " (" + rte_strerror(-probed) + "): " + recent_log() + plan.needs;
    }
    return nullptr;
  }
  if (rte_eth_dev_get_port_by_name(plan.name.c_str(), &port->port_) != 0) {
    port->port_ = RTE_MAX_ETHPORTS;
    why = plan.name + " is no Ethernet device of DPDK's";
    return nullptr;
  }
  return port->set_up(mtu, why) ? port : nullptr;
}

bool EthPort::fail(const char* what, int error, std::string& why) const {
  why = plan_.name + ": " + what + " (" + rte_strerror(error < 0 ? -error : error) + "): " + recent_log() + plan_.needs;
  return false;
}

bool EthPort::set_up(std::uint32_t mtu, std::string& why) {
  rte_eth_dev_info facts{};
  if (const int error = rte_eth_dev_info_get(port_, &facts); error != 0) {
    return fail("tells nothing of itself", error, why);
  }
  if (const unsigned most = std::min(facts.max_rx_queues, facts.max_tx_queues); queues() > most) {
    why = plan_.name + " has " + std::to_string(most) + (most == 1 ? " queue" : " queues") +
          ", fewer than queues=" + std::to_string(queues()) + "; ask for no more than it has";
    return false;
  }
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
  // The source ports of a peer's packets are spread, so that those of its queue pairs are spread over our queues.
  if (const std::uint64_t hashes =
          facts.flow_type_rss_offloads & (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_NONFRAG_IPV6_UDP);
      queues() > 1 && hashes != 0) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf.rss_hf = hashes;
  }
  if (plan_.zero_copy && !set_up_attachments(facts, why)) return false;
  if (plan_.zero_copy) conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  if (const int error = rte_eth_dev_configure(port_, queues(), queues(), &conf); error != 0) {
    return fail("refuses to be set up", error, why);
  }
  std::uint16_t receives = kDescriptors;
  std::uint16_t sends = kDescriptors;
  rte_eth_dev_adjust_nb_rx_tx_desc(port_, &receives, &sends);
  for (std::uint16_t queue = 0; queue < queues(); ++queue) {
    if (!set_up_queue(queue, receives, sends, why)) return false;
  }
  // A client of memif does not start without its server; tend() tries again.
  if (const int error = restart(); error != 0 && !plan_.memif_client) return fail("does not start", error, why);
  if (plan_.zero_copy && started() && !queues_.front().attachments->usable(why)) return false;
  info_.attaches = plan_.zero_copy;
  if (queues() > 1) steer_by_source_port(port_, queues());
  // Questions over IPv6 come to multicast addresses. Virtual devices without filters refuse both, and need neither.
  if (rte_eth_allmulticast_enable(port_) != 0) made_promiscuous_ = rte_eth_promiscuous_enable(port_) == 0;

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
  info_.link_is_peer = plan_.waits;
  info_.link_needs = plan_.link_needs.c_str();
  return true;
}

bool EthPort::set_up_attachments(const rte_eth_dev_info& facts, std::string& why) {
  if (!Attachments::possible(plan_, facts, why)) return false;
  for (std::uint16_t queue = 0; queue < queues(); ++queue) {
    queues_[queue].attachments = Attachments::create(plan_, port_, queue, facts, why);
    if (queues_[queue].attachments == nullptr) return false;
  }
  return true;
}

bool EthPort::set_up_queue(std::uint16_t queue, std::uint16_t receives, std::uint16_t sends, std::string& why) {
  const unsigned buffers = unsigned{receives} + sends + kMoreBuffers;
  const std::string name =
      "fl_" + std::to_string(port_) + "_" + std::to_string(queue) + "_" + std::to_string(generation.load());
  Queue& own = queues_[queue];
  own.pool = create_mbuf_stack(name, buffers, static_cast<std::uint16_t>(plan_.room));
  if (own.pool == nullptr) {
    why = plan_.name + " needs " + std::to_string(buffers) + " packet buffers of " + std::to_string(plan_.room) +
          " bytes for each of " + std::to_string(queues()) + " queues, for which there is no memory (" +
          rte_strerror(rte_errno) + "); give the first port of the process more: memory=MEGABYTES";
    return false;
  }
  const auto node = static_cast<unsigned>(rte_eth_dev_socket_id(port_));
  if (int error = rte_eth_rx_queue_setup(port_, queue, receives, node, nullptr, own.pool); error != 0) {
    return fail("refuses a receive queue", error, why);
  }
  if (int error = rte_eth_tx_queue_setup(port_, queue, sends, node, nullptr); error != 0) {
    return fail("refuses a transmit queue", error, why);
  }
  return true;
}

void EthPort::stop() noexcept {
  if (!started()) return;
  if (waits_for_greeting()) keep_call(call_);
  rte_eth_dev_stop(port_);
}

bool EthPort::waits_for_greeting() noexcept {
  return plan_.memif_client && !link_up() && is_silent_call(call_, plan_.socket);
}

int EthPort::restart() noexcept {
  return alone([this] {
    stop();
    const std::vector<int> others = plan_.memif_client ? calls_to(plan_.socket) : std::vector<int>();
    const int error = rte_eth_dev_start(port_);
    started_.store(error == 0);
    call_ = -1;
    if (plan_.memif_client) {
      for (const int fd : calls_to(plan_.socket)) {
        if (std::ranges::find(others, fd) == others.end()) call_ = fd;
      }
    }
    return error;
  });
}

EthPort::~EthPort() {
  if (inherited()) {
    for (Queue& queue : queues_) {
      static_cast<void>(queue.gate.release());  // the gate's mutex may be held for ever here
      static_cast<void>(queue.attachments.release());
    }
    if (listener_) listener_->forget();
    return;
  }
  if (port_ != RTE_MAX_ETHPORTS) {
    alone([this] {
      rte_eth_dev_info facts{};
      rte_eth_dev_info_get(port_, &facts);
      if (made_promiscuous_) rte_eth_promiscuous_disable(port_);  // an interface of the kernel's stays so
      stop();
      for (const Queue& queue : queues_) {
        if (queue.attachments) queue.attachments->unmap_all();
      }
      if (facts.device != nullptr) rte_dev_remove(facts.device);  // closes the port
    });
  }
  if (listener_) alone([this] { listener_->close(); });
  for (Queue& queue : queues_) {
    queue.attachments.reset();
    rte_mempool_free(queue.pool);
  }
}

bool EthPort::link_up() noexcept {
  if (inherited()) return false;
  if (interface_) return interface_->runs();
  if (const std::unique_lock lock(link_mutex_, std::try_to_lock); lock.owns_lock()) {
    rte_eth_link link{};
    link_up_.store(rte_eth_link_get_nowait(port_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP);
  }
  return link_up_.load();
}

void EthPort::tend() noexcept {
  if (!plan_.memif_client || inherited()) return;
  const unsigned tends = tends_.fetch_add(1) + 1;
  if (tends % (kTendsToReconnect * queues()) != 0 || link_up()) return;
  if (!alone([this] { return waits_for_greeting(); }) || tends % (kTendsToGiveUp * queues()) == 0) restart();
}

}  // namespace fairlead::dpdk
