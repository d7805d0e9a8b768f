// Several small messages in one packet, between devices of our kind.
#include "verbs/soft/wire/bundle.h"

#include <algorithm>

#include "tests/verbs/soft/rc/small_messages.h"
#include "tests/verbs/soft/simulation.h"

namespace fairlead::soft::test {
namespace {

TEST(Bundle, WhatIsPostedTogetherLeavesTogether) {
  Kin peer;
  const std::vector<Small> messages = {{.length = 8},
                                       {.opcode = IBV_WR_SEND, .length = 3, .flags = IBV_SEND_SOLICITED},
                                       {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .length = 0, .immediate = 0x01020304},
                                       {.opcode = IBV_WR_SEND_WITH_IMM, .length = 192, .immediate = 7}};
  const auto seen = peer.post_all(messages);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].opcode, Opcode::kBundle);
  EXPECT_EQ(seen[0].psn, peer.own);
  EXPECT_TRUE(seen[0].ack_request);
  const auto all = taken_apart(seen[0]);
  ASSERT_EQ(all.size(), 4U);
  const Opcode opcodes[] = {Opcode::kWriteOnly, Opcode::kSendOnly, Opcode::kWriteOnlyImmediate,
                            Opcode::kSendOnlyImmediate};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<Opcode>(all[i].bth.opcode), opcodes[i]);
    EXPECT_EQ(all[i].bth.psn, peer.own + static_cast<std::uint32_t>(i));
    EXPECT_EQ(all[i].bth.solicited, i == 1);
    EXPECT_EQ(all[i].bth.ack_request, i == 3);
    EXPECT_EQ(all[i].payload.size(), messages[i].length);
    for (const std::byte each : all[i].payload) EXPECT_EQ(each, static_cast<std::byte>(i + 1));
  }
  EXPECT_EQ(all[0].reth.length, 8U);
  EXPECT_EQ(all[2].immediate, 0x01020304U);
  peer.acknowledge(4);
  EXPECT_EQ(peer.device->done.size(), 4U) << "the one before, and those that asked for it";
}

TEST(Bundle, IsFullWhereThePathMtuIs) {
  Kin peer;  // 1024
  const std::vector<Small> messages(12, {.length = 100});
  auto seen = peer.post_all(messages);
  ASSERT_EQ(seen.size(), 5U) << "the first bundle shows whether the peer takes any";
  EXPECT_EQ(taken_apart(seen[0]).size(), 8U);
  peer.acknowledge(12);
  seen = peer.post_all(messages);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(taken_apart(seen[0]).size(), 8U);
  EXPECT_LE(seen[0].payload.size(), 1024U);
  EXPECT_EQ(taken_apart(seen[1]).size(), 4U);
}

TEST(Bundle, HasNothingLargeAndNothingThatInvalidates) {
  Kin peer;
  const std::vector<Small> messages = {{.length = 193}, {.length = 8}, {.opcode = IBV_WR_SEND_WITH_INV}, {.length = 8}};
  const auto seen = peer.post_all(messages);
  ASSERT_EQ(seen.size(), 4U);
  for (const Seen& each : seen) EXPECT_NE(each.opcode, Opcode::kBundle);
}

TEST(Bundle, IsNotForOthers) {
  Kin stranger(false);
  EXPECT_EQ(stranger.post_all(std::vector<Small>(4)).size(), 4U);
}

TEST(Bundle, IsSentAgainMessageByMessageAndNeverTriedOnceMore) {
  Kin peer;
  const std::vector<Small> messages(3);
  EXPECT_EQ(peer.post_all(messages).size(), 1U);
  std::vector<Seen> again;
  for (int i = 0; i < 100 && again.empty(); ++i) again = peer.receive_after(10 * kMillisecond);
  ASSERT_FALSE(again.empty());
  EXPECT_EQ(again[0].opcode, Opcode::kWriteOnly) << "it may be what the peer does not know";
  EXPECT_EQ(again[0].psn, peer.own);
  peer.acknowledge(3);
  const auto seen = peer.post_all(messages);
  ASSERT_EQ(seen.size(), 3U);
  for (const Seen& each : seen) EXPECT_EQ(each.opcode, Opcode::kWriteOnly);
}

TEST(Bundle, OfMemoryThatIsNotOursFailsInItsTurn) {
  Kin peer;
  ibv_sge fine = peer.device->sge(0, 8), wrong = fine;
  wrong.lkey ^= 1;
  ibv_send_wr list[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    list[i].wr_id = i;
    list[i].opcode = IBV_WR_RDMA_WRITE;
    list[i].send_flags = IBV_SEND_SIGNALED;
    list[i].sg_list = i == 1 ? &wrong : &fine;
    list[i].num_sge = 1;
    list[i].next = i < 2 ? &list[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(peer.device->qp, list, &bad), 0);
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].opcode, Opcode::kWriteOnly);
  peer.acknowledge(1);
  ASSERT_EQ(peer.device->done.size(), 4U);
  EXPECT_EQ(peer.device->done[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(peer.device->done[2].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(peer.device->done[3].status, IBV_WC_WR_FLUSH_ERR);
}

// ---- what comes ----------------------------------------------------------------------------------------------------

class Made {
 public:
  void add(Opcode opcode, std::size_t length, unsigned value, const Reth& reth = {}) {
    const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(opcode));
    const std::size_t at = bytes.size();
    bytes.resize(at + bundled_bytes(info, length));
    BundledHead{static_cast<std::uint8_t>(opcode), false, static_cast<std::uint16_t>(length)}.encode(&bytes[at]);
    std::byte* to = &bytes[at] + BundledHead::kBytes;
    if (info.reth) reth.encode(to);
    to += info.header_bytes - Bth::kBytes;
    std::fill_n(to, length, static_cast<std::byte>(value));
  }
  std::vector<std::byte> bytes;
};

TEST(Bundle, IsCarriedOutMessageByMessageAndAcknowledgedOnce) {
  RawPeer peer;
  ASSERT_EQ(peer.device->post_recv(7, 0, 64), 0);
  Made made;
  made.add(Opcode::kWriteOnly, 8, 1, peer.target(1000, 8));
  made.add(Opcode::kSendOnly, 5, 2);
  made.add(Opcode::kWriteOnly, 0, 0, peer.target(0, 0));
  made.add(Opcode::kWriteOnly, 3, 3, peer.target(2000, 3));
  peer.send({.opcode = Opcode::kBundle, .psn = peer.psn, .payload = made.bytes, .kin = true});
  peer.expect_answer(Syndrome::kAck, peer.psn + 3);
  EXPECT_EQ(peer.device->buffer[1007], 1);
  EXPECT_EQ(peer.device->buffer[1008], 0);
  EXPECT_EQ(peer.device->buffer[2002], 3);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].byte_len, 5U);
  EXPECT_EQ(peer.device->buffer[4], 2);
  peer.send({.opcode = Opcode::kBundle, .psn = peer.psn, .payload = made.bytes, .kin = true});
  EXPECT_EQ(peer.device->counter("duplicate_request"), 4U);
  EXPECT_EQ(peer.device->done.size(), 1U) << "once";
}

TEST(Bundle, BehindAGapIsKeptForItsTurn) {
  RawPeer peer;
  const auto write = [&](std::uint32_t ahead, std::size_t at) {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + ahead,
               .payload = RawPeer::payload(8, 9),
               .reth = peer.target(at, 8),
               .kin = true});
  };
  write(0, 0);
  Made made;
  made.add(Opcode::kWriteOnly, 8, 1, peer.target(100, 8));
  made.add(Opcode::kWriteOnly, 8, 2, peer.target(200, 8));
  peer.send({.opcode = Opcode::kBundle, .psn = peer.psn + 2, .payload = made.bytes, .kin = true});
  EXPECT_EQ(peer.device->buffer[100], 0);
  write(1, 50);
  EXPECT_EQ(peer.device->buffer[100], 1);
  EXPECT_EQ(peer.device->buffer[207], 2);
  EXPECT_EQ(peer.device->counter("rcvd_early"), 2U);
}

TEST(Bundle, OfWhatCannotBeInItIsDroppedFromThereOn) {
  const auto drops = [](auto&& spoil) {
    RawPeer peer;
    Made made;
    made.add(Opcode::kWriteOnly, 8, 1, peer.target(0, 8));
    spoil(peer, made);
    peer.send({.opcode = Opcode::kBundle, .psn = peer.psn, .payload = made.bytes, .kin = true});
    EXPECT_EQ(peer.device->buffer[0], 1) << "what came before is sound";
    EXPECT_EQ(peer.device->buffer[100], 0);
    EXPECT_EQ(peer.device->counter("drop_malformed"), 1U);
  };
  for (const Opcode opcode :
       {Opcode::kWriteFirst, Opcode::kReadRequest, Opcode::kFetchAdd, Opcode::kBundle, Opcode::kAcknowledge,
        Opcode::kUdSendOnly, Opcode::kSendOnlyInvalidate, carrying(Opcode::kWriteOnly), for_uc(Opcode::kWriteOnly)}) {
    SCOPED_TRACE(static_cast<unsigned>(opcode));
    drops([opcode](RawPeer& peer, Made& made) { made.add(opcode, 8, 1, peer.target(100, 8)); });
  }
  drops([](RawPeer& peer, Made& made) {  // longer than it is
    const std::size_t at = made.bytes.size();
    made.add(Opcode::kWriteOnly, 8, 1, peer.target(100, 8));
    BundledHead{static_cast<std::uint8_t>(Opcode::kWriteOnly), false, 9}.encode(&made.bytes[at]);
  });
  drops([](RawPeer&, Made& made) { made.bytes.resize(made.bytes.size() + 4); });
}

TEST(Bundle, IsOnePathMtuLongAtMostHasSoManyMessagesAndIsOfOurKind) {
  const auto drops = [](std::size_t length, std::size_t messages, bool kin, std::size_t taken) {
    RawPeer peer;
    Made made;
    for (std::size_t i = 0; i < messages; ++i)
      made.add(Opcode::kWriteOnly, length, 1, peer.target(i * 256, static_cast<std::uint32_t>(length)));
    peer.send({.opcode = Opcode::kBundle, .psn = peer.psn, .payload = made.bytes, .kin = kin});
    EXPECT_EQ(peer.device->counter("drop_malformed"), 1U);
    for (std::size_t i = 0; i < messages && length != 0; ++i) EXPECT_EQ(peer.device->buffer[i * 256], 0) << i;
    EXPECT_EQ(peer.device->counter("rdma_recvs"), taken);
  };
  drops(192, 5, true, 0);  // 1060 bytes
  drops(8, 2, false, 0);
  RawPeer peer;
  Made made;
  for (std::size_t i = 0; i <= kMostBundled; ++i) made.add(Opcode::kSendOnly, 0, 0);
  for (std::uint64_t i = 0; i <= kMostBundled; ++i) ASSERT_EQ(peer.device->post_recv(i, 0, 8), 0);
  peer.send({.opcode = Opcode::kBundle, .psn = peer.psn, .payload = made.bytes, .kin = true});
  EXPECT_EQ(peer.device->counter("drop_malformed"), 1U);
  for (int i = 0; i < 8; ++i) peer.device->poll();
  EXPECT_EQ(peer.device->done.size(), std::size_t{kMostBundled});
}

TEST(Bundle, FarFromWhatIsExpectedIsDropped) {
  RawPeer peer;
  Made made;
  made.add(Opcode::kWriteOnly, 8, 1, peer.target(0, 8));
  peer.send({.opcode = Opcode::kBundle, .psn = peer.psn + (1U << 20), .payload = made.bytes, .kin = true});
  EXPECT_EQ(peer.device->counter("drop_bogus"), 1U);
}

TEST(Bundle, ThatOvertookAPacketIsOnePacketBehindAGap) {
  RawPeer peer;
  peer.send({.opcode = Opcode::kWriteOnly,
             .psn = peer.psn,
             .payload = RawPeer::payload(8, 9),
             .reth = peer.target(0, 8),
             .kin = true});
  peer.expect_answer(Syndrome::kAck, peer.psn);
  Made made;
  for (std::size_t i = 0; i < 8; ++i) made.add(Opcode::kWriteOnly, 8, 1, peer.target(1000, 8));
  peer.send({.opcode = Opcode::kBundle, .psn = peer.psn + 2, .payload = made.bytes, .kin = true});
  EXPECT_TRUE(peer.receive().empty()) << "it is not said at once that something is missing";
  EXPECT_FALSE(peer.receive_after(kMillisecond).empty());
}

TEST(Bundle, WithoutAReceiveBufferWaitsWhereThatIsMissing) {
  RawPeer peer;
  Made made;
  made.add(Opcode::kWriteOnly, 8, 1, peer.target(100, 8));
  made.add(Opcode::kSendOnly, 8, 2);
  made.add(Opcode::kWriteOnly, 8, 3, peer.target(200, 8));
  peer.send({.opcode = Opcode::kBundle, .psn = peer.psn, .payload = made.bytes, .kin = true});
  EXPECT_EQ(peer.device->buffer[100], 1);
  EXPECT_EQ(peer.device->buffer[200], 0);
  const auto seen = peer.receive();
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(seen.back().aeth.is_rnr_nak());
  EXPECT_EQ(seen.back().psn, peer.psn + 1);
}

TEST(Bundle, OverBadNetworksEachMessageArrivesOnceAndInOrder) {
  for (const FaultConfig& faults :
       {FaultConfig{.drop = 0.05, .seed = 3}, FaultConfig{.reorder = 0.1, .seed = 4},
        FaultConfig{.duplicate = 0.2, .seed = 5}, FaultConfig{.corrupt = 0.05, .seed = 6}}) {
    Simulation simulation(faults, faults);
    connect(*simulation.a, *simulation.b);
    Endpoint &a = *simulation.a, &b = *simulation.b;
    constexpr std::size_t kMessages = 100, kRounds = 30;
    for (std::size_t round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < kMessages * kPitch; ++i) a.buffer[i] = static_cast<std::uint8_t>(i / kPitch + round);
      std::vector<Small> messages;
      for (std::size_t i = 0; i < kMessages; ++i) {
        messages.push_back({.opcode = i % 3 == 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE,
                            .length = i * 7 % 193,
                            .immediate = static_cast<std::uint32_t>(i)});
        if (i % 3 != 2) continue;
        ASSERT_EQ(b.post_recv(1000 + i, (1 << 20) + i * kPitch, kPitch), 0);
      }
      const std::size_t before = a.done.size(), received = b.done.size();
      ASSERT_EQ(post(a, messages, b), 0);
      ASSERT_TRUE(simulation.run_until(
          [&] { return a.done.size() == before + kMessages && b.done.size() == received + kMessages / 3; }));
      for (std::size_t i = 0; i < kMessages; ++i) {
        EXPECT_EQ(a.done[before + i].wr_id, i);
        EXPECT_EQ(a.done[before + i].status, IBV_WC_SUCCESS);
        const std::size_t place = i % 3 == 2 ? (1 << 20) + i * kPitch : kThere + i * kPitch;
        EXPECT_TRUE(std::equal(&b.buffer[place], &b.buffer[place] + messages[i].length, &a.buffer[i * kPitch]));
      }
      for (std::size_t i = 0; i < kMessages / 3; ++i) EXPECT_EQ(b.done[received + i].imm_data, 3 * i + 2);
    }
    EXPECT_LT(a.counter("sent_pkts"), kMessages * kRounds);
  }
}

}  // namespace
}  // namespace fairlead::soft::test
