#include "verbs/soft/port/dpdk/eth_device.h"

#include <rte_cycles.h>
#include <sched.h>

#include <algorithm>

namespace fairlead::dpdk {
namespace {

constexpr std::size_t kMostBacklog = 512;
constexpr unsigned kMostDrainMs = 2;

}  // namespace

EthDevice::EthDevice(std::shared_ptr<EthPort> port, std::uint16_t queue)
    : port_(std::move(port)),
      queue_(queue),
      number_(port_->number()),
      pool_(port_->pool(queue)),
      gate_(port_->gate(queue)),
      attachments_(port_->attachments(queue)) {}

EthDevice::~EthDevice() {
  if (port_->inherited()) return;
  if (received_count_ > 0) rte_pktmbuf_free_bulk(received_.data(), received_count_);
  if (reserved_count_ > 0) rte_pktmbuf_free_bulk(reserved_.data(), reserved_count_);
  for (rte_mbuf* mbuf : backlog_) rte_pktmbuf_free(mbuf);
}

bool EthDevice::begin_burst() noexcept {
  if (gate_ != nullptr && !gate_->enter()) return false;
  if (port_->started()) return true;
  end_burst();
  return false;
}

void EthDevice::end_burst() noexcept {
  if (gate_ != nullptr) gate_->leave();
}

std::size_t EthDevice::receive(std::span<std::span<const std::byte>> frames) noexcept {
  if (port_->inherited()) return 0;
  if (received_count_ > 0) rte_pktmbuf_free_bulk(received_.data(), received_count_);
  received_count_ = 0;
  if (!backlog_.empty()) flush_backlog();
  if (!begin_burst()) return 0;
  received_count_ =
      rte_eth_rx_burst(number_, queue_, received_.data(), static_cast<std::uint16_t>(std::min(frames.size(), kBurst)));
  end_burst();
  std::size_t count = 0;
  for (std::uint16_t i = 0; i < received_count_; ++i) {
    const rte_mbuf* mbuf = received_[i];
    if (mbuf->nb_segs != 1) continue;  // longer than any frame of ours
    frames[count++] = {rte_pktmbuf_mtod(mbuf, const std::byte*), mbuf->data_len};
  }
  return count;
}

std::size_t EthDevice::reserve(std::span<std::byte*> rooms) noexcept {
  if (port_->inherited()) return 0;
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
    if (mbuf->nb_segs > 1) {
      Attachments::finish(*mbuf, size);
    } else {
      mbuf->data_len = static_cast<std::uint16_t>(size);
      mbuf->pkt_len = size;
    }
    leaving[count++] = mbuf;
  }
  reserved_count_ = 0;
  flush_backlog();
  std::uint16_t taken = backlog_.empty() ? transmit(leaving.data(), count) : std::uint16_t{0};
  // A driver's ring is full while its peer is not looking. Whoever waits for it here might keep it from looking.
  const bool up = taken == count || link_up();
  while (taken < count && up && put_back(leaving[taken])) ++taken;
  if (taken < count) rte_pktmbuf_free_bulk(&leaving[taken], static_cast<unsigned>(count - taken));
  return taken;
}

std::uint16_t EthDevice::transmit(rte_mbuf** mbufs, std::uint16_t count) noexcept {
  if (count == 0 || !begin_burst()) return 0;
  const std::uint16_t sent = rte_eth_tx_burst(number_, queue_, mbufs, count);
  end_burst();
  return sent;
}

// Into the backlog, unless it is full. What waits there, who knows how long, waits as a copy.
bool EthDevice::put_back(rte_mbuf* mbuf) {
  if (backlog_.size() >= kMostBacklog) return false;
  if (mbuf->nb_segs > 1) {
    rte_mbuf* copy = rte_pktmbuf_copy(mbuf, pool_, 0, UINT32_MAX);
    if (copy == nullptr) return false;
    rte_pktmbuf_free(mbuf);
    mbuf = copy;
  }
  backlog_.push_back(mbuf);
  return true;
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

bool EthDevice::attach(std::size_t room, std::uint32_t head, std::span<const iovec> pieces) noexcept {
  return attachments_ != nullptr && attachments_->attach(*reserved_[room], head, pieces);
}

soft::Loans EthDevice::loans() noexcept {
  return attachments_ != nullptr && !port_->inherited() ? attachments_->loans() : soft::Loans{};
}

void EthDevice::end_loans() noexcept {
  const auto deadline = rte_get_timer_cycles() + rte_get_timer_hz() / 1000 * kMostDrainMs;
  while (loans().open() && rte_get_timer_cycles() < deadline) ::sched_yield();
  // Its ring does not move (no link, say). Stopped, a driver lets go of everything.
  if (loans().open()) port_->restart();
}

void EthDevice::map(const void* start, std::size_t bytes) noexcept {
  if (attachments_ != nullptr && !port_->inherited()) attachments_->map(start, bytes);
}

void EthDevice::unmap(const void* start, std::size_t bytes) noexcept {
  if (attachments_ != nullptr && !port_->inherited()) attachments_->unmap(start, bytes);
}

}  // namespace fairlead::dpdk
