// Two ports joined in memory, for tests: what one sends the other receives, in order and without loss.
//
// Threads: one thread drives both ends. The receive queue is unbounded, so that loss is only what a decorator makes.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "verbs/soft/port/packet_port.h"

namespace fairlead::soft {

class LoopbackPort final : public PacketPort {
 public:
  /// 10.0.0.1 and 10.0.0.2. Each end may be destroyed first; what is sent to a missing end is lost.
  static std::pair<std::unique_ptr<LoopbackPort>, std::unique_ptr<LoopbackPort>> make_pair();

  /// What it announces, 0 (nothing) if it is not set; before the device has it.
  void set_far_window(std::size_t bytes) noexcept { far_window_ = bytes; }
  /// From here on the frames of this end have IPv4 ids that count up from `first`; the other end cannot see them.
  void count_ids(std::uint16_t first) noexcept { next_id_ = first; }
  [[nodiscard]] const Gid& address() const noexcept override { return address_; }
  [[nodiscard]] std::uint32_t max_mtu() const noexcept override { return 4096; }
  [[nodiscard]] ReceiveWindow receive_window() const noexcept override { return {320 << 10, far_window_}; }
  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                                 std::uint8_t hop_limit) override;
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override;
  void tx_burst(TxBatch& batch) noexcept override;
  [[nodiscard]] int wait_fd() const noexcept override { return -1; }

 private:
  struct Frame {
    std::vector<std::byte> bytes;
    Gid source;
    std::uint16_t source_port = 0;
  };
  using Queue = std::deque<Frame>;

  LoopbackPort(Gid address, std::shared_ptr<Queue> in, std::shared_ptr<Queue> out)
      : address_(address), in_(std::move(in)), out_(std::move(out)) {}

  Gid address_;
  std::shared_ptr<Queue> in_;
  std::shared_ptr<Queue> out_;
  Queue handed_out_;
  std::size_t far_window_ = 0;
  std::uint16_t next_id_ = 0;  // 0: all ids are 0
};

}  // namespace fairlead::soft
