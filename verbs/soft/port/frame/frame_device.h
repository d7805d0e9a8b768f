// FrameDevice: Ethernet frames in and out, in bursts. What a FramePort needs of an Ethernet device.
//
// Frames begin with the destination address and end before the checksum, which is the device's business.
// Implementations may live in a loadable module with another C++ library, so nothing here throws, allocates for the
// other side, or is more than plain data. Whoever changes this file gives the modules' entry points a new name.
// Threads: all calls but wait_fd() by one thread at a time.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/port/loans.h"
#include "verbs/soft/wire/ethernet.h"

namespace fairlead::soft {

struct FrameDeviceInfo {
  Mac mac;
  std::uint32_t mtu = 0;                // bytes of the largest IP packet, headers included
  std::uint32_t megabits = 0;           // of the line; 0: unknown
  std::size_t receive_bytes = 1 << 20;  // of large frames that may arrive without loss while nobody looks
  std::size_t peer_slots = 0;           // frames that may be on their way to a peer, of any size; 0: unknown
  bool link_is_peer = false;            // up while the other end is there, which may come at any time
  const char* link_needs = "";          // what brings the link up, for a message; the device's
  bool attaches = false;                // sends payload from where it lies
};

class FrameDevice {
 public:
  virtual ~FrameDevice() = default;

  /// What it was when the device was opened.
  [[nodiscard]] virtual FrameDeviceInfo info() const noexcept = 0;
  /// Fills at most frames.size() and returns how many; never waits. Frames stay valid until the next call.
  virtual std::size_t receive(std::span<std::span<const std::byte>> frames) noexcept = 0;
  /// Rooms for frames that are about to be sent, each for an Ethernet header and `mtu` bytes. Fills at most
  /// rooms.size() and returns how many; fewer when the device is short of memory.
  virtual std::size_t reserve(std::span<std::byte*> rooms) noexcept = 0;
  /// The same for frames that are not to wait behind others, where the device sets them apart.
  virtual std::size_t reserve_urgent(std::span<std::byte*> rooms) noexcept { return reserve(rooms); }
  /// Whether it has a way of their own for them now.
  [[nodiscard]] virtual bool sets_apart() const noexcept { return false; }
  /// receive() of that way alone. receive() itself looks at both ways in turn.
  virtual std::size_t receive_urgent(std::span<std::span<const std::byte>> /*frames*/) noexcept { return 0; }
  /// Pieces of memory become part of a room's frame, behind the first `head` bytes in the room; what is in the room
  /// behind those follows them. A loan: the memory must stay as it is until loans() says that it ended, which it does
  /// whatever becomes of the frame. False: not these pieces, or not now.
  virtual bool attach([[maybe_unused]] std::size_t room, [[maybe_unused]] std::uint32_t head,
                      [[maybe_unused]] std::span<const iovec> pieces) noexcept {
    return false;
  }
  /// Looks which loans have ended.
  [[nodiscard]] virtual Loans loans() noexcept { return {}; }
  /// All have ended when this returns, if need be at the price of frames.
  virtual void end_loans() noexcept {}
  /// Memory that frames may carry from now on, and must not any more. Where the device needs to know; what it could not
  /// be told of, attach() refuses. Nothing of it is on loan at the end.
  virtual void map([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) noexcept {}
  virtual void unmap([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) noexcept {}
  /// Sends the rooms of the last reserve(), in order: sizes[i] bytes of the i-th. 0 gives a room back unsent. Every
  /// room is given away. Returns how many of the others the device took; those behind them are lost.
  virtual std::size_t send(std::span<const std::uint32_t> sizes) noexcept = 0;
  /// Whether frames can leave and arrive now.
  [[nodiscard]] virtual bool link_up() noexcept = 0;
  /// Control work, called about every millisecond while the port is in use.
  virtual void tend() noexcept {}
  /// Becomes readable when frames arrive, after prepare_to_wait(), and when the device wants to be looked at; -1 where
  /// it must be looked at.
  [[nodiscard]] virtual int wait_fd() const noexcept { return -1; }
  /// Somebody is about to wait on wait_fd(). False: frames are there already.
  [[nodiscard]] virtual bool prepare_to_wait() noexcept { return true; }

 protected:
  FrameDevice() = default;
  FrameDevice(const FrameDevice&) = delete;
  FrameDevice& operator=(const FrameDevice&) = delete;
};

}  // namespace fairlead::soft
