// A FrameDevice over one port of DPDK's ethdev: one receive and one transmit queue, packet memory of its own.
//
// Threads: as FrameDevice. In a child that fork() made it does nothing, since what it drives is the parent's.
#pragma once

#include <rte_ethdev.h>

#include <array>
#include <deque>
#include <memory>
#include <string>

#include "verbs/soft/port/dpdk/control_gate.h"
#include "verbs/soft/port/dpdk/driver.h"
#include "verbs/soft/port/frame_device.h"

namespace fairlead::dpdk {

using soft::FrameDevice;
using soft::FrameDeviceInfo;

class EthDevice final : public FrameDevice {
 public:
  /// Null with the reason in `why`. EAL runs.
  static std::unique_ptr<EthDevice> open(const DriverPlan& plan, std::uint32_t mtu, std::string& why);
  ~EthDevice() override;

  [[nodiscard]] FrameDeviceInfo info() const noexcept override { return info_; }
  std::size_t receive(std::span<std::span<const std::byte>> frames) noexcept override;
  std::size_t reserve(std::span<std::byte*> rooms) noexcept override;
  std::size_t send(std::span<const std::uint32_t> sizes) noexcept override;
  [[nodiscard]] bool link_up() noexcept override;
  void tend() noexcept override;

 private:
  static constexpr std::size_t kBurst = 64;

  explicit EthDevice(const DriverPlan& plan) : plan_(plan) {}
  bool set_up(std::uint32_t mtu, std::string& why);
  /// 0, or DPDK's error.
  int start() noexcept;
  /// What the driver takes now; never waits.
  std::uint16_t transmit(rte_mbuf** mbufs, std::uint16_t count) noexcept;
  void flush_backlog() noexcept;
  [[nodiscard]] bool inherited() const noexcept;

  const DriverPlan plan_;
  FrameDeviceInfo info_;
  const int owner_ = current_process();
  std::uint16_t port_ = RTE_MAX_ETHPORTS;
  rte_mempool* pool_ = nullptr;
  std::array<rte_mbuf*, kBurst> received_{};
  std::uint16_t received_count_ = 0;
  std::array<rte_mbuf*, kBurst> reserved_{};
  std::uint16_t reserved_count_ = 0;
  std::deque<rte_mbuf*> backlog_;            // what the driver had no room for
  std::unique_ptr<ControlGate::Port> gate_;  // of a memif
  bool started_ = false;
  unsigned tends_ = 0;

  static int current_process() noexcept;
};

}  // namespace fairlead::dpdk
