#include "verbs/soft/port/wrap/fault_port.h"

#include <algorithm>
#include <array>

namespace fairlead::soft {
namespace {

// An overtaken packet that nothing follows is let go after this long.
constexpr Nanos kOvertakeTimeout = 200 * kMicrosecond;
constexpr std::size_t kBurst = 32;

}  // namespace

FaultPort::FaultPort(std::unique_ptr<PacketPort> inner, const FaultConfig& config)
    : PortDecorator(std::move(inner)), config_(config), random_(config.seed) {}

bool FaultPort::chance(double probability) noexcept {
  if (probability <= 0) return false;
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

bool FaultPort::silent() noexcept {
  if (config_.silent_after == 0 || ++seen_ <= config_.silent_after) return false;
  if (config_.silent_for == 0) return true;
  if (silent_until_ == 0) silent_until_ = now_ + config_.silent_for;
  return now_ < silent_until_;
}

bool FaultPort::drops(std::uint32_t& left) noexcept {
  if (left > 0) return left-- > 0;
  if (config_.drop <= 0) return false;
  // A burst begins after a packet that passed: its chance is such that the share of dropped packets is `drop`.
  const double passed_per_burst = config_.burst * (1 - config_.drop) / config_.drop;
  if (!chance(1 / (1 + passed_per_burst))) return false;
  left = config_.burst - 1;
  return true;
}

void FaultPort::hold(const RxPacket& packet, Nanos due) {
  Held held{{packet.bytes.begin(), packet.bytes.end()}, packet, due};
  held.packet.bytes = {};
  queue_.push_back(std::move(held));
}

void FaultPort::admit(const RxPacket& packet, Nanos now) {
  if (silent() || drops(rx_burst_left_)) return;
  const Nanos due = now + config_.delay;
  hold(packet, due);
  if (chance(config_.corrupt) && !packet.bytes.empty()) {
    const std::uint64_t bit = random_() % (packet.bytes.size() * 8);
    queue_.back().bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  if (chance(config_.duplicate)) hold(packet, due);
  if (!overtaken_.empty()) {
    release_overtaken(due);
  } else if (chance(config_.reorder)) {
    overtaken_.push_back(std::move(queue_.back()));
    overtaken_.back().due = due + kOvertakeTimeout;
    queue_.pop_back();
  }
}

void FaultPort::release_overtaken(Nanos due) {
  for (Held& held : overtaken_) {
    held.due = due;
    queue_.push_back(std::move(held));
  }
  overtaken_.clear();
}

std::size_t FaultPort::rx_burst(std::span<RxPacket> packets, Nanos now) noexcept {
  handed_out_.clear();
  now_ = now;
  std::array<RxPacket, kBurst> arrived;
  const std::size_t count = inner_->rx_burst(arrived, now);
  for (std::size_t i = 0; i < count; ++i) admit(arrived[i], now);
  if (!overtaken_.empty() && overtaken_.front().due <= now) release_overtaken(now);
  while (handed_out_.size() < packets.size() && !queue_.empty() && queue_.front().due <= now) {
    handed_out_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  for (std::size_t i = 0; i < handed_out_.size(); ++i) {
    packets[i] = handed_out_[i].packet;
    packets[i].bytes = handed_out_[i].bytes;
  }
  return handed_out_.size();
}

void FaultPort::tx_burst(TxBatch& batch) noexcept {
  batch.keep_if([this](const TxPacket&) { return !silent() && !drops(tx_burst_left_); });
  inner_->tx_burst(batch);
}

Nanos FaultPort::next_event() const noexcept {
  Nanos next = inner_->next_event();
  const auto consider = [&next](Nanos due) { next = next == 0 ? due : std::min(next, due); };
  if (!queue_.empty()) consider(queue_.front().due);
  if (!overtaken_.empty()) consider(overtaken_.front().due);
  return next;
}

}  // namespace fairlead::soft
