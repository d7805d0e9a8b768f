// PacketPort: bursts of RoCE packets in and out. The protocol sees this and a clock, never a socket.
//
// A port stands for one local address. Packets begin with the BTH and end with the ICRC; the IP and UDP headers are the
// port's business. Packets may be lost, doubled, reordered and damaged at any time.
// Threads: all calls under the domain's lock, but wait_fd() and those about requests, which any thread may make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.h"
#include "fairlead/status.h"
#include "verbs/soft/port/loans.h"
#include "verbs/soft/port/tx_batch.h"
#include "verbs/soft/wire/icrc.h"

namespace fairlead::soft {

class PayloadSource;
struct Counters;

struct RxPacket {
  std::span<const std::byte> bytes;  // valid until the next rx_burst of the port
  Gid source;
  std::uint16_t source_port = 0;
  std::uint16_t ipv4_id_guess = 0;
  std::uint8_t traffic_class = 0;  // as it arrived, if the port was told to report it
  bool ipv4_id_known = false;      // the port saw the header: ipv4_id_guess is no guess
  std::uint16_t ipv4_flags = 0x4000;
  RoceVersion version = RoceVersion::kV2;
  bool to_link_local = false;  // to the port's other GID
  std::uint8_t hop_limit = 0;  // of RoCE v1
  std::uint32_t flow_label = 0;
  bool unchecked = false;                   // it crossed memory of this host, and both ends leave the ICRC out
  std::uint32_t payload_bytes = 0;          // where the payload did not come with the packet,
  PayloadSource* payload_source = nullptr;  // but lies there: of RC alone; valid as long as `bytes`
  [[nodiscard]] bool congestion_marked() const noexcept { return (traffic_class & 3) == 3; }  // ECN, RFC 3168
};

/// Bytes of large packets that may be on their way to a port without loss: the better half of its receive buffer.
struct ReceiveWindow {
  std::size_t near = 0;  // from this host
  /// From others, whose way is long enough to be worth more: what peers of our kind are told, all of them together. 0:
  /// it is not known what there is, and nobody is told.
  std::size_t far = 0;
};

/// kAwaited: the link is the other end, which is not there and may come at any time.
enum class LinkState : std::uint8_t { kUp, kAwaited, kDown };

class PacketPort {
 public:
  virtual ~PacketPort() = default;

  [[nodiscard]] virtual const Gid& address() const noexcept = 0;
  /// A second GID, for RoCE v1: of the link alone, made of the station's address. Null: the port has none.
  [[nodiscard]] virtual Gid link_local() const noexcept { return {}; }
  /// The largest path MTU (256..4096) whose packets pass the interface.
  [[nodiscard]] virtual std::uint32_t max_mtu() const noexcept = 0;
  [[nodiscard]] virtual ReceiveWindow receive_window() const noexcept = 0;
  /// Bytes of large packets that may be on their way to one peer, of which nothing else is known: a Fairlead peer has
  /// at least the buffer that a stock system grants a socket.
  [[nodiscard]] virtual std::size_t peer_window() const noexcept { return 192 << 10; }
  /// What a packet takes of a window at least: a small datagram still occupies a socket buffer of about this size.
  [[nodiscard]] virtual std::uint32_t least_charge() const noexcept { return 1024; }
  /// A way to `destination`; `flow` selects the UDP source port. `traffic_class` and `hop_limit` as in the GRH.
  /// Route::error: there are no descriptors to find one.
  [[nodiscard]] virtual Route make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                                         std::uint8_t hop_limit) = 0;

  /// The same in frames of RoCE v1, from either of the port's GIDs. Nothing: the port has no wire of its own, or no way
  /// to find the destination's station: it must be link-local and tell it, or of the family of address().
  [[nodiscard]] virtual std::optional<Route> make_v1_route(const Gid& /*source*/, const Gid& /*destination*/,
                                                           std::uint32_t /*flow_label*/, std::uint8_t /*traffic_class*/,
                                                           std::uint8_t /*hop_limit*/) {
    return std::nullopt;
  }
  /// max_mtu() for RoCE v1; 0: there is none.
  [[nodiscard]] virtual std::uint32_t max_v1_mtu() const noexcept { return 0; }

  /// Fills at most packets.size() and returns how many; never waits. Now is the domain's idea of the time.
  virtual std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept = 0;
  /// Fills in the ICRCs and sends. What the system does not take is lost, as on any network; TxBatch::report_full.
  virtual void tx_burst(TxBatch& batch) noexcept = 0;
  /// From here on received packets have their traffic class, and with it marks of congestion. It costs a little.
  virtual void report_traffic_class() noexcept {}
  /// Where the port counts what only it sees; called once, before use. Counters outlive it.
  virtual void count_in(Counters&) noexcept {}
  /// Requests to connect, which come to QP1, are to reach this port where they name the service (the lower half of its
  /// identifier), until leave_requests(). Error: where processes share the address, they reach another's.
  /// May wait for other processes, so no lock is held.
  [[nodiscard]] virtual Status take_requests(std::uint32_t /*service*/) { return {}; }
  virtual void leave_requests(std::uint32_t /*service*/) noexcept {}
  /// Packets so far that the system did not take.
  [[nodiscard]] virtual std::uint64_t refused() const noexcept { return 0; }
  [[nodiscard]] virtual LinkState link() noexcept { return LinkState::kUp; }
  /// Whether it may send payload from where it lies, of packets that allow it (TxBatch::lend). The rest as FrameDevice.
  [[nodiscard]] virtual bool lends() const noexcept { return false; }
  [[nodiscard]] virtual Loans loans() noexcept { return {}; }
  virtual void end_loans() noexcept {}
  virtual void map([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) noexcept {}
  virtual void unmap([[maybe_unused]] const void* start, [[maybe_unused]] std::size_t bytes) noexcept {}
  /// Becomes readable when rx_burst may have something, after on_wait(true); -1 where there is nothing to wait on.
  [[nodiscard]] virtual int wait_fd() const noexcept = 0;
  /// Somebody is about to wait on wait_fd() (`begins`); false: rx_burst has something already. Or he does so no more,
  /// whatever came of it.
  virtual bool on_wait(bool begins) noexcept { return begins; }
  /// When rx_burst may have something although wait_fd() stays silent (a decorator that delays); 0: never.
  [[nodiscard]] virtual Nanos next_event() const noexcept { return 0; }

 protected:
  PacketPort() = default;
  PacketPort(const PacketPort&) = delete;
  PacketPort& operator=(const PacketPort&) = delete;
};

/// To which of the port's GIDs the packet came.
[[nodiscard]] inline Gid destination_of(const RxPacket& packet, const PacketPort& port) noexcept {
  return packet.to_link_local ? port.link_local() : port.address();
}

/// What the headers said that the packet came with.
[[nodiscard]] inline UdpFrame headers_of(const RxPacket& packet, const PacketPort& port) noexcept {
  return {packet.source,        destination_of(packet, port), packet.source_port, kRoceUdpPort,
          packet.ipv4_id_guess, packet.bytes.size(),          packet.ipv4_flags,  packet.version};
}

}  // namespace fairlead::soft
