// A FrameDevice over memif: frames are built where the peer will read them, and read where it has built them.
//
// What a full ring does not take waits here, up to a limit, as a copy; so do frames that are longer than the peer's
// buffers. While somebody polls, nobody is woken: prepare_to_wait() asks the peer for it.
// Threads: as FrameDevice. One thread waits while others may poll; what is to wake it, they leave to it. A child of
// fork() has a device without a link.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "fairlead/status.h"
#include "verbs/soft/port/frame/frame_device.h"
#include "verbs/soft/port/memif/link.h"

namespace fairlead::soft::memif {

class MemifDevice final : public FrameDevice {
 public:
  /// Errors: as Link::open().
  [[nodiscard]] static Result<std::unique_ptr<MemifDevice>> open(const LinkSettings& settings);
  ~MemifDevice() override = default;

  [[nodiscard]] FrameDeviceInfo info() const noexcept override { return info_; }
  std::size_t receive(std::span<std::span<const std::byte>> frames) noexcept override;
  std::size_t reserve(std::span<std::byte*> rooms) noexcept override { return reserve(kOthers, rooms); }
  std::size_t reserve_urgent(std::span<std::byte*> rooms) noexcept override { return reserve(kUrgent, rooms); }
  std::size_t receive_urgent(std::span<std::span<const std::byte>> frames) noexcept override;
  [[nodiscard]] bool sets_apart() const noexcept override { return wire() != nullptr && wire()->urgent; }
  std::size_t send(std::span<const std::uint32_t> sizes) noexcept override;
  [[nodiscard]] bool link_up() noexcept override { return wire() != nullptr; }
  void tend() noexcept override { link_->tend(); }
  [[nodiscard]] int wait_fd() const noexcept override { return link_->wait_fd(); }
  [[nodiscard]] bool prepare_to_wait() noexcept override;

 private:
  static constexpr std::size_t kBurst = 64;
  enum Kind : std::uint8_t { kOthers, kUrgent };

  MemifDevice(const Settings& settings, std::unique_ptr<Link> link);

  /// Null where there is none, or it is the parent's.
  [[nodiscard]] Wire* wire() const noexcept;
  /// The same; forgets what was about another one.
  [[nodiscard]] Wire* current() noexcept;
  [[nodiscard]] static const char* fault_of(const Wire& wire) noexcept;
  /// Has let the peer go where it has done what cannot be, with the memory that frames are in.
  [[nodiscard]] bool trust(const Wire& wire) noexcept;
  /// What frames of this kind go by now.
  [[nodiscard]] static Way& way_of(Wire& wire, Kind kind) noexcept {
    return kind == kUrgent && wire.urgent ? *wire.urgent : wire;
  }
  std::size_t reserve(Kind kind, std::span<std::byte*> rooms) noexcept;
  [[nodiscard]] std::size_t reserve_in_ring(Way& way, std::span<std::byte*> rooms) noexcept;
  std::size_t send_in_ring(Way& way, std::span<const std::uint32_t> sizes) noexcept;
  /// What was taken, after what goes with it.
  std::size_t received(Wire& wire, std::size_t count) noexcept;
  static void want_to_be_woken(Wire& wire, bool wanted) noexcept;
  [[nodiscard]] bool keeps_some() const noexcept { return !backlogs_[kOthers].empty() || !backlogs_[kUrgent].empty(); }
  void keep(std::span<const std::byte> frame) noexcept;
  void flush_backlogs(Wire& wire) noexcept;
  void flush(Way& way, std::deque<std::vector<std::byte>>& backlog) noexcept;
  void give(Way& way, std::size_t slots) noexcept;

  const std::unique_ptr<Link> link_;
  FrameDeviceInfo info_;
  const std::size_t frame_bytes_;
  std::array<std::byte*, kBurst> reserved_{};
  std::size_t reserved_count_ = 0;
  Kind reserved_for_ = kOthers;
  Kind look_at_ = kOthers;                                      // what was looked at last
  bool in_ring_ = false;                                        // the reserved rooms
  std::vector<std::byte> rooms_;                                // those that are not
  std::array<std::deque<std::vector<std::byte>>, 2> backlogs_;  // for want of room, or of a peer
  unsigned generation_ = 0;                                     // of the link: what these are about
  bool had_peer_ = false;                                       // when that was looked at
  bool wakes_wanted_ = false;                                   // the peer was asked for them
  bool slept_ = false;                                          // the waiter waits, or has not looked yet
  std::thread::id waiter_;
  Nanos next_look_ = 0;  // for room, by the waiter: so long from now
};

}  // namespace fairlead::soft::memif
