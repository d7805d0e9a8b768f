// One port of DPDK's ethdev: what its queues (eth_device.h) share, which is set up once and then only looked at.
//
// Each queue, a receive and a transmit queue of ethdev's, has packet memory of its own, which only the thread that
// drives the queue touches. Owned by its queues together; the last one closes it.
// Threads: any. In a child that fork() made it does nothing, since what it drives is the parent's.
#pragma once

#include <rte_ethdev.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "verbs/soft/port/dpdk/attachments.h"
#include "verbs/soft/port/dpdk/control_gate.h"
#include "verbs/soft/port/dpdk/driver.h"
#include "verbs/soft/port/dpdk/host_interface.h"
#include "verbs/soft/port/dpdk/listener.h"
#include "verbs/soft/port/frame/frame_device.h"

namespace fairlead::dpdk {

class EthPort {
 public:
  /// Null with the reason in `why`. EAL runs.
  static std::shared_ptr<EthPort> open(const DriverPlan& plan, std::uint32_t mtu, std::string& why);
  ~EthPort();
  EthPort(const EthPort&) = delete;
  EthPort& operator=(const EthPort&) = delete;

  [[nodiscard]] std::uint16_t number() const noexcept { return port_; }
  [[nodiscard]] const soft::FrameDeviceInfo& info() const noexcept { return info_; }
  [[nodiscard]] std::uint16_t queues() const noexcept { return static_cast<std::uint16_t>(queues_.size()); }
  [[nodiscard]] rte_mempool* pool(std::uint16_t queue) const noexcept { return queues_[queue].pool; }
  /// Null where payload is copied.
  [[nodiscard]] Attachments* attachments(std::uint16_t queue) const noexcept {
    return queues_[queue].attachments.get();
  }
  /// Null where bursts need not ask.
  [[nodiscard]] ControlGate::Queue* gate(std::uint16_t queue) const noexcept { return queues_[queue].gate.get(); }
  /// Whether bursts may be tried; to be asked behind the gate.
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_relaxed); }
  /// Of another process: fork() made this one.
  [[nodiscard]] bool inherited() const noexcept;
  /// Stops the port, if it was started, and starts it. 0, or DPDK's error.
  int restart() noexcept;
  [[nodiscard]] bool link_up() noexcept;
  /// Called by each queue about every millisecond.
  void tend() noexcept;

 private:
  struct Queue {
    rte_mempool* pool = nullptr;
    std::unique_ptr<Attachments> attachments;
    std::unique_ptr<ControlGate::Queue> gate;  // of a memif
  };

  explicit EthPort(const DriverPlan& plan);
  bool set_up(std::uint32_t mtu, std::string& why);
  bool set_up_queue(std::uint16_t queue, std::uint16_t receives, std::uint16_t sends, std::string& why);
  bool set_up_attachments(const rte_eth_dev_info& facts, std::string& why);
  /// Where it was started. This and the next as Work of alone().
  void stop() noexcept;
  /// Of a memif client: its server has not answered.
  [[nodiscard]] bool waits_for_greeting() noexcept;
  bool fail(const char* what, int error, std::string& why) const;
  /// Work on the port as a whole, which no burst and none of DPDK's own threads may meet.
  template <typename Work>
  auto alone(const Work& work) noexcept {
    return plan_.memif ? ControlGate::alone(work) : work();
  }

  const DriverPlan plan_;
  std::optional<HostInterface> interface_;  // whose state the driver does not follow
  soft::FrameDeviceInfo info_;
  const int owner_ = current_process();
  std::uint16_t port_ = RTE_MAX_ETHPORTS;
  std::vector<Queue> queues_;
  std::optional<Listener> listener_;
  std::atomic<bool> started_{false};
  bool made_promiscuous_ = false;
  int call_ = -1;          // of a memif client: what the driver has called its server by (calls.h)
  std::mutex link_mutex_;  // drivers may ask their device, one thread at a time
  std::atomic<bool> link_up_{false};
  std::atomic<unsigned> tends_{0};

  static int current_process() noexcept;
};

}  // namespace fairlead::dpdk
