// A decorator that makes a port as bad as a network: seeded, so that a run can be repeated.
//
// What arrives may be dropped, doubled, overtaken, damaged (one bit) or delayed; what leaves may be dropped. Drops come
// in bursts, whose share of all packets is still the probability. Silence is for both directions, and for good unless
// it is to end: it stands for a path that died. Threads: as PacketPort.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "verbs/soft/port/port_decorator.h"

namespace fairlead::soft {

/// Probabilities are per packet, 0..1.
struct FaultConfig {
  double drop = 0;
  std::uint32_t burst = 1;  // packets of one direction that are dropped in a row
  double reorder = 0;
  double duplicate = 0;
  double corrupt = 0;
  Nanos delay = 0;
  std::uint64_t seed = 1;
  std::uint64_t silent_after = 0;  // packets in both directions; 0: never
  Nanos silent_for = 0;            // from then on; 0: for good
  [[nodiscard]] bool any() const noexcept {
    return drop > 0 || reorder > 0 || duplicate > 0 || corrupt > 0 || delay > 0 || silent_after > 0;
  }
};

class FaultPort final : public PortDecorator {
 public:
  FaultPort(std::unique_ptr<PacketPort> inner, const FaultConfig& config);

  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override;
  void tx_burst(TxBatch& batch) noexcept override;
  [[nodiscard]] Nanos next_event() const noexcept override;

 private:
  struct Held {
    std::vector<std::byte> bytes;
    RxPacket packet;
    Nanos due = 0;
  };

  [[nodiscard]] bool chance(double probability) noexcept;
  /// Whether to drop the next packet of a direction, `left` of whose current burst are to come.
  [[nodiscard]] bool drops(std::uint32_t& left) noexcept;
  /// Whether the next packet meets silence.
  [[nodiscard]] bool silent() noexcept;
  void admit(const RxPacket& packet, Nanos now);
  void hold(const RxPacket& packet, Nanos due);
  void release_overtaken(Nanos due);

  FaultConfig config_;
  std::mt19937_64 random_;
  std::uint64_t seen_ = 0;
  Nanos now_ = 0;  // of the last look at what arrived
  Nanos silent_until_ = 0;
  std::uint32_t rx_burst_left_ = 0;
  std::uint32_t tx_burst_left_ = 0;
  std::deque<Held> queue_;      // what will be handed out, in this order
  std::deque<Held> overtaken_;  // waits until a later packet has gone by
  std::vector<Held> handed_out_;
};

}  // namespace fairlead::soft
