// The receive window that devices of our kind announce to each other: who is told what, and what a teller can do with
// it.
#include "tests/verbs/soft/raw_peer.h"
#include "verbs/soft/flow_control/port_slot.h"
#include "verbs/soft/port/udp/udp_port.h"
#include "verbs/soft/wire/window_code.h"

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kStock = 192 << 10;  // what a peer is taken for of which nothing is known
constexpr std::size_t kFar = 4 << 20;
constexpr EndpointOptions kLarge{.buffer_bytes = 40 << 20};

class Announcement : public testing::Test {
 protected:
  /// The device has so much to send that only windows hold it back.
  void post_writes() {
    for (std::uint64_t id = 0; id < 8; ++id) {
      ASSERT_EQ(peer.device->post(IBV_WR_RDMA_WRITE, id, 0, 4 << 20, peer.device.get(), 0), 0);
    }
    take_all();
  }
  void take_all() {
    for (auto seen = peer.receive(); !seen.empty(); seen = peer.receive()) {
      for (const Seen& each : seen) {
        next = each.psn + 1;
        from_kin = each.kin;
        ++sent;
      }
    }
  }
  /// Bytes on their way once all that was sent is acknowledged, and the device sent what it may.
  std::size_t on_its_way_after(std::uint8_t window, bool kin = true) {
    const std::size_t before = sent;
    acknowledge(window, kin);
    take_all();
    return (sent - before) * 1088;  // 1024 of payload and what a packet is charged for its headers
  }
  void acknowledge(std::uint8_t window, bool kin = true) { peer.send({.psn = next - 1, .kin = kin, .window = window}); }
  std::uint8_t told(bool kin) {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + asked++,
               .payload = RawPeer::payload(8, asked),
               .reth = peer.target(0, 8),
               .kin = kin});
    const auto seen = peer.receive();
    EXPECT_EQ(seen.size(), 1U);
    return seen.empty() ? std::uint8_t{99} : seen[0].window;
  }

  RawPeer peer{kLarge, {}, kFar};
  Psn next;
  std::size_t sent = 0;
  bool from_kin = false;
  std::uint32_t asked = 0;
};

TEST_F(Announcement, ReachesOurKindAlone) {
  EXPECT_EQ(told(false), 0);
  EXPECT_EQ(peer.device->counter("sent_windows"), 0U);
  EXPECT_EQ(told(true), window_code(kFar));
  EXPECT_EQ(peer.device->counter("sent_windows"), 1U);
  EXPECT_EQ(told(false), 0) << "the next one to ask may be another";
}

TEST_F(Announcement, IsAskedForOfOurKindAlone) {
  post_writes();
  EXPECT_FALSE(from_kin);
  EXPECT_LE(on_its_way_after(window_code(kFar), false), kStock);
  EXPECT_FALSE(from_kin);
  EXPECT_EQ(peer.device->counter("rcvd_windows"), 0U) << "a stranger's reserved bits say nothing";
  // Who was a stranger once stays one, as far as the first answer goes.
  on_its_way_after(0, true);
  EXPECT_TRUE(from_kin);
}

TEST_F(Announcement, TheWindowGrowsUpToIt) {
  post_writes();
  EXPECT_LE(sent * 1088, kStock);
  std::size_t most = 0;
  for (unsigned round = 0; round < 6; ++round) most = std::max(most, on_its_way_after(window_code(1 << 20)));
  EXPECT_GT(most, std::size_t{1} << 19);
  EXPECT_LE(most, std::size_t{1} << 20);
}

TEST_F(Announcement, OfTheLeastLeavesALittle) {
  post_writes();
  EXPECT_LE(on_its_way_after(1), std::size_t{8} << 10);
  for (unsigned round = 0; round < 3; ++round) {
    const std::size_t bytes = on_its_way_after(1);
    EXPECT_GT(bytes, 0U) << "whoever announces nearly nothing is served slowly, not never";
    EXPECT_LE(bytes, std::size_t{8} << 10);
  }
}

TEST_F(Announcement, MayChangeWithEveryAnswer) {
  post_writes();
  for (unsigned round = 0; round < 24; ++round) {
    const auto code = static_cast<std::uint8_t>(round % 3 == 0 ? kMostWindowCode : round % 3 == 1 ? 1 : 12);
    const std::size_t bytes = on_its_way_after(code);
    EXPECT_LE(bytes, std::min(window_of(code), Window::kMostBytes)) << round;
    EXPECT_GT(bytes, 0U) << round;
  }
  EXPECT_EQ(peer.device->counter("rcvd_windows"), 24U);
}

TEST_F(Announcement, IsTakenFromCredibleAnswersOnly) {
  post_writes();
  acknowledge(0);  // it is of our kind
  take_all();
  const Psn beyond = next + 5;
  peer.send({.psn = beyond, .kin = true, .window = 20});                          // of what was never sent
  peer.send({.psn = peer.psn - 1, .kin = true, .window = 20});                    // of the past
  peer.send({.psn = next - 1, .aeth = {0x1f, 7777}, .kin = true, .window = 20});  // who has counted wrong
  peer.send({.psn = next - 1, .kin = false, .window = 20});                       // a stranger's
  EXPECT_EQ(peer.device->counter("rcvd_windows"), 0U);
  acknowledge(20);
  EXPECT_EQ(peer.device->counter("rcvd_windows"), 1U);
}

TEST(Window, TakesNoAnnouncementFurtherThanItsLimits) {
  Window window(kStock);
  window.announce(~std::size_t{0});
  EXPECT_EQ(window.limit(), kStock) << "it grows by what is acknowledged";
  for (unsigned i = 0; i < 1000; ++i) window.on_acknowledged(window.limit());
  EXPECT_EQ(window.limit(), Window::kMostBytes);
  window.announce(1);
  EXPECT_EQ(window.limit(), Window::kProbeBytes);
  window.announce(0);
  EXPECT_EQ(window.limit(), Window::kProbeBytes) << "it says nothing";
}

TEST(Window, OfWhichSomethingWasLostDoesNotJumpToWhatIsAnnounced) {
  Window window(kStock);
  window.announce(1 << 20);
  for (unsigned i = 0; i < 10; ++i) window.on_acknowledged(window.limit());
  EXPECT_EQ(window.limit(), std::size_t{1} << 20);
  window.on_loss();
  window.announce(8 << 20);
  window.on_acknowledged(window.limit());
  EXPECT_LE(window.limit(), (std::size_t{1} << 19) + (8 << 20) / 24);
}

TEST(Senders, AreThoseOfThisTimeAndTheLast) {
  Senders senders;
  PortSlot slot(std::move(LoopbackPort::make_pair().first));
  const PeerHold one = slot.meet(Gid::from_ipv4(0x0a000001));
  const PeerHold two = slot.meet(Gid::from_ipv4(0x0a000002));
  EXPECT_EQ(senders.count(), 1U) << "whoever asks is one";
  Sender& first = one->sender(0x010011);
  senders.heard(first, 1);
  senders.heard(first, 2);
  senders.heard(one->sender(0x010012), 3);
  EXPECT_EQ(senders.count(), 1U) << "two queue pairs of one process";
  senders.heard(one->sender(0x020011), 4);
  senders.heard(two->sender(0x010011), 5);
  EXPECT_EQ(senders.count(), 3U);
  senders.heard(first, 60 * kMillisecond);
  EXPECT_EQ(senders.count(), 3U) << "the others may be about to send";
  senders.heard(first, 120 * kMillisecond);
  EXPECT_EQ(senders.count(), 1U);
  senders.heard(two->sender(0x010011), 10 * kSecond);
  EXPECT_EQ(senders.count(), 1U);
}

TEST(Senders, ShareTheReceiveBuffer) {
  auto [left, right] = LoopbackPort::make_pair();
  left->set_far_window(kFar);
  PortSlot slot(std::move(left));
  EXPECT_EQ(slot.share(), kFar);
  for (std::uint32_t i = 1; i <= 8; ++i) slot.senders.heard(slot.meet(Gid::from_ipv4(i))->sender(0), 1);
  EXPECT_EQ(slot.share(), kFar / 8);
  slot.far_reads.force(3 << 20);
  EXPECT_EQ(slot.share(), kFar / 2 / 8) << "what we ask for ourselves fills it too, but not all of it";
}

TEST(UdpPort, AnnouncesWhatTheSystemGave) {
  Gid address;
  auto socket = bind_free_loopback(address);
  ASSERT_TRUE(socket) << socket.status().to_string();
  UdpPort port(interface_of(address), std::move(*socket));
  port.ask_for_receive_buffer(212992);  // net.core.rmem_max of a stock system
  EXPECT_EQ(port.receive_window().far, kStock);
  port.ask_for_receive_buffer(16 << 10);
  EXPECT_LT(port.receive_window().far, std::size_t{16} << 10);
  port.ask_for_receive_buffer(std::size_t{1} << 30);
  EXPECT_EQ(port.receive_window().far, receive_buffer_bytes(port.wait_fd()) / 13 * 6)
      << "which the system may have cut";
}

TEST(UdpPort, WithinAHostNobodyIsTold) {
  Endpoint a(open_udp("udp,local=sockets"));
  Endpoint b(open_udp("udp,local=sockets"));
  connect(a, b);
  for (std::uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, id, 0, 1 << 20, &b, 0), 0);
    while (a.done.size() <= id) {
      a.poll();
      b.poll();
    }
  }
  EXPECT_EQ(b.counter("sent_windows"), 0U);
  EXPECT_EQ(a.counter("rcvd_windows"), 0U);
}

}  // namespace
}  // namespace fairlead::soft::test
