// A progress domain: ports, queue pairs and memory regions under one lock, advanced by whoever polls.
//
// receive.cc takes packets in and says whose they are; schedule.cc is the loop: doorbells, turns, timers. A poster
// queues its work, rings the doorbell, and sends at once if the lock is free; else the holder sends for it before it is
// done. The watcher (watcher.h) advances a domain that nobody polls.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "verbs/soft/datagram/management.h"
#include "verbs/soft/qp/qp_context.h"

namespace fairlead::soft {

class DeviceBase;
struct Packet;

class Domain final : public QpContext {
 public:
  Domain(const Clock& clock, std::uint64_t seed) : QpContext(clock, seed) {}

  // Any thread.
  void unlock() noexcept override;
  void poll() noexcept override;
  void ring(Qp& qp) noexcept override;

  // Under the lock.
  /// Receives, answers, retransmits and sends. True if anything happened.
  bool progress() noexcept override;
  [[nodiscard]] Nanos next_deadline() const noexcept;
  [[nodiscard]] PortSlot& add_port(std::unique_ptr<PacketPort> port);
  /// Gives the queue pair a number. False when all are in use.
  [[nodiscard]] bool put(Qp& qp);
  /// Detaches it; nothing leads to it any more.
  void remove(Qp& qp) noexcept;
  /// The queue pairs of a context that closes neither send nor take anything any more.
  void silence(const DeviceBase& device) noexcept;
  [[nodiscard]] std::size_t queue_pair_limit() const noexcept { return queue_pairs_.limit(); }
  /// Gives queue pairs numbers of this partition (qp_table.h). Before there are any.
  void set_partition(std::uint8_t partition, bool beyond = false) noexcept {
    queue_pairs_.set_partition(partition, beyond);
  }
  /// Who serves QP1; null for nobody.
  void set_management(ManagementHandler* handler) noexcept { management_ = handler; }
  [[nodiscard]] ManagementHandler* management() const noexcept { return management_; }

  static constexpr std::size_t kRxBurst = 16;  // acknowledgements leave at least this often

 private:
  // receive.cc
  void receive(PortSlot& slot, const RxPacket& raw) noexcept;
  void receive_bundle(Qp& qp, const Packet& bundle) noexcept;
  [[nodiscard]] bool icrc_valid(Qp& qp, const PortSlot& slot, const RxPacket& raw, const Packet& packet) noexcept;
  // schedule.cc
  [[nodiscard]] bool take_urgent(PortSlot& slot) noexcept;
  [[nodiscard]] bool take_turn(Qp& qp, unsigned packets) noexcept;
  void send_held(Qp& qp) noexcept override;
  void send_again(Qp& qp) noexcept override;
  void take_doorbells() noexcept;
  void look_at_work_of(Qp& qp) noexcept;
  void run_timers() noexcept;
  void release_held() noexcept;
  void send_receipts() noexcept;
  void call_waiting() noexcept;
  void transmit() noexcept;
  void end_turns() noexcept;

  std::atomic<Qp*> rung_{nullptr};
  std::array<RxPacket, kRxBurst> received_;
  ManagementHandler* management_ = nullptr;
  bool urgent_alone_ = false;  // the last progress() took that in, and nothing else
  Nanos busy_at_ = 0;          // when a poll last found something
};

}  // namespace fairlead::soft
