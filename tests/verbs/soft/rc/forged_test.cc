// Packets of somebody who sees nothing of a connection and guesses: they change nothing, and cost little.
#include <algorithm>

#include "tests/verbs/soft/raw_peer.h"
#include "verbs/soft/api/objects.h"

namespace fairlead::soft::test {
namespace {

// The device has sent many messages that a peer of our kind has acknowledged, and 64 more that are under way.
class ForgedPackets : public testing::Test {
 protected:
  static constexpr unsigned kBefore = 300;
  static constexpr unsigned kUnderWay = 64;

  void SetUp() override {
    for (unsigned i = 0; i < kBefore; ++i) {
      post();
      acknowledge(i);
    }
    ASSERT_EQ(done(), kBefore);
    for (unsigned i = 0; i < kUnderWay; ++i) post();
    static_cast<void>(peer.receive());
    dropped_before = dropped();
  }
  void post() { ASSERT_EQ(peer.device->post(IBV_WR_RDMA_WRITE, 1, 0, 10, peer.device.get(), 0), 0); }
  void acknowledge(unsigned message) {
    peer.send({.psn = peer.psn + message, .aeth = {0x1f, message + 1}, .kin = true});
  }
  [[nodiscard]] std::uint64_t dropped() const { return peer.device->counter("drop_bogus"); }
  /// With each PSN that is under way, and some beside.
  void send_all_around(const Forged& packet) {
    Forged each = packet;
    for (std::uint32_t i = kBefore - kUnderWay; i < kBefore + 2 * kUnderWay; ++i) {
      each.psn = peer.psn + i;
      peer.send(each);
    }
  }
  // What completes at once may be more than a poll takes.
  std::size_t done() {
    for (unsigned i = 0; i < kUnderWay; ++i) peer.device->poll();
    return peer.device->done.size();
  }
  void expect_unharmed() {
    EXPECT_EQ(done(), kBefore);
    EXPECT_EQ(peer.device->state(), IBV_QPS_RTS);
    EXPECT_TRUE(peer.receive().empty()) << "it has sent something again, or answered";
    acknowledge(kBefore + kUnderWay - 1);
    ASSERT_EQ(done(), kBefore + kUnderWay);
    for (const ibv_wc& each : peer.device->done) EXPECT_EQ(each.status, IBV_WC_SUCCESS);
  }

  RawPeer peer;
  std::uint64_t dropped_before = 0;
};

// One for each window's worth of all PSNs is what it took.
TEST_F(ForgedPackets, RefusalsTearNothingDown) {
  for (std::uint32_t psn = 0; psn <= Psn::kMask; psn += kUnderWay) {
    peer.send({.psn = Psn(psn), .aeth = {static_cast<std::uint8_t>(Syndrome::kNakRemoteAccess), 0}, .kin = true});
  }
  for (const bool kin : {true, false}) {
    for (const Syndrome syndrome : {Syndrome::kNakRemoteAccess, Syndrome::kNakSequence, Syndrome::kRnrNak}) {
      send_all_around({.aeth = {static_cast<std::uint8_t>(syndrome), 0}, .kin = kin});
    }
  }
  EXPECT_GE(dropped(), dropped_before + (Psn::kMask / 2 / kUnderWay) + 6 * kUnderWay);
  expect_unharmed();
}

TEST_F(ForgedPackets, AcknowledgementsCompleteNothing) {
  for (const bool kin : {true, false}) send_all_around({.aeth = {0x1f, 0}, .kin = kin});
  expect_unharmed();
}

TEST_F(ForgedPackets, AnswersOfReadsSendNothingAgain) {
  send_all_around({.opcode = Opcode::kReadResponseOnly, .payload = RawPeer::payload(8, 1), .aeth = {0x1f, 0}});
  expect_unharmed();
}

TEST_F(ForgedPackets, RefusalsOfThePeerAreTaken) {
  peer.send({.psn = peer.psn + kBefore,
             .aeth = {static_cast<std::uint8_t>(Syndrome::kNakRemoteAccess), kBefore},
             .kin = true});
  ASSERT_EQ(done(), kBefore + kUnderWay);
  EXPECT_EQ(peer.device->done[kBefore].status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(ForgedPackets, RequestsFarFromWhatIsExpectedAreNotAnswered) {
  for (const std::uint32_t distance : {1U << 17, 1U << 20, 3U << 20, 1U << 22}) {
    for (const Psn psn : {peer.psn + distance, peer.psn - distance}) {
      peer.send(
          {.opcode = Opcode::kWriteOnly, .psn = psn, .payload = RawPeer::payload(8, 1), .reth = peer.target(0, 8)});
    }
  }
  EXPECT_EQ(dropped(), dropped_before + 8);
  EXPECT_EQ(peer.device->counter("send_seq_err"), 0U);
  expect_unharmed();
}

// A request is kept for its turn only where a peer of our kind may have one on its way.
TEST(ForgedRequests, MustBeWhereAPeersMayBe) {
  RawPeer peer;
  const auto write = [&peer](std::uint32_t ahead, bool kin) {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + ahead,
               .payload = RawPeer::payload(8, 1),
               .reth = peer.target(0, 8),
               .kin = kin});
  };
  const auto kept = [&peer] { return impl(peer.device->context).domain().packet_store.used(); };
  peer.send({.opcode = Opcode::kWriteOnly, .psn = peer.psn, .reth = peer.target(0, 0), .kin = true});
  ASSERT_EQ(peer.receive().size(), 1U);
  for (const std::uint32_t ahead : {2U, 100U, 16'000U, 65'000U}) write(ahead, false);
  for (const std::uint32_t ahead : {20'000U, 40'000U, 65'000U}) write(ahead, true);
  EXPECT_EQ(kept(), 0U);
  EXPECT_EQ(peer.device->counter("drop_bogus"), 7U);
  EXPECT_TRUE(peer.receive_after(kMillisecond).empty());
  EXPECT_TRUE(peer.untouched());
  write(16'384, true);  // a window of packets that are charged 1 KiB
  EXPECT_EQ(kept(), 1U);
}

// A carrier of what only our kind sends is not believed before its PSN was.
TEST(ForgedKinship, TakesAPsn) {
  RawPeer peer;
  peer.send({.psn = peer.psn + (1 << 20), .kin = true});
  EXPECT_FALSE(impl(peer.device->qp).receive.peer_is_kin);
  ASSERT_EQ(peer.device->post(IBV_WR_RDMA_WRITE, 1, 0, 10, peer.device.get(), 0), 0);
  peer.send({.psn = peer.psn, .aeth = {0x1f, 1}, .kin = true});
  EXPECT_TRUE(impl(peer.device->qp).receive.peer_is_kin);
}

// Whatever says that packets were lost: in the time that one flight takes, one more is sent.
TEST(ForgedLoss, CostsOneFlightARoundTrip) {
  constexpr Nanos kTrip = 100 * kMicrosecond;
  RawPeer peer;
  const auto nak = [&](Psn psn) {
    peer.send({.psn = psn, .aeth = {static_cast<std::uint8_t>(Syndrome::kNakSequence)}});
  };
  ASSERT_EQ(peer.device->post(IBV_WR_RDMA_WRITE, 1, 0, 10, peer.device.get(), 0), 0);
  peer.clock.advance(kTrip);
  peer.send({.psn = peer.psn});
  ASSERT_EQ(peer.device->done.size(), 1U);
  for (unsigned i = 0; i < 10; ++i) ASSERT_EQ(peer.device->post(IBV_WR_RDMA_WRITE, 1, 0, 10, peer.device.get(), 0), 0);
  ASSERT_EQ(peer.receive().size(), 11U);
  for (unsigned i = 0; i < 50; ++i) nak(peer.psn + 1);
  EXPECT_EQ(peer.receive().size(), 10U);
  EXPECT_EQ(peer.receive_after(kTrip / 2).size(), 0U);
  EXPECT_EQ(peer.receive_after(kTrip / 2).size(), 10U) << "the last report is heeded, in time";
  peer.clock.advance(kTrip);
  for (unsigned i = 0; i < 50; ++i) nak(peer.psn + 1 + i % 4);
  EXPECT_LE(peer.receive().size(), 10U);
}

// Receives what the test makes, from any source; what leaves is kept by destination.
class OpenPort final : public PacketPort {
 public:
  [[nodiscard]] const Gid& address() const noexcept override { return address_; }
  [[nodiscard]] std::uint32_t max_mtu() const noexcept override { return 4096; }
  [[nodiscard]] ReceiveWindow receive_window() const noexcept override { return {1 << 20}; }
  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t, std::uint8_t, std::uint8_t) override {
    return {address_, destination};
  }
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos) noexcept override {
    if (arrived.empty()) return 0;
    packets[0] = {arrived, source, kRoceUdpPort};
    handed_out_.swap(arrived);
    packets[0].bytes = handed_out_;
    arrived.clear();
    return 1;
  }
  void tx_burst(TxBatch& batch) noexcept override {
    for (std::size_t i = 0; i < batch.size(); ++i) sent_to.push_back(batch.packet(i).route->destination);
    batch.clear();
  }
  [[nodiscard]] int wait_fd() const noexcept override { return -1; }

  std::vector<std::byte> arrived;
  Gid source;
  std::vector<Gid> sent_to;

 private:
  const Gid address_ = Gid::from_ipv4(0x0a000001);
  std::vector<std::byte> handed_out_;
};

// Any number of sources may ask for receipts; who comes after them gets one all the same, and what is kept is bounded.
TEST(ForgedSources, LeaveRoomForWhoComesNext) {
  ManualClock clock;
  ibv_device entry{};
  auto owned = std::make_unique<OpenPort>();
  OpenPort& port = *owned;
  Endpoint end(new Device(entry, Profile::kFull, clock, std::move(owned)), {.type = IBV_QPT_UD});
  ASSERT_EQ(end.to_init(), 0);
  ASSERT_EQ(end.to_rtr(0, {}, {}), 0);
  ASSERT_EQ(end.to_rts({}), 0);
  const auto ask_from = [&](const Gid& source) {
    ASSERT_EQ(end.post_recv(1, 0, 64), 0);
    TxBatch batch;
    const Route route{source, port.address()};
    std::byte* header = batch.begin(route, Bth::kBytes + Deth::kBytes, 0);
    Bth bth;
    bth.opcode = static_cast<std::uint8_t>(Opcode::kUdSendOnly);
    bth.dest_qpn = end.qp->qp_num;
    bth.receipt_request = true;
    bth.encode(header);
    Deth{Endpoint::kQkey, 9}.encode(header + Bth::kBytes);
    batch.finish(0);
    const TxPacket& packet = batch.packet(0);
    store_icrc(packet.icrc, icrc_of(packet, batch.iovs(packet), 0).value_or(0));
    port.source = source;
    port.arrived.resize(packet.size);
    ASSERT_TRUE(gather(packet, batch.iovs(packet), port.arrived.data()));
    end.done.clear();
    end.poll();
    end.poll();
    ASSERT_EQ(end.done.size(), 1U);
  };
  Domain& domain = impl(end.context).domain();
  PortSlot& slot = *domain.find_port(port.address());
  const Gid friendly = Gid::from_ipv4(0x0a000002);
  const PeerHold held = domain.meet(slot, friendly);
  constexpr std::uint32_t kSources = 20'000;
  for (std::uint32_t i = 0; i < kSources; ++i) ask_from(Gid::from_ipv4(0x0b000000 + i));
  std::uint32_t known = 0;
  for (std::uint32_t i = 0; i < kSources; ++i)
    known += slot.find_flow(Gid::from_ipv4(0x0b000000 + i)) != nullptr ? 1 : 0;
  EXPECT_LE(known, 5000U);
  port.sent_to.clear();
  const Gid next = Gid::from_ipv4(0x0c000001);
  ask_from(next);
  EXPECT_EQ(std::ranges::count(port.sent_to, next), 1);
  EXPECT_EQ(slot.find_flow(friendly), &held->flow) << "whom we send to is not forgotten";
}

}  // namespace
}  // namespace fairlead::soft::test
