// Packets that come before their turn, between devices of our kind: what is kept, what is reported missing and when,
// and what of it is sent again.
#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/objects.h"

namespace fairlead::soft::test {
namespace {

constexpr std::uint32_t kMtu = 1024;

std::size_t kept(RawPeer& peer) { return impl(peer.device->context).domain().packet_store.used(); }

/// The device responds. The test is of its kind, and sends the packets of a WRITE in whatever order.
class EarlyRequests : public testing::Test {
 protected:
  void SetUp() override { greet(); }
  void greet(bool kin = true) {
    peer.send({.opcode = Opcode::kWriteOnly, .psn = at(0), .reth = peer.target(0, 0), .kin = kin});
    EXPECT_EQ(peer.receive().size(), 1U);
  }
  /// Packet `number` of a WRITE of `count` packets that begins at 1.
  void send(std::uint32_t number, std::uint32_t count, bool kin = true) {
    const bool first = number == 1;
    const bool last = number == count;
    peer.send({.opcode = first  ? Opcode::kWriteFirst
                         : last ? Opcode::kWriteLast
                                : Opcode::kWriteMiddle,
               .psn = at(number),
               .payload = RawPeer::payload(kMtu, number),
               .reth = peer.target(0, count * kMtu),
               .ack_request = last,
               .kin = kin});
  }
  void expect_placed(std::uint32_t count) {
    for (std::uint32_t i = 1; i <= count; ++i) {
      EXPECT_EQ(peer.device->buffer[(i - 1) * kMtu], i & 0xff) << i;
      EXPECT_EQ(peer.device->buffer[i * kMtu - 1], i & 0xff) << i;
    }
  }
  [[nodiscard]] Psn at(std::uint32_t number) const { return peer.psn + number; }

  RawPeer peer;
};

TEST_F(EarlyRequests, OfTwoPacketsTooLateOneNobodyHears) {
  send(1, 4);
  send(3, 4);
  send(4, 4);
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_EQ(kept(peer), 2U);
  send(2, 4);
  peer.expect_answer(Syndrome::kAck, at(4));
  expect_placed(4);
  EXPECT_EQ(kept(peer), 0U);
  EXPECT_EQ(peer.device->counter("rcvd_early"), 2U);
  EXPECT_EQ(peer.device->counter("sent_missing"), 0U);
  EXPECT_EQ(peer.device->counter("send_seq_err"), 0U);
}

TEST_F(EarlyRequests, AGapIsReportedOnceThreeCameBehindIt) {
  send(1, 9);
  send(4, 9);
  send(5, 9);
  EXPECT_TRUE(peer.receive().empty());
  send(6, 9);
  send(7, 9);
  auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U) << "once";
  EXPECT_EQ(seen[0].opcode, Opcode::kMissing);
  EXPECT_EQ(seen[0].psn, at(2));
  EXPECT_EQ(seen[0].missing, 2U);
  EXPECT_EQ(seen[0].aeth.syndrome, static_cast<std::uint8_t>(Syndrome::kNakSequence)) << "all before it is there";
  EXPECT_TRUE(seen[0].kin);
  send(3, 9);
  send(9, 9);  // a second gap, the first of which is half filled
  seen = peer.receive_after(kMillisecond);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].psn, at(8));
  EXPECT_EQ(seen[0].missing, 1U);
  EXPECT_TRUE(seen[0].aeth.is_ack()) << "more is missing before it";
  send(8, 9);
  send(2, 9);
  peer.expect_answer(Syndrome::kAck, at(9));
  expect_placed(9);
}

TEST_F(EarlyRequests, AGapAtTheEndIsReportedInTime) {
  send(1, 3);
  send(3, 3);
  EXPECT_TRUE(peer.receive_after(99 * kMicrosecond).empty());
  const auto seen = peer.receive_after(2 * kMicrosecond);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].psn, at(2));
}

TEST_F(EarlyRequests, WhatWasReportedAndIsLostAgainIsReportedAgain) {
  for (const std::uint32_t number : {1U, 3U, 4U, 5U}) send(number, 9);
  EXPECT_EQ(peer.receive().size(), 1U);
  EXPECT_TRUE(peer.receive_after(50 * kMillisecond).empty()) << "how long a repetition takes is not known yet";
  peer.clock.advance(kMillisecond);
  send(2, 9);  // 51 ms after the report
  for (const std::uint32_t number : {7U, 8U, 9U}) send(number, 9);
  EXPECT_EQ(peer.receive().size(), 1U);
  EXPECT_TRUE(peer.receive_after(100 * kMillisecond).empty());
  unsigned reports = 1;
  for (unsigned i = 0; i < 40; ++i) reports += static_cast<unsigned>(peer.receive_after(103 * kMillisecond).size());
  EXPECT_EQ(reports, 8U) << "and not for ever: the peer may be gone";
}

TEST_F(EarlyRequests, ReportsInVainTeachHowLatePacketsAre) {
  std::uint32_t next = 1;
  const auto overtaken = [&](Nanos late) {
    for (const std::uint32_t number : {next, next + 2, next + 3, next + 4}) send(number, 99);
    const auto before = peer.device->counter("sent_missing");
    peer.clock.advance(late);
    send(next + 1, 99);
    next += 5;
    static_cast<void>(peer.receive());
    return peer.device->counter("sent_missing") - before;
  };
  std::uint64_t in_vain = 0;
  for (unsigned i = 0; i < 8; ++i) {
    const auto before = peer.device->counter("sent_missing");
    static_cast<void>(overtaken(300 * kMicrosecond));
    if (peer.device->counter("sent_missing") == before) continue;
    ++in_vain;
    send(next - 4, 99);  // the repetition
    static_cast<void>(peer.receive());
  }
  EXPECT_LE(in_vain, 4U);
  EXPECT_EQ(overtaken(300 * kMicrosecond), 0U) << "as late as all of them";
}

TEST_F(EarlyRequests, OfStrangersAreRefusedAtOnce) {
  greet(false);
  send(1, 4, false);
  send(3, 4, false);
  peer.expect_answer(Syndrome::kNakSequence, at(2));
  EXPECT_EQ(kept(peer), 0U);
  EXPECT_EQ(peer.device->counter("rcvd_early"), 0U);
  EXPECT_EQ(peer.device->counter("sent_missing"), 0U);
}

TEST_F(EarlyRequests, AreKeptOnceAndUpToALimit) {
  send(1, 4000);
  for (unsigned copy = 0; copy < 3; ++copy) {
    for (std::uint32_t number = 3; number < 3 + Disorder::kMostKept + 100; ++number) send(number, 4000);
  }
  EXPECT_EQ(kept(peer), Disorder::kMostKept);
  EXPECT_EQ(peer.device->counter("send_seq_err"), 3U) << "what finds no room is to come again, as ever: once a copy";
  static_cast<void>(peer.receive());
  send(2, 4000);
  EXPECT_EQ(kept(peer), 0U);
  expect_placed(2 + Disorder::kMostKept);
}

TEST_F(EarlyRequests, GoWithTheirQueuePair) {
  send(1, 9);
  send(3, 9);
  ASSERT_EQ(kept(peer), 1U);
  ASSERT_EQ(peer.device->to_state(IBV_QPS_RESET), 0);
  EXPECT_EQ(kept(peer), 0U);
}

TEST_F(EarlyRequests, OfAReadStandForItsAnswer) {
  // A READ of three packets, overtaken by the WRITE behind it.
  peer.send({.opcode = Opcode::kWriteOnly,
             .psn = at(4),
             .payload = RawPeer::payload(8, 9),
             .reth = peer.target(0, 8),
             .kin = true});
  peer.send({.opcode = Opcode::kReadRequest, .psn = at(1), .reth = peer.target(8192, 3 * kMtu), .kin = true});
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[0].opcode, Opcode::kReadResponseFirst);
  EXPECT_EQ(seen[3].opcode, Opcode::kAcknowledge);
  EXPECT_EQ(seen[3].psn, at(4));
  EXPECT_EQ(peer.device->buffer[0], 9);
}

TEST_F(EarlyRequests, ThatCannotBeTakenComeAgain) {
  // SENDs 1 and 3 to 5 without a receive request: 1 is to wait, and with it all.
  const auto message = [&](std::uint32_t number) {
    peer.send({.opcode = Opcode::kSendOnly, .psn = at(number), .payload = RawPeer::payload(8, number), .kin = true});
  };
  message(2);
  message(3);
  EXPECT_EQ(kept(peer), 2U);
  message(1);
  auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(seen[0].aeth.is_rnr_nak());
  EXPECT_EQ(seen[0].psn, at(1));
  EXPECT_EQ(kept(peer), 0U);
  message(2);
  message(3);
  EXPECT_EQ(kept(peer), 0U) << "the requester waits, and comes back to the first";
  for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(peer.device->post_recv(id, id * 64, 64), 0);
  for (const std::uint32_t number : {1U, 3U, 2U}) message(number);
  ASSERT_EQ(peer.device->done.size(), 3U);
  for (std::uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(peer.device->done[id - 1].wr_id, id);
}

TEST_F(EarlyRequests, AreCheckedWhenTheirTurnComes) {
  // The region of 3 is not granted: nothing of it is placed, and 2 is before it.
  peer.send({.opcode = Opcode::kWriteOnly,
             .psn = at(2),
             .payload = RawPeer::payload(8, 7),
             .reth = {0, 1234, 8},
             .kin = true});
  EXPECT_TRUE(peer.receive().empty());
  peer.send({.opcode = Opcode::kWriteOnly,
             .psn = at(1),
             .payload = RawPeer::payload(8, 7),
             .reth = peer.target(0, 8),
             .kin = true});
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].aeth.syndrome, static_cast<std::uint8_t>(Syndrome::kNakRemoteAccess));
  EXPECT_EQ(seen[0].psn, at(2));
  EXPECT_EQ(kept(peer), 0U);
  EXPECT_EQ(peer.device->state(), IBV_QPS_ERR);
}

/// The device requests; the test answers, as one of its kind.
class Reports : public testing::Test {
 protected:
  void write(std::uint32_t packets) {
    ASSERT_EQ(peer.device->post(IBV_WR_RDMA_WRITE, 1, 0, packets * kMtu, peer.device.get(), 0), 0);
    ASSERT_EQ(peer.receive().size(), packets);
  }
  std::vector<Seen> report(std::uint32_t number, std::uint32_t packets, bool kin = true, std::uint32_t msn = 0) {
    peer.send({.opcode = Opcode::kMissing, .psn = at(number), .aeth = {0x1f, msn}, .kin = kin, .missing = packets});
    return peer.receive();
  }
  [[nodiscard]] Psn at(std::uint32_t number) const { return peer.psn + number; }

  RawPeer peer;
};

TEST_F(Reports, BringWhatIsMissingAndNothingElse) {
  write(40);
  const auto seen = report(10, 3);
  ASSERT_EQ(seen.size(), 3U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(seen[i].opcode, Opcode::kWriteMiddle);
    EXPECT_EQ(seen[i].psn, at(10 + i));
    EXPECT_EQ(seen[i].ack_request, i == 2);
  }
  peer.send({.psn = at(39), .aeth = {0x1f, 1}, .kin = true});
  EXPECT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->counter("sent_repeats"), 3U);
  EXPECT_EQ(peer.device->counter("rcvd_missing"), 1U);
  EXPECT_EQ(peer.device->counter("completer_retry_err"), 0U);
}

TEST_F(Reports, OfWhatIsAcknowledgedOrNotSentBringNothing) {
  write(40);
  peer.send({.psn = at(19), .kin = true});
  EXPECT_TRUE(report(10, 3).empty());
  EXPECT_TRUE(report(100, 3).empty());
  EXPECT_EQ(report(38, 1000).size(), 2U) << "as far as anything was sent";
  EXPECT_EQ(peer.device->counter("sent_repeats"), 2U);
}

TEST_F(Reports, ThatCannotBeAreDropped) {
  write(4);
  EXPECT_TRUE(report(1, 1, false).empty()) << "a stranger's";
  peer.send({.psn = at(0), .kin = true});
  EXPECT_TRUE(report(1, 0).empty());
  EXPECT_TRUE(report(1, ~0U).empty());
  EXPECT_TRUE(report(1, 1, true, 5).empty()) << "of one who counted five messages";
  EXPECT_EQ(peer.device->counter("rcvd_missing"), 0U);
  EXPECT_EQ(peer.device->counter("drop_bogus"), 4U);
  EXPECT_EQ(report(1, 1).size(), 1U);
}

TEST(Repeats, AreBounded) {
  Repeats repeats;
  for (std::size_t i = 0; i < Repeats::kMost; ++i) EXPECT_TRUE(repeats.push({Psn(1), Psn(2)}));
  EXPECT_FALSE(repeats.push({Psn(1), Psn(2)}));
  repeats.pop();
  EXPECT_TRUE(repeats.push({Psn(3), Psn(4)}));
}

TEST_F(Reports, AreHeededInAnyNumber) {
  write(120);
  for (std::uint32_t i = 0; i < 40; ++i) {
    peer.put({.opcode = Opcode::kMissing, .psn = at(3 * i), .aeth = {0x1f, 0}, .kin = true, .missing = 1});
  }
  EXPECT_EQ(peer.receive().size(), 40U);
}

TEST_F(Reports, OfAReadRequestBringItAgain) {
  ASSERT_EQ(peer.device->post(IBV_WR_RDMA_READ, 1, 0, 2 * kMtu, peer.device.get(), 0), 0);
  ASSERT_EQ(peer.device->post(IBV_WR_RDMA_WRITE, 2, 0, 8, peer.device.get(), 0), 0);
  ASSERT_EQ(peer.receive().size(), 2U);
  const auto seen = report(0, 2);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].opcode, Opcode::kReadRequest);
  EXPECT_EQ(seen[0].psn, at(0));
  EXPECT_EQ(seen[0].reth.length, 2 * kMtu);
}

TEST_F(Reports, LeaveTheRetriesCounted) {
  write(4);
  peer.send({.psn = at(0), .kin = true});
  // It reports, and acknowledges nothing: no end of it, but for the timeout that the program set.
  for (unsigned i = 0; i < 4000 && peer.device->done.empty(); ++i) {
    static_cast<void>(report(1, 1));
    static_cast<void>(peer.receive_after(kMillisecond));
  }
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_RETRY_EXC_ERR);
}

class EarlyAnswers : public testing::Test {
 protected:
  void read(std::uint32_t packets) {
    ASSERT_EQ(peer.device->post(IBV_WR_RDMA_READ, 1, 0, packets * kMtu, peer.device.get(), 65536), 0);
    ASSERT_EQ(peer.receive().size(), 1U);
  }
  void answer(std::uint32_t number, std::uint32_t packets) {
    const bool last = number + 1 == packets;
    peer.send({.opcode = number == 0 ? Opcode::kReadResponseFirst
                         : last      ? Opcode::kReadResponseLast
                                     : Opcode::kReadResponseMiddle,
               .psn = peer.psn + number,
               .payload = RawPeer::payload(kMtu, number + 1),
               .kin = true});
  }
  void expect_complete(std::uint32_t packets) {
    ASSERT_EQ(peer.device->done.size(), 1U);
    EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
    for (std::uint32_t i = 0; i < packets; ++i) EXPECT_EQ(peer.device->buffer[i * kMtu], i + 1) << i;
    EXPECT_EQ(kept(peer), 0U);
  }

  RawPeer peer;
};

TEST_F(EarlyAnswers, WaitForTheOneThatTheyOvertook) {
  read(5);
  for (const std::uint32_t number : {0U, 2U, 3U, 1U, 4U}) answer(number, 5);
  expect_complete(5);
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_EQ(peer.device->counter("lost_responses"), 0U);
}

TEST_F(EarlyAnswers, LeaveOneThatWasLostToBeAskedForAlone) {
  read(9);
  for (const std::uint32_t number : {0U, 1U, 4U, 5U, 6U}) answer(number, 9);
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].opcode, Opcode::kReadRequest);
  EXPECT_EQ(seen[0].psn, peer.psn + 2);
  EXPECT_EQ(seen[0].reth.address, peer.target(65536 + 2 * kMtu, 0).address);
  EXPECT_EQ(seen[0].reth.length, 2 * kMtu);
  EXPECT_TRUE(seen[0].kin);
  for (const std::uint32_t number : {7U, 8U, 2U, 3U}) answer(number, 9);
  expect_complete(9);
  EXPECT_EQ(peer.device->counter("lost_responses"), 1U);
  EXPECT_EQ(peer.device->counter("completer_retry_err"), 0U);
}

// The responder's side of it: what is asked for again comes beside what is still to come, which is not forgotten.
TEST_F(EarlyRequests, APartOfAReadIsAnsweredBesideTheRest) {
  constexpr std::uint32_t kPackets = 128;  // more than one turn
  peer.put({.opcode = Opcode::kReadRequest, .psn = at(1), .reth = peer.target(0, kPackets * kMtu), .kin = true});
  peer.put({.opcode = Opcode::kReadRequest, .psn = at(5), .reth = peer.target(4 * kMtu, 2 * kMtu), .kin = true});
  std::vector<unsigned> times(kPackets);
  for (auto seen = peer.receive(); !seen.empty(); seen = peer.receive()) {
    for (const Seen& each : seen) ++times.at(static_cast<std::size_t>(each.psn.since(at(1))));
  }
  EXPECT_TRUE(std::ranges::all_of(times, [](unsigned n) { return n >= 1; }));
  EXPECT_LE(std::ranges::max(times), 2U);
  // And one that is over is answered again, in that part.
  peer.send({.opcode = Opcode::kReadRequest, .psn = at(9), .reth = peer.target(8 * kMtu, 3 * kMtu), .kin = true});
  EXPECT_EQ(peer.receive().size(), 3U);
}

// Adds one to the word there.
int post_add(Endpoint& from, Endpoint& to, std::size_t offset) {
  ibv_sge segment = from.sge(offset, 8);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &segment;
  wr.num_sge = 1;
  wr.wr.atomic = {reinterpret_cast<std::uint64_t>(to.buffer.data()) + offset, 1, 0, to.mr->rkey};
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(from.qp, &wr, &bad);
}

TEST(Selective, CarriesEveryKindOfRequestOverABadNetwork) {
  const FaultConfig faults{.drop = 0.02, .reorder = 0.05, .duplicate = 0.02, .seed = 3};
  Simulation world(faults, {.drop = 0.02, .reorder = 0.05, .duplicate = 0.02, .seed = 4});
  connect(*world.a, *world.b);
  fill_pattern(world.a->buffer, 1);
  fill_pattern(world.b->buffer, 2);
  std::uint64_t before = 0;
  std::memcpy(&before, &world.b->buffer[(4 << 20) - 8], sizeof(before));
  constexpr std::size_t kEach = 48 << 10;
  constexpr std::uint64_t kRounds = 16;
  for (std::uint64_t id = 0; id < kRounds; ++id) {
    const std::size_t at = id * kEach;
    ASSERT_EQ(world.b->post_recv(id, (2 << 20) + at, kEach), 0);
    ASSERT_EQ(world.a->post(IBV_WR_RDMA_WRITE, id, at, kEach, world.b.get(), (1 << 20) + at), 0);
    ASSERT_EQ(world.a->post(IBV_WR_RDMA_READ, id, (3 << 20) + at, kEach, world.b.get(), at), 0);
    ASSERT_EQ(world.a->post(IBV_WR_SEND, id, at, kEach, nullptr, 0), 0);
    ASSERT_EQ(post_add(*world.a, *world.b, (4 << 20) - 8), 0);
  }
  ASSERT_TRUE(world.run_until([&] { return world.a->done.size() == 4 * kRounds && world.b->done.size() == kRounds; }));
  for (const ibv_wc& each : world.a->done) ASSERT_EQ(each.status, IBV_WC_SUCCESS);
  std::uint64_t sum = 0;
  std::memcpy(&sum, &world.b->buffer[(4 << 20) - 8], sizeof(sum));
  EXPECT_EQ(sum, before + kRounds) << "each is carried out once";
  constexpr std::size_t kAll = kEach * kRounds;
  EXPECT_EQ(std::memcmp(&world.a->buffer[0], &world.b->buffer[1 << 20], kAll), 0);
  EXPECT_EQ(std::memcmp(&world.a->buffer[0], &world.b->buffer[2 << 20], kAll), 0);
  EXPECT_EQ(std::memcmp(&world.b->buffer[0], &world.a->buffer[3 << 20], kAll), 0);
  EXPECT_GT(world.a->counter("sent_repeats"), 0U);
  EXPECT_GT(world.b->counter("rcvd_early"), 0U);
  EXPECT_EQ(impl(world.a->context).domain().packet_store.used(), 0U);
  EXPECT_EQ(impl(world.b->context).domain().packet_store.used(), 0U);
}

}  // namespace
}  // namespace fairlead::soft::test
