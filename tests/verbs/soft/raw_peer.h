// A peer that is driven by hand: one real device, and a test that writes and reads its packets.
#pragma once

#include <optional>

#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft::test {

/// What the device sent, with its payload copied.
struct Seen {
  Opcode opcode{};
  Psn psn;
  bool ack_request = false;
  std::uint32_t qpn = 0;
  Reth reth;
  Aeth aeth;
  std::uint64_t original = 0;
  std::uint32_t immediate = 0;
  CarriedAck carried_ack;
  bool kin = false;
  std::uint8_t window = 0;
  std::uint32_t missing = 0;
  std::vector<std::byte> payload;
};

/// What the test sends. Defaults fit the queue pair that RawPeer connected.
struct Forged {
  Opcode opcode = Opcode::kAcknowledge;
  Psn psn = {};
  std::vector<std::byte> payload = {};
  Deth deth = {};
  Reth reth = {};
  Aeth aeth{0x1f, 0};
  std::uint32_t immediate = 0;
  AtomicEth atomic = {};
  std::uint32_t invalidate_rkey = 0;
  bool ack_request = true;
  bool solicited = false;
  std::optional<std::uint32_t> qpn = {};
  std::uint16_t pkey = kDefaultPKey;
  std::optional<std::uint8_t> pad = {};
  bool kin = false;
  CarriedAck carried_ack = {};
  std::uint8_t window = 0;
  std::uint32_t missing = 0;
};

class RawPeer {
 public:
  static constexpr std::uint32_t kQpn = 0x77;

  /// `far_window`: what the device's port announces.
  explicit RawPeer(const EndpointOptions& options = {}, ConnectOptions connection = {}, std::size_t far_window = 0)
      : psn(connection.psn) {
    auto [left, right] = LoopbackPort::make_pair();
    left->set_far_window(far_window);
    port = std::move(right);
    device = std::make_unique<Endpoint>(new Device(entry_, Profile::kFull, clock, std::move(left)), options);
    EXPECT_EQ(device->to_init(), 0);
    EXPECT_EQ(device->to_rtr(kQpn, port->address().to_verbs(), connection), 0);
    EXPECT_EQ(device->to_rts(connection), 0);
    Gid own = Gid::from_verbs(device->gid());
    route = port->make_route(own, 1, 0, 0);
  }

  void send(const Forged& packet) {
    put(packet);
    device->poll();
  }
  /// The same, but the device does not look yet: several arrive together.
  void put(const Forged& packet) {
    const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(packet.opcode));
    Bth bth;
    bth.opcode = static_cast<std::uint8_t>(packet.opcode);
    bth.solicited = packet.solicited;
    bth.pad = packet.pad.value_or(static_cast<std::uint8_t>(-packet.payload.size() & 3));
    bth.pkey = packet.pkey;
    bth.dest_qpn = packet.qpn.value_or(device->qp->qp_num);
    bth.ack_request = packet.ack_request;
    bth.psn = packet.psn;
    bth.kin = packet.kin;
    bth.window = packet.window;
    std::byte* header = batch.begin(route, info.header_bytes, packet.payload.size());
    std::memset(header, 0, info.header_bytes);
    bth.encode(header);
    if (info.carried_ack) packet.carried_ack.encode(header + info.header_bytes - CarriedAck::kBytes);
    header += Bth::kBytes;
    if (info.deth) {
      packet.deth.encode(header);
      header += Deth::kBytes;
    }
    if (info.reth) {
      packet.reth.encode(header);
      header += Reth::kBytes;
    }
    if (info.aeth) {
      packet.aeth.encode(header);
      header += Aeth::kBytes;
    }
    if (info.immediate) std::memcpy(header, &packet.immediate, kImmediateBytes);
    if (info.kind == PacketKind::kMissing) store32(header, packet.missing);
    if (info.invalidate) store32(header, packet.invalidate_rkey);
    if (info.kind == PacketKind::kAtomic) packet.atomic.encode(header);
    if (info.kind == PacketKind::kAtomicAck) store64(header, packet.atomic.compare);
    batch.payload(packet.payload.data(), packet.payload.size());
    batch.finish(-packet.payload.size() & 3);
    port->tx_burst(batch);
  }

  /// Everything that the device sent since the last call; the clock does not move.
  std::vector<Seen> receive() {
    device->poll();
    std::vector<Seen> all;
    std::array<RxPacket, 16> raw;
    for (std::size_t count; (count = port->rx_burst(raw, clock.now())) > 0;) {
      for (std::size_t i = 0; i < count; ++i) {
        Packet packet;
        EXPECT_EQ(parse(raw[i].bytes, packet), ParseError::kNone);
        const auto covered = raw[i].bytes.first(raw[i].bytes.size() - kIcrcBytes);
        const UdpFrame frame{raw[i].source, port->address(), raw[i].source_port, kRoceUdpPort, 0, raw[i].bytes.size()};
        EXPECT_EQ(icrc(frame, covered), load_icrc(covered.data() + covered.size()));
        all.push_back({static_cast<Opcode>(packet.bth.opcode),
                       packet.bth.psn,
                       packet.bth.ack_request,
                       packet.bth.dest_qpn,
                       packet.reth,
                       packet.aeth,
                       packet.original,
                       packet.immediate,
                       packet.carried_ack,
                       packet.bth.kin,
                       packet.bth.window,
                       packet.missing,
                       {packet.payload.begin(), packet.payload.end()}});
      }
    }
    return all;
  }
  /// The same after moving the clock.
  std::vector<Seen> receive_after(Nanos time) {
    clock.advance(time);
    return receive();
  }

  /// The only packet the device sent, which must be an acknowledgement with this syndrome.
  void expect_answer(Syndrome syndrome, Psn at) {
    const auto seen = receive();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].opcode, Opcode::kAcknowledge);
    EXPECT_EQ(seen[0].aeth.syndrome, static_cast<std::uint8_t>(syndrome));
    EXPECT_EQ(seen[0].psn, at);
    EXPECT_EQ(seen[0].qpn, kQpn);
  }

  [[nodiscard]] Reth target(std::size_t offset, std::uint32_t length) const {
    return {reinterpret_cast<std::uint64_t>(device->buffer.data()) + offset, device->mr->rkey, length};
  }
  /// Whether no byte of the device's memory was written to: it begins as zeroes.
  [[nodiscard]] bool untouched() const { return are_all(device->buffer, std::byte{0}); }
  static std::vector<std::byte> payload(std::size_t length, unsigned value) {
    return std::vector<std::byte>(length, static_cast<std::byte>(value));
  }

  ManualClock clock;
  std::unique_ptr<LoopbackPort> port;
  std::unique_ptr<Endpoint> device;
  Psn psn;  // what the device expects first, and what it sends first
  Route route;
  TxBatch batch;

 private:
  ibv_device entry_{};
};

}  // namespace fairlead::soft::test
