// Acknowledgements that travel in a message's packet, between devices of our kind.
#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"

namespace fairlead::soft::test {
namespace {

constexpr unsigned kTurns = 4;  // after which a message is expected to be answered

// The test asks by WRITEs, the device answers by what `answer` posts; acknowledgements of the test say whether it is of
// our kind.
class Conversation {
 public:
  explicit Conversation(bool kin) : kin_(kin), own_(peer.psn) {
    for (unsigned i = 0; i < kTurns; ++i) {
      ask();
      peer.expect_answer(Syndrome::kAck, peer.psn + i);
      answer(IBV_WR_SEND, 8);
    }
    ask();
    EXPECT_TRUE(peer.receive().empty()) << "the acknowledgement waits for the answer";
  }

  void ask() {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + asked_++,
               .payload = RawPeer::payload(8, asked_),
               .reth = peer.target(0, 8)});
  }
  std::vector<Seen> answer(ibv_wr_opcode opcode, std::size_t length) {
    EXPECT_EQ(peer.device->post(opcode, asked_, 100, length, peer.device.get(), 4096), 0);
    auto seen = peer.receive();
    peer.send({.opcode = Opcode::kAcknowledge, .psn = own_, .aeth = {0x1f, ++answered_}, .kin = kin_});
    ++own_;
    return seen;
  }

  RawPeer peer;

 private:
  bool kin_;
  Psn own_;
  unsigned asked_ = 0;
  unsigned answered_ = 0;
};

void expect_carried(const Conversation& conversation, const Seen& seen) {
  EXPECT_EQ(seen.carried_ack.psn, conversation.peer.psn + kTurns);
  EXPECT_TRUE(seen.carried_ack.aeth.is_ack());
  EXPECT_EQ(seen.carried_ack.aeth.msn, kTurns + 1);
}

TEST(CarriedAck, LeavesInTheAnswer) {
  Conversation conversation(true);
  conversation.peer.device->buffer[100] = 77;
  const auto seen = conversation.answer(IBV_WR_SEND, 8);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].opcode, carrying(Opcode::kSendOnly));
  EXPECT_EQ(seen[0].payload.size(), 8U);
  EXPECT_EQ(seen[0].payload[0], std::byte{77});
  expect_carried(conversation, seen[0]);
  EXPECT_TRUE(conversation.peer.receive_after(kMillisecond).empty()) << "it is no longer owed";
}

TEST(CarriedAck, LeavesInAWrite) {
  Conversation conversation(true);
  const auto seen = conversation.answer(IBV_WR_RDMA_WRITE, 8);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].opcode, carrying(Opcode::kWriteOnly));
  EXPECT_EQ(seen[0].reth.length, 8U);
  EXPECT_EQ(seen[0].reth.rkey, conversation.peer.device->mr->rkey);
  expect_carried(conversation, seen[0]);
}

TEST(CarriedAck, NotTowardOthers) {
  Conversation conversation(false);
  const auto seen = conversation.answer(IBV_WR_SEND, 8);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].opcode, Opcode::kAcknowledge);
  EXPECT_EQ(seen[1].opcode, Opcode::kSendOnly);
}

TEST(CarriedAck, NotWhereThePathHasNoRoomForIt) {
  Conversation conversation(true);
  const auto seen = conversation.answer(IBV_WR_SEND, 1024 - CarriedAck::kBytes + 1);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].opcode, Opcode::kAcknowledge);
  EXPECT_EQ(seen[1].opcode, Opcode::kSendOnly);
}

TEST(CarriedAck, CompletesTheRequestBeforeTheMessage) {
  RawPeer peer;
  ASSERT_EQ(peer.device->post_recv(7, 0, 64), 0);
  ASSERT_EQ(peer.device->post(IBV_WR_SEND, 3, 100, 8, nullptr, 0), 0);
  ASSERT_EQ(peer.receive().size(), 1U);
  peer.send({.opcode = carrying(Opcode::kSendOnly),
             .psn = peer.psn,
             .payload = RawPeer::payload(8, 9),
             .carried_ack = {peer.psn, {0x1f, 1}}});
  ASSERT_EQ(peer.device->done.size(), 2U);
  EXPECT_EQ(peer.device->done[0].wr_id, 3U);
  EXPECT_EQ(peer.device->done[0].opcode, IBV_WC_SEND);
  EXPECT_EQ(peer.device->done[1].wr_id, 7U);
  EXPECT_EQ(peer.device->done[1].opcode, IBV_WC_RECV);
  EXPECT_EQ(peer.device->buffer[0], 9);
}

TEST(CarriedAck, OfWhatWasNeverSentIsDroppedAndTheMessageTaken) {
  RawPeer peer;
  ASSERT_EQ(peer.device->post_recv(7, 0, 64), 0);
  peer.send({.opcode = carrying(Opcode::kSendOnly),
             .psn = peer.psn,
             .payload = RawPeer::payload(8, 9),
             .carried_ack = {peer.psn + 5, {0x1f, 1}}});
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].wr_id, 7U);
  EXPECT_EQ(peer.device->counter("drop_bogus"), 1U);
  peer.expect_answer(Syndrome::kAck, peer.psn);
}

TEST(CarriedAck, ThatOvertookAnAnswerWaitsForIt) {
  RawPeer peer;
  ASSERT_EQ(peer.device->post_recv(7, 0, 64), 0);
  ASSERT_EQ(peer.device->post(IBV_WR_RDMA_READ, 3, 200, 8, peer.device.get(), 300), 0);
  ASSERT_EQ(peer.device->post(IBV_WR_SEND, 4, 100, 8, nullptr, 0), 0);
  ASSERT_EQ(peer.receive().size(), 2U);
  peer.send({.opcode = carrying(Opcode::kSendOnly),
             .psn = peer.psn,
             .payload = RawPeer::payload(8, 9),
             .kin = true,
             .carried_ack = {peer.psn + 1, {0x1f, 2}}});
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].wr_id, 7U);
  peer.send({.opcode = Opcode::kReadResponseOnly, .psn = peer.psn, .payload = RawPeer::payload(8, 5), .kin = true});
  ASSERT_EQ(peer.device->done.size(), 3U);
  EXPECT_EQ(peer.device->done[1].wr_id, 3U);
  EXPECT_EQ(peer.device->done[2].wr_id, 4U);
  EXPECT_EQ(peer.device->buffer[200], 5);
  EXPECT_EQ(peer.device->counter("lost_responses"), 0U);
}

TEST(CarriedAck, MayBeARefusal) {
  RawPeer peer;
  ASSERT_EQ(peer.device->post(IBV_WR_SEND, 3, 100, 8, nullptr, 0), 0);
  ASSERT_EQ(peer.receive().size(), 1U);
  peer.send({.opcode = carrying(Opcode::kWriteOnly),
             .psn = peer.psn,
             .payload = RawPeer::payload(8, 9),
             .reth = peer.target(0, 8),
             .carried_ack = {peer.psn, {static_cast<std::uint8_t>(Syndrome::kNakRemoteAccess), 0}}});
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(peer.device->buffer[0], 0) << "a queue pair in error takes no message";
}

// Lost, doubled and late packets that carry acknowledgements: each message still arrives once, and completes.
TEST(CarriedAck, SurvivesABadNetwork) {
  FaultConfig one{.drop = 0.05, .reorder = 0.05, .duplicate = 0.05, .seed = 5};
  FaultConfig other = one;
  other.seed = 6;
  Simulation world(one, other);
  world.step_time = kMicrosecond;
  connect(*world.a, *world.b, {.min_rnr_timer = 1});
  constexpr unsigned kRounds = 400;
  unsigned received[2] = {};
  Endpoint* ends[] = {world.a.get(), world.b.get()};
  for (Endpoint* end : ends) ASSERT_EQ(end->post_recv(0, 0, 64), 0);
  const auto say = [&](Endpoint& end, unsigned word) {
    std::memcpy(&end.buffer[100 + 8 * std::size_t{word}], &word, sizeof(word));
    EXPECT_EQ(end.post(IBV_WR_SEND, word, 100 + 8 * std::size_t{word}, 8, nullptr, 0, 0), 0);
  };
  say(*ends[0], 0);
  const auto turn = [&] {
    for (unsigned i = 0; i < 2; ++i) {
      for (const ibv_wc& completion : ends[i]->done) {
        EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
        unsigned word = 0;
        std::memcpy(&word, ends[i]->buffer.data(), sizeof(word));
        EXPECT_EQ(word, received[i]++);
        EXPECT_EQ(ends[i]->post_recv(0, 0, 64), 0);
        if (i == 1) say(*ends[1], word);
        if (i == 0 && received[0] < kRounds) say(*ends[0], received[0]);
      }
      ends[i]->done.clear();
    }
    return received[0] == kRounds;
  };
  EXPECT_TRUE(world.run_until(turn));
  EXPECT_EQ(received[1], kRounds);
  // Each message leaves about once; were acknowledgements packets of their own, they would double the number.
  EXPECT_LT(ends[0]->counter("sent_pkts") + ends[1]->counter("sent_pkts"), 2 * kRounds * 3 / 2);
}

}  // namespace
}  // namespace fairlead::soft::test
