// Devices around one switch, each of whose ports is a bottleneck: it queues, marks and drops. On a clock that only the
// test moves.
//
// Marking is RED's as DCQCN uses it: none below kmin bytes, up to `pmax` at kmax, all above.
#pragma once

#include <algorithm>
#include <deque>
#include <random>

#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/wire/icrc.h"

namespace fairlead::soft::test {

struct SwitchConfig {
  double rate = 40e9;  // bits per second, of each port
  Nanos delay = 5 * kMicrosecond;
  std::size_t kmin = 5'000;
  std::size_t kmax = 200'000;
  double pmax = 0.01;
  std::size_t buffer = 4 << 20;
  std::size_t far_window = 0;  // what a port says that it takes of other hosts
  std::uint64_t seed = 1;
};

class Switch {
 public:
  Switch(const Clock& clock, const SwitchConfig& config, std::size_t ports)
      : clock_(clock), config_(config), random_(config.seed), outputs_(ports) {}

  [[nodiscard]] static Gid address_of(std::size_t port) {
    return Gid::from_ipv4(0x0a000001 + static_cast<std::uint32_t>(port));
  }
  std::unique_ptr<PacketPort> port(std::size_t index);

  /// The most bytes that ever waited for the last port since the last call of reset_most().
  [[nodiscard]] std::size_t most_queued() const { return outputs_.back().most_queued; }
  void reset_most() { outputs_.back().most_queued = outputs_.back().queued; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  friend class SwitchPort;
  struct Frame {
    std::vector<std::byte> bytes;
    RxPacket packet;
    Nanos due = 0;
  };
  struct Output {
    std::deque<Frame> frames;
    std::deque<std::pair<Nanos, std::size_t>> leaving;  // when, bytes
    Nanos free_at = 0;
    std::size_t queued = 0;
    std::size_t most_queued = 0;
  };

  void accept(Frame frame, std::size_t to) {
    Output& output = outputs_.at(to);
    const std::size_t size = frame.bytes.size() + 46;
    const Nanos now = clock_.now();
    while (!output.leaving.empty() && output.leaving.front().first <= now) {
      output.queued -= output.leaving.front().second;
      output.leaving.pop_front();
    }
    if (output.queued + size > config_.buffer) {
      ++dropped_;
      return;
    }
    if ((frame.packet.traffic_class & 3) != 0 && chance() < marking(output.queued)) frame.packet.traffic_class |= 3;
    output.queued += size;
    output.most_queued = std::max(output.most_queued, output.queued);
    const auto serialization = static_cast<Nanos>(static_cast<double>(size) * 8 / config_.rate * 1e9);
    output.free_at = std::max(output.free_at, now) + serialization;
    output.leaving.emplace_back(output.free_at, size);
    frame.due = output.free_at + config_.delay;
    output.frames.push_back(std::move(frame));
  }
  double chance() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  [[nodiscard]] double marking(std::size_t queued) const {
    if (queued <= config_.kmin) return 0;
    if (queued > config_.kmax) return 1;
    return config_.pmax * static_cast<double>(queued - config_.kmin) / static_cast<double>(config_.kmax - config_.kmin);
  }

  const Clock& clock_;
  SwitchConfig config_;
  std::mt19937_64 random_;
  std::vector<Output> outputs_;
  std::uint64_t dropped_ = 0;
};

class SwitchPort final : public PacketPort {
 public:
  SwitchPort(Switch& owner, std::size_t index) : switch_(owner), index_(index), address_(Switch::address_of(index)) {}

  [[nodiscard]] const Gid& address() const noexcept override { return address_; }
  [[nodiscard]] std::uint32_t max_mtu() const noexcept override { return 4096; }
  [[nodiscard]] ReceiveWindow receive_window() const noexcept override { return {1 << 20, switch_.config_.far_window}; }
  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                                 std::uint8_t hop_limit) override {
    return {address_, destination, static_cast<std::uint16_t>(0xc000 | (flow & 0x3fff)), traffic_class, hop_limit, -1};
  }
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override {
    auto& queue = switch_.outputs_[index_].frames;
    handed_out_.clear();
    while (handed_out_.size() < packets.size() && !queue.empty() && queue.front().due <= now) {
      handed_out_.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    for (std::size_t i = 0; i < handed_out_.size(); ++i) {
      packets[i] = handed_out_[i].packet;
      packets[i].bytes = handed_out_[i].bytes;
    }
    return handed_out_.size();
  }
  void tx_burst(TxBatch& batch) noexcept override {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const TxPacket& packet = batch.packet(i);
      const iovec* iovs = batch.iovs(packet);
      store_icrc(packet.icrc, icrc_of(packet, iovs, 0).value_or(0));
      Switch::Frame frame;
      for (std::size_t k = 0; k < packet.iovs; ++k) {
        const auto* bytes = static_cast<const std::byte*>(iovs[k].iov_base);
        frame.bytes.insert(frame.bytes.end(), bytes, bytes + iovs[k].iov_len);
      }
      frame.packet = {{}, address_, packet.route->source_port, 0, packet.route->traffic_class};
      switch_.accept(std::move(frame), packet.route->destination.ipv4() - Switch::address_of(0).ipv4());
    }
    batch.clear();
  }
  [[nodiscard]] int wait_fd() const noexcept override { return -1; }

 private:
  Switch& switch_;
  std::size_t index_;
  Gid address_;
  std::vector<Switch::Frame> handed_out_;
};

inline std::unique_ptr<PacketPort> Switch::port(std::size_t index) {
  return std::make_unique<SwitchPort>(*this, index);
}

}  // namespace fairlead::soft::test
