// A FrameDevice over one queue of a port of DPDK's ethdev: bursts, and frames that a full ring did not take.
//
// Threads: as FrameDevice; queues of a port share nothing that bursts change. In a child that fork() made it does
// nothing.
#pragma once

#include <array>
#include <deque>
#include <memory>

#include "verbs/soft/port/dpdk/eth_port.h"
#include "verbs/soft/port/frame/frame_device.h"

namespace fairlead::dpdk {

using soft::FrameDevice;
using soft::FrameDeviceInfo;

class EthDevice final : public FrameDevice {
 public:
  EthDevice(std::shared_ptr<EthPort> port, std::uint16_t queue);
  ~EthDevice() override;

  [[nodiscard]] FrameDeviceInfo info() const noexcept override { return port_->info(); }
  std::size_t receive(std::span<std::span<const std::byte>> frames) noexcept override;
  std::size_t reserve(std::span<std::byte*> rooms) noexcept override;
  std::size_t send(std::span<const std::uint32_t> sizes) noexcept override;
  bool attach(std::size_t room, std::uint32_t head, std::span<const iovec> pieces) noexcept override;
  [[nodiscard]] soft::Loans loans() noexcept override;
  void end_loans() noexcept override;
  void map(const void* start, std::size_t bytes) noexcept override;
  void unmap(const void* start, std::size_t bytes) noexcept override;
  [[nodiscard]] bool link_up() noexcept override { return port_->link_up(); }
  void tend() noexcept override { port_->tend(); }

 private:
  static constexpr std::size_t kBurst = 64;

  /// Whether the driver may be called; if so, end_burst() follows.
  [[nodiscard]] bool begin_burst() noexcept;
  void end_burst() noexcept;
  /// What the driver takes now; never waits.
  std::uint16_t transmit(rte_mbuf** mbufs, std::uint16_t count) noexcept;
  bool put_back(rte_mbuf* mbuf);
  void flush_backlog() noexcept;

  const std::shared_ptr<EthPort> port_;
  const std::uint16_t queue_;
  const std::uint16_t number_;      // ethdev's, of the port
  rte_mempool* const pool_;         // of the queue
  ControlGate::Queue* const gate_;  // null: none
  Attachments* const attachments_;  // null: payload is copied
  std::array<rte_mbuf*, kBurst> received_{};
  std::uint16_t received_count_ = 0;
  std::array<rte_mbuf*, kBurst> reserved_{};
  std::uint16_t reserved_count_ = 0;
  std::deque<rte_mbuf*> backlog_;  // what the driver had no room for
};

}  // namespace fairlead::dpdk
