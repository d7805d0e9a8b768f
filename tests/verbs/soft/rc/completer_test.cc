#include "verbs/soft/rc/completer.h"

#include "tests/verbs/soft/raw_peer.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/port/port_decorator.h"

namespace fairlead::soft::test {
namespace {

// The remote range that the device names; the hand-driven peer takes anything.
int post_write(RawPeer& peer, std::uint64_t id, std::size_t length, unsigned flags = IBV_SEND_SIGNALED) {
  return peer.device->post(IBV_WR_RDMA_WRITE, id, 0, length, peer.device.get(), 0, flags);
}
int post_read(RawPeer& peer, std::uint64_t id, std::size_t length, unsigned flags = IBV_SEND_SIGNALED) {
  return peer.device->post(IBV_WR_RDMA_READ, id, 0, length, peer.device.get(), 0, flags);
}
void acknowledge(RawPeer& peer, Psn psn, std::uint8_t syndrome = 0x1f) {
  peer.send({.opcode = Opcode::kAcknowledge, .psn = psn, .aeth = {syndrome, 0}});
}

TEST(RequesterWrite, PacketsCarryWhatTheSpecificationSays) {
  RawPeer peer;
  ASSERT_EQ(post_write(peer, 1, 2049), 0);
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0].opcode, Opcode::kWriteFirst);
  EXPECT_EQ(seen[0].reth.length, 2049U);
  EXPECT_EQ(seen[0].reth.rkey, peer.device->mr->rkey);
  EXPECT_EQ(seen[1].opcode, Opcode::kWriteMiddle);
  EXPECT_EQ(seen[2].opcode, Opcode::kWriteLast);
  EXPECT_EQ(seen[2].payload.size(), 1U);
  EXPECT_EQ(seen[2].psn, peer.psn + 2);
  EXPECT_FALSE(seen[0].ack_request);
  EXPECT_TRUE(seen[2].ack_request);
}

TEST(CompleterAck, OneAcknowledgementCompletesAllBeforeIt) {
  RawPeer peer;
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  ASSERT_EQ(post_write(peer, 2, 10, 0), 0);
  ASSERT_EQ(post_write(peer, 3, 0), 0);
  ASSERT_EQ(post_write(peer, 4, 10), 0);
  acknowledge(peer, peer.psn + 2);
  ASSERT_EQ(peer.device->done.size(), 2U);
  EXPECT_EQ(peer.device->done[0].wr_id, 1U);
  EXPECT_EQ(peer.device->done[1].wr_id, 3U);
  acknowledge(peer, peer.psn + 2);  // again: nothing
  acknowledge(peer, peer.psn - 1);  // of the past: nothing
  acknowledge(peer, peer.psn + 9);  // of what was never sent: nothing
  EXPECT_EQ(peer.device->done.size(), 2U);
  acknowledge(peer, peer.psn + 3);
  EXPECT_EQ(peer.device->done.size(), 3U);
}

TEST(CompleterNak, ASequenceErrorSendsAgainFromThere) {
  RawPeer peer;
  ASSERT_EQ(post_write(peer, 1, 3000), 0);
  ASSERT_EQ(post_write(peer, 2, 10), 0);
  ASSERT_EQ(peer.receive().size(), 4U);
  acknowledge(peer, peer.psn + 2, static_cast<std::uint8_t>(Syndrome::kNakSequence));
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].opcode, Opcode::kWriteLast);
  EXPECT_EQ(seen[0].psn, peer.psn + 2);
  EXPECT_EQ(seen[0].payload.size(), 3000U - 2048);
  EXPECT_EQ(seen[1].opcode, Opcode::kWriteOnly);
  EXPECT_TRUE(peer.device->done.empty());
  acknowledge(peer, peer.psn + 3);
  EXPECT_EQ(peer.device->done.size(), 2U);
}

TEST(CompleterNak, TheCulpritFailsWithItsStatusAndTheRestIsFlushed) {
  const std::pair<Syndrome, ibv_wc_status> cases[] = {{Syndrome::kNakInvalidRequest, IBV_WC_REM_INV_REQ_ERR},
                                                      {Syndrome::kNakRemoteAccess, IBV_WC_REM_ACCESS_ERR},
                                                      {Syndrome::kNakRemoteOperation, IBV_WC_REM_OP_ERR}};
  for (const auto& [syndrome, status] : cases) {
    RawPeer peer;
    for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post_write(peer, id, 10, id == 3 ? 0 : IBV_SEND_SIGNALED), 0);
    ASSERT_EQ(peer.device->post_recv(9, 0, 10), 0);
    acknowledge(peer, peer.psn + 1, static_cast<std::uint8_t>(syndrome));
    ASSERT_EQ(peer.device->done.size(), 5U);
    EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(peer.device->done[1].status, status);
    EXPECT_EQ(peer.device->done[1].wr_id, 1U);
    EXPECT_EQ(peer.device->done[2].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(peer.device->done[3].status, IBV_WC_WR_FLUSH_ERR);  // unsignalled, yet it failed
    EXPECT_EQ(peer.device->done[4].wr_id, 9U);
    EXPECT_EQ(peer.device->state(), IBV_QPS_ERR);
  }
}

TEST(CompleterNak, AGapReportedAgainIsRepairedAgain) {
  RawPeer peer;
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(post_write(peer, id, 10), 0);
  ASSERT_EQ(peer.receive().size(), 3U);
  for (int i = 0; i < 20; ++i) {
    acknowledge(peer, peer.psn, static_cast<std::uint8_t>(Syndrome::kNakSequence));
    ASSERT_EQ(peer.receive().size(), 3U) << i;
  }
  acknowledge(peer, peer.psn + 2);
  EXPECT_EQ(peer.device->done.size(), 3U);
}

TEST(CompleterNak, APacketThatNeverArrivesEndsTheRetriesThoughThePeerAnswers) {
  RawPeer peer({}, {.timeout = 10, .retry_cnt = 2});  // 4 ms
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  for (int i = 0; i < 100 && peer.device->done.empty(); ++i) {
    peer.receive_after(kMillisecond);
    acknowledge(peer, peer.psn, static_cast<std::uint8_t>(Syndrome::kNakSequence));
  }
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_RETRY_EXC_ERR);
}

TEST(CompleterTimer, SilenceEndsAfterTheAgreedRetries) {
  RawPeer peer({}, {.timeout = 14, .retry_cnt = 3});  // 67 ms
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  constexpr Nanos kTimeout = 4096ULL << 14;
  const Nanos start = peer.clock.now();
  std::size_t sent = 0;
  while (peer.device->done.empty() && peer.clock.now() < start + 10 * kTimeout) {
    sent += peer.receive_after(kMillisecond).size();
  }
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(peer.clock.now() - start, 4 * kTimeout);
  EXPECT_LE(peer.clock.now() - start, 5 * kTimeout);
  EXPECT_GE(sent, 4U);
  EXPECT_LE(sent, 30U);
  EXPECT_EQ(peer.device->counter("retry_exceeded_err"), 1U);
}

TEST(CompleterTimer, ProgressGrantsNewRetries) {
  RawPeer peer({}, {.timeout = 10, .retry_cnt = 1});  // 4 ms
  ASSERT_EQ(post_write(peer, 1, 1024 * 20), 0);
  for (unsigned i = 0; i < 20; ++i) {
    peer.receive_after(6 * kMillisecond);
    acknowledge(peer, peer.psn + i);
  }
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
}

// A peer that is late, as its program did something else, has all packets in its socket. To send them again would only
// make it later.
TEST(CompleterTimer, WhatATimeoutTookForLostIsNotSentAgainOnceItsBeginningWasAcknowledged) {
  for (const bool lost_after_all : {false, true}) {
    constexpr std::uint32_t kPackets = 48;
    RawPeer peer({}, {.timeout = 18});
    ASSERT_EQ(post_write(peer, 1, 1024 * kPackets / 2), 0);
    ASSERT_EQ(post_write(peer, 2, 1024 * kPackets / 2), 0);
    ASSERT_EQ(peer.receive().size(), kPackets);
    const std::size_t probes = peer.receive_after(5 * kMillisecond).size();
    EXPECT_GE(probes, 1U);
    EXPECT_LE(probes, 8U);
    acknowledge(peer, peer.psn + 15);
    EXPECT_TRUE(peer.receive().empty());
    EXPECT_EQ(peer.device->counter("completer_retry_err"), 1U);
    if (!lost_after_all) {
      acknowledge(peer, peer.psn + 31);
      EXPECT_TRUE(peer.receive().empty());
      EXPECT_EQ(peer.device->done.size(), 1U);
    } else {
      std::vector<Seen> again;
      for (int i = 0; i < 100 && again.empty(); ++i) again = peer.receive_after(kMillisecond);
      ASSERT_FALSE(again.empty());
      EXPECT_EQ(again[0].psn, peer.psn + 16);
      acknowledge(peer, again.back().psn);
      const auto rest = peer.receive();
      ASSERT_FALSE(rest.empty());
      EXPECT_EQ(rest[0].psn, again.back().psn + 1) << "nothing but what was sent again is known to have come";
    }
    acknowledge(peer, peer.psn + kPackets - 1);
    EXPECT_EQ(peer.device->done.size(), 2U);
    EXPECT_TRUE(peer.receive_after(kSecond).empty());
  }
}

// Else the late answer to the first copy would pass for a quick one to the second, and every later message be sent
// twice.
TEST(CompleterTimer, TheAnswerToWhatWasSentTwiceIsNotTimed) {
  RawPeer peer({}, {.timeout = 18});
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  ASSERT_EQ(peer.receive().size(), 1U);
  ASSERT_EQ(peer.receive_after(5 * kMillisecond).size(), 1U);
  peer.clock.advance(100 * kMicrosecond);
  acknowledge(peer, peer.psn);
  ASSERT_EQ(peer.device->done.size(), 1U);
  ASSERT_EQ(post_write(peer, 2, 10), 0);
  ASSERT_EQ(peer.receive().size(), 1U);
  EXPECT_TRUE(peer.receive_after(3 * kMillisecond).empty()) << "as patient as with the first";
  acknowledge(peer, peer.psn + 1);
  // This one was timed.
  ASSERT_EQ(post_write(peer, 3, 10), 0);
  ASSERT_EQ(peer.receive().size(), 1U);
  EXPECT_TRUE(peer.receive_after(5 * kMillisecond).empty());
}

// A peer that answers after 5 ms is asked twice once, until it is known how far away it is.
TEST(CompleterTimer, ThePeerFarAwayIsNotAskedEverythingTwice) {
  RawPeer peer({}, {.timeout = 18});
  for (std::uint32_t i = 0; i < 10; ++i) {
    ASSERT_EQ(post_write(peer, i, 10), 0);
    ASSERT_EQ(peer.receive().size(), 1U);
    peer.receive_after(5 * kMillisecond);
    acknowledge(peer, peer.psn + i);
  }
  EXPECT_EQ(peer.device->done.size(), 10U);
  EXPECT_EQ(peer.device->counter("completer_retry_err"), 1U);
}

// A slow link hands over 64 KiB at a time: between two bursts is more time than round trips had taken before.
TEST(CompleterTimer, WhoseAnswersComeInBurstsIsNotAskedForAllOfThemAgainAndAgain) {
  RawPeer peer;
  unsigned packets = 0;
  for (std::uint64_t id = 0; id < 200; ++id) {
    ASSERT_EQ(post_write(peer, id, 10), 0);
    peer.receive_after(100 * kMicrosecond);
    acknowledge(peer, peer.psn + packets++);
  }
  ASSERT_EQ(peer.device->counter("completer_retry_err"), 0U);
  for (std::uint64_t id = 0; id < 100; ++id) {
    ASSERT_EQ(post_write(peer, id, 40 * 1024), 0);
    for (int i = 0; i < 6; ++i) peer.receive_after(kMillisecond / 2);
    packets += 40;
    acknowledge(peer, peer.psn + (packets - 1));
  }
  EXPECT_EQ(peer.device->done.size(), 300U);
  EXPECT_LE(peer.device->counter("completer_retry_err"), 5U);
}

TEST(CompleterTimer, NorWhoseReadResponsesDo) {
  RawPeer peer;
  unsigned packets = 0;
  const auto answer = [&] {
    peer.send({.opcode = Opcode::kReadResponseOnly, .psn = peer.psn + packets++, .payload = RawPeer::payload(1024, 1)});
  };
  for (std::uint64_t id = 0; id < 200; ++id) {
    ASSERT_EQ(post_read(peer, id, 1024), 0);
    peer.receive_after(100 * kMicrosecond);
    answer();
  }
  ASSERT_EQ(peer.device->counter("completer_retry_err"), 0U);
  for (std::uint64_t round = 0; round < 100; ++round) {
    for (std::uint64_t id = 0; id < 8; ++id) ASSERT_EQ(post_read(peer, id, 1024), 0);
    std::size_t asked = 0;
    for (int i = 0; i < 6; ++i) asked += peer.receive_after(kMillisecond / 2).size();
    for (int i = 0; i < 8; ++i) answer();
    asked += peer.receive().size();
    for (std::size_t again = 8; again < asked; ++again) {  // each that was asked twice is answered twice
      peer.send(
          {.opcode = Opcode::kReadResponseOnly, .psn = peer.psn + (packets - 1), .payload = RawPeer::payload(1024, 1)});
    }
  }
  EXPECT_EQ(peer.device->done.size(), 1000U);
  EXPECT_LE(peer.device->counter("completer_retry_err"), 5U);
}

// Stopped by a debugger, a hypervisor or a busy machine: its peer was asked once, however much time has gone by.
TEST(CompleterTimer, WhoWasAwayAsksAsOftenAsAgreedAndWaitsEachTime) {
  RawPeer peer({}, {.timeout = 14, .retry_cnt = 3});  // 67 ms
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  peer.receive();
  peer.clock.advance(60 * kSecond);
  for (int i = 0; i < 100; ++i) peer.receive_after(kMicrosecond);
  EXPECT_TRUE(peer.device->done.empty());
  acknowledge(peer, peer.psn);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
}

TEST(CompleterTimer, TimeoutZeroWaitsForever) {
  RawPeer peer({}, {.timeout = 0, .retry_cnt = 0});
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  for (int i = 0; i < 100; ++i) peer.receive_after(kSecond);
  EXPECT_TRUE(peer.device->done.empty());
  acknowledge(peer, peer.psn);
  EXPECT_EQ(peer.device->done.size(), 1U);
}

TEST(CompleterRnr, WaitsAsLongAsAskedAndGivesUpAsAgreed) {
  RawPeer peer({}, {.rnr_retry = 2});
  ASSERT_EQ(peer.device->post(IBV_WR_SEND, 1, 0, 10, nullptr, 0), 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(peer.receive().size(), 1U);
    acknowledge(peer, peer.psn, 0x20 | 14);  // 1.28 ms
    EXPECT_TRUE(peer.receive_after(kMillisecond).empty());
    peer.clock.advance(kMillisecond);
  }
  ASSERT_EQ(peer.receive().size(), 1U);
  acknowledge(peer, peer.psn, 0x20 | 14);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(peer.device->counter("rcvd_rnr_err"), 3U);
}

TEST(CompleterRnr, SevenMeansForever) {
  RawPeer peer({}, {.timeout = 8, .retry_cnt = 0, .rnr_retry = 7});
  ASSERT_EQ(peer.device->post(IBV_WR_SEND, 1, 0, 10, nullptr, 0), 0);
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(peer.receive().size(), 1U) << i;
    acknowledge(peer, peer.psn, 0x20 | 1);
    peer.clock.advance(20 * kMicrosecond);
  }
  acknowledge(peer, peer.psn);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
}

TEST(CompleterRnr, IsWaitedForWhateverElseIsReportedMissing) {
  RawPeer peer({}, {.rnr_retry = 1});
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  ASSERT_EQ(peer.receive().size(), 1U);
  peer.clock.advance(kMillisecond);
  acknowledge(peer, peer.psn);  // a round trip takes a millisecond
  ASSERT_EQ(peer.device->post(IBV_WR_SEND, 2, 0, 10, nullptr, 0), 0);
  ASSERT_EQ(peer.receive().size(), 1U);
  acknowledge(peer, peer.psn + 1, 0x20);  // 655 ms
  for (int i = 0; i < 2; ++i) acknowledge(peer, peer.psn + 1, static_cast<std::uint8_t>(Syndrome::kNakSequence));
  for (int i = 0; i < 65; ++i) EXPECT_TRUE(peer.receive_after(10 * kMillisecond).empty()) << i;
  EXPECT_EQ(peer.receive_after(10 * kMillisecond).size(), 1U);
}

TEST(CompleterRnr, DelaysAreThoseOfTheTable) {
  EXPECT_EQ(completer::rnr_delay(0), 655360 * kMicrosecond);
  EXPECT_EQ(completer::rnr_delay(1), 10 * kMicrosecond);
  EXPECT_EQ(completer::rnr_delay(12), 640 * kMicrosecond);
  EXPECT_EQ(completer::rnr_delay(31), 491520 * kMicrosecond);
}

void respond(RawPeer& peer, Opcode opcode, std::uint32_t offset, std::size_t length, unsigned value) {
  peer.send({.opcode = opcode, .psn = peer.psn + offset, .payload = RawPeer::payload(length, value)});
}

TEST(CompleterRead, ALostResponseIsAskedForAgainFromThere) {
  RawPeer peer;
  ASSERT_EQ(post_read(peer, 1, 3000), 0);
  const auto request = peer.receive();
  ASSERT_EQ(request.size(), 1U);
  EXPECT_EQ(request[0].reth.length, 3000U);
  respond(peer, Opcode::kReadResponseFirst, 0, 1024, 1);
  respond(peer, Opcode::kReadResponseLast, 2, 3000 - 2048, 3);  // the middle one is missing
  const auto again = peer.receive();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].opcode, Opcode::kReadRequest);
  EXPECT_EQ(again[0].psn, peer.psn + 1);
  EXPECT_EQ(again[0].reth.address, request[0].reth.address + 1024);
  EXPECT_EQ(again[0].reth.length, 3000U - 1024);
  EXPECT_TRUE(peer.device->done.empty());
  respond(peer, Opcode::kReadResponseFirst, 1, 1024, 2);
  respond(peer, Opcode::kReadResponseLast, 2, 3000 - 2048, 3);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(peer.device->done[0].byte_len, 3000U);
  EXPECT_EQ(peer.device->buffer[0], 1);
  EXPECT_EQ(peer.device->buffer[1024], 2);
  EXPECT_EQ(peer.device->buffer[2999], 3);
  EXPECT_EQ(peer.device->buffer[3000], 0);
}

TEST(CompleterRead, AnAcknowledgementBehindItImpliesThatItsResponsesWereLost) {
  RawPeer peer;
  ASSERT_EQ(post_read(peer, 1, 100), 0);
  ASSERT_EQ(post_write(peer, 2, 10), 0);
  ASSERT_EQ(peer.receive().size(), 2U);
  acknowledge(peer, peer.psn + 1);
  EXPECT_TRUE(peer.device->done.empty());
  ASSERT_EQ(peer.receive().size(), 2U);
  respond(peer, Opcode::kReadResponseOnly, 0, 100, 1);
  acknowledge(peer, peer.psn + 1);
  ASSERT_EQ(peer.device->done.size(), 2U);
  EXPECT_EQ(peer.device->done[0].wr_id, 1U);
}

TEST(CompleterRead, AResponseAcknowledgesTheWritesBeforeIt) {
  RawPeer peer;
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  ASSERT_EQ(post_read(peer, 2, 100), 0);
  respond(peer, Opcode::kReadResponseOnly, 1, 100, 1);
  EXPECT_EQ(peer.device->done.size(), 2U);
}

TEST(CompleterRead, AResponseOfTheWrongLengthIsBad) {
  RawPeer peer;
  ASSERT_EQ(post_read(peer, 1, 100), 0);
  respond(peer, Opcode::kReadResponseOnly, 0, 104, 1);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_BAD_RESP_ERR);
  EXPECT_EQ(peer.device->buffer[0], 0);
}

TEST(CompleterRead, UnaskedResponsesChangeNothing) {
  RawPeer peer;
  respond(peer, Opcode::kReadResponseOnly, 0, 100, 1);
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  respond(peer, Opcode::kReadResponseOnly, 0, 100, 1);
  EXPECT_TRUE(peer.device->done.empty());
  EXPECT_EQ(peer.device->buffer[0], 0);
  EXPECT_EQ(peer.device->counter("drop_bogus"), 2U);
}

TEST(RequesterRead, NoMoreAtOnceThanAgreed) {
  RawPeer peer({}, {.max_reads = 2});
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(post_read(peer, id, 100), 0);
  EXPECT_EQ(peer.receive().size(), 2U);
  respond(peer, Opcode::kReadResponseOnly, 0, 100, 1);
  EXPECT_EQ(peer.receive().size(), 1U);
  respond(peer, Opcode::kReadResponseOnly, 1, 100, 1);
  respond(peer, Opcode::kReadResponseOnly, 2, 100, 1);
  EXPECT_EQ(peer.receive().size(), 1U);
}

TEST(RequesterRead, LongOnesAreAskedForInParts) {
  RawPeer peer({}, {.mtu = IBV_MTU_4096, .max_reads = 16});
  ASSERT_EQ(post_read(peer, 1, 1 << 20), 0);
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 2U);  // what the receive window takes
  EXPECT_EQ(seen[0].reth.length, 128U << 10);
  EXPECT_EQ(seen[1].reth.length, 128U << 10);
  EXPECT_EQ(seen[1].reth.address, seen[0].reth.address + (128 << 10));
  EXPECT_EQ(seen[1].psn, seen[0].psn + 32);
}

TEST(RequesterFence, WaitsForTheReadsBeforeIt) {
  RawPeer peer;
  ASSERT_EQ(post_read(peer, 1, 100), 0);
  ASSERT_EQ(post_write(peer, 2, 10), 0);
  ASSERT_EQ(post_write(peer, 3, 10, IBV_SEND_SIGNALED | IBV_SEND_FENCE), 0);
  EXPECT_EQ(peer.receive().size(), 2U);
  respond(peer, Opcode::kReadResponseOnly, 0, 100, 1);
  EXPECT_EQ(peer.receive().size(), 1U);
}

TEST(RequesterLocal, AWrongKeyFailsAfterWhatWentBefore) {
  RawPeer peer;
  ASSERT_EQ(post_write(peer, 1, 10), 0);
  peer.device->mr->lkey ^= 1;
  ASSERT_EQ(post_write(peer, 2, 10), 0);
  peer.device->mr->lkey ^= 1;
  ASSERT_EQ(post_write(peer, 3, 10), 0);
  EXPECT_EQ(peer.receive().size(), 1U);
  EXPECT_TRUE(peer.device->done.empty());
  acknowledge(peer, peer.psn);
  ASSERT_EQ(peer.device->done.size(), 3U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(peer.device->done[1].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(peer.device->done[2].status, IBV_WC_WR_FLUSH_ERR);
}

// Notes whether completions were there to be seen before packets left.
class WatchingPort final : public PortDecorator {
 public:
  explicit WatchingPort(std::unique_ptr<PacketPort> inner) : PortDecorator(std::move(inner)) {}
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override {
    return inner_->rx_burst(packets, now);
  }
  void tx_burst(TxBatch& batch) noexcept override {
    sent += batch.size();
    if (!impl(cq).empty()) sent_late += batch.size();
    inner_->tx_burst(batch);
  }
  ibv_cq* cq = nullptr;
  std::size_t sent = 0;
  std::size_t sent_late = 0;
};

// With its completion a request's memory is the program's again: nothing that refers to it leaves after that.
TEST(RequesterLocal, WhatWasBegunLeavesBeforeTheFailure) {
  ManualClock clock;
  ibv_device entry{};
  auto [left, right] = LoopbackPort::make_pair();
  auto owned = std::make_unique<WatchingPort>(std::move(left));
  WatchingPort& port = *owned;
  Endpoint end(new Device(entry, Profile::kFull, clock, std::move(owned)));
  port.cq = end.cq;
  ASSERT_EQ(end.to_init(), 0);
  ASSERT_EQ(end.to_rtr(RawPeer::kQpn, right->address().to_verbs(), {}), 0);
  ASSERT_EQ(end.to_rts({}), 0);
  ibv_sge segments[2] = {end.sge(0, 2048), end.sge(4096, 1024)};
  segments[1].lkey ^= 1;
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = segments;
  wr.num_sge = 2;
  ASSERT_EQ(ibv_post_send(end.qp, &wr, &bad), 0);
  end.poll();
  ASSERT_EQ(end.done.size(), 1U);
  EXPECT_EQ(end.done[0].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(port.sent, 2U);
  EXPECT_EQ(port.sent_late, 0U);
}

TEST(RequesterLocal, AReadIntoMemoryThatMayNotBeWrittenIsRefused) {
  RawPeer peer({.access = IBV_ACCESS_REMOTE_READ});
  ASSERT_EQ(post_read(peer, 1, 10), 0);
  peer.device->poll();
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(peer.receive().empty());
}

TEST(RequesterLocal, AReadWhereNoneWasAgreedOnIsAnOperationError) {
  RawPeer peer({}, {.max_reads = 0});
  ASSERT_EQ(post_read(peer, 1, 10), 0);
  peer.device->poll();
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_LOC_QP_OP_ERR);
}

TEST(RequesterGather, SegmentsAndInlineBytesArriveJoined) {
  RawPeer peer({.max_inline = 64});
  fill_pattern(peer.device->buffer, 4);
  ibv_sge segments[3] = {peer.device->sge(0, 700), peer.device->sge(5000, 0), peer.device->sge(9000, 800)};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = segments;
  wr.num_sge = 3;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(peer.device->qp, &wr, &bad), 0);
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 2U);
  std::vector<std::byte> joined = seen[0].payload;
  joined.insert(joined.end(), seen[1].payload.begin(), seen[1].payload.end());
  ASSERT_EQ(joined.size(), 1500U);
  EXPECT_EQ(std::memcmp(joined.data(), peer.device->buffer.data(), 700), 0);
  EXPECT_EQ(std::memcmp(joined.data() + 700, peer.device->buffer.data() + 9000, 800), 0);

  std::string text = "hello";
  segments[0] = {reinterpret_cast<std::uint64_t>(text.data()), 5, 0};  // inline needs no key
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_INLINE;
  ASSERT_EQ(ibv_post_send(peer.device->qp, &wr, &bad), 0);
  text = "gone!";
  const auto sent = peer.receive();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(std::memcmp(sent[0].payload.data(), "hello", 5), 0);
}

}  // namespace
}  // namespace fairlead::soft::test
