#include <gmock/gmock.h>

#include "base/tally.h"
#include "tests/datapath/outbox_fixture.h"

namespace fairlead::datapath {
namespace {

using testing::ElementsAre;

TEST_F(OutboxTest, ATransferIsCutIntoRequestsAndItsNotificationFollows) {
  TransferImpl& t = transfer(OpKind::kWrite, {2000, 0, 500}, true);
  add(t);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 1, 1024}, Posted{OpKind::kWrite, 2, 1024},
                                  Posted{OpKind::kWrite, 3, 452}, Posted{OpKind::kMessage, 4, 0}));
  EXPECT_FALSE(outbox.has_backlog());
  for (std::uint64_t id : {1u, 2u, 3u}) complete(id);
  EXPECT_TRUE(ended.empty()) << "its notification is under way";
  complete(4);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kOk);
  EXPECT_EQ(outbox.size(), 0u);
}

TEST_F(OutboxTest, WhatThePathHasNoRoomForComesAgain) {
  TransferImpl &w = transfer(OpKind::kWrite, {3000}, true), &m = message(150), &r = transfer(OpKind::kRead, {10});
  add(w, m, r);
  EXPECT_THAT(post(0), ElementsAre());
  EXPECT_THAT(post(2), ElementsAre(Posted{OpKind::kWrite, 1, 1024}, Posted{OpKind::kWrite, 2, 1024}));
  EXPECT_THAT(post(1), ElementsAre(Posted{OpKind::kWrite, 3, 952}));
  EXPECT_THAT(post(2), ElementsAre(Posted{OpKind::kMessage, 4, 0}, Posted{OpKind::kMessage, 5, 100}));
  EXPECT_THAT(post(1), ElementsAre(Posted{OpKind::kMessage, 6, 50}));
  EXPECT_THAT(post(1), ElementsAre(Posted{OpKind::kRead, 7, 10}));
  for (std::uint64_t id = 7; id != 0; --id) complete(id);
  EXPECT_EQ(ended.size(), 3u);
}

TEST_F(OutboxTest, OverAPathWithoutOrderANotificationWaitsForItsData) {
  can.write_then_message_ordered = false;
  add(transfer(OpKind::kWrite, {10}, true));
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 1, 10}));
  complete(1);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 2, 0}));
}

TEST_F(OutboxTest, ANotificationOfAReadWaitsForIt) {
  add(transfer(OpKind::kRead, {10}, true));
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kRead, 1, 10}));
  complete(1);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 2, 0}));
}

TEST_F(OutboxTest, AWriteMayTakeItsNotificationAlong) {
  can.write_notifies = true;
  TransferImpl& t = transfer(OpKind::kWrite, {1500}, true);
  add(t);
  EXPECT_THAT(post(1), ElementsAre(Posted{OpKind::kWrite, 1, 1024}));
  EXPECT_THAT(post(0), ElementsAre()) << "refused, with its notification";
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 2, 476}));
  EXPECT_EQ(last.notify, std::optional<std::uint32_t>(1));
  complete(1);
  complete(2);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(outbox.acknowledged(), 1u);
}

TEST_F(OutboxTest, WhatNothingIsBeforeIsARequestAtOnce) {
  TransferImpl &small = message(100), &write = transfer(OpKind::kWrite, {8});
  for (TransferImpl* each : {&small, &write}) {
    ASSERT_EQ(outbox.build_lone(way, *each, path.next_id()).size(), 1u);
    EXPECT_EQ(outbox.commit(1, path), each == &small ? 0u : 8u);
    add(*each);
    EXPECT_FALSE(outbox.has_backlog());
  }
  complete(1);
  complete(2);
  EXPECT_EQ(ended.size(), 2u);
  EXPECT_EQ(outbox.acknowledged(), 1u);
}

TEST_F(OutboxTest, AMessageThatThePathHadNoRoomForKeepsItsNumber) {
  TransferImpl& t = message(8);
  ASSERT_EQ(outbox.build_lone(way, t, path.next_id()).size(), 1u);
  EXPECT_EQ(outbox.commit(0, path), 0u);
  add(t);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 1, 8}));
  complete(1);
  EXPECT_EQ(ended.size(), 1u);
  EXPECT_EQ(outbox.acknowledged(), 1u);
}

TEST_F(OutboxTest, WhatHasToWaitOrToBeCutOrToEndIsNoRequestAtOnce) {
  const auto is_one = [this](TransferImpl& t) { return !outbox.build_lone(way, t, path.next_id()).empty(); };
  EXPECT_FALSE(is_one(message(101))) << "two fragments";
  EXPECT_FALSE(is_one(message(1001))) << "the peer takes no such message";
  for (int i = 0; i < 4; ++i) add(notification());
  EXPECT_FALSE(is_one(message(8))) << "others come first";
  EXPECT_EQ(post().size(), 4u);
  EXPECT_FALSE(is_one(message(8))) << "the window is full";
  outbox.consumed(1);
  EXPECT_TRUE(is_one(message(8)));
}

TEST_F(OutboxTest, MessagesWaitForThePeersWindow) {
  for (int i = 0; i < 6; ++i) add(notification());
  EXPECT_EQ(post().size(), 4u);
  for (std::uint64_t id : {1u, 2u, 3u, 4u}) complete(id);
  EXPECT_EQ(post().size(), 0u) << "acknowledged is not consumed";
  outbox.consumed(9);
  EXPECT_EQ(post().size(), 0u) << "more than was sent cannot be consumed";
  outbox.consumed(2);
  EXPECT_EQ(post().size(), 2u);
  EXPECT_TRUE(outbox.size() != 0 && !outbox.has_backlog());
}

TEST_F(OutboxTest, TheWindowIsOfBytesToo) {
  outbox.set_limits({.window = {.events = 100, .bytes = 150}, .max_message = 1000});
  const std::uint64_t waits = tally().credit_waits;
  add(message(350), notification());
  EXPECT_EQ(post().size(), 2u) << "fragments of 100 bytes: with the second there is no room left";
  EXPECT_EQ(post().size(), 0u);
  EXPECT_EQ(tally().credit_waits, waits + 1) << "once, however often it is looked at";
  for (std::uint64_t id : {1u, 2u}) complete(id);
  outbox.consumed(1);
  EXPECT_EQ(post().size(), 1u);
  outbox.consumed(3);
  EXPECT_EQ(post().size(), 2u) << "the last fragment, and the notification, which weighs nothing";
  EXPECT_EQ(tally().credit_waits, waits + 2);
}

TEST_F(OutboxTest, AMessageThatThePeerDoesNotTakeEndsWithWords) {
  add(message(1001), message(1000));
  EXPECT_EQ(post().size(), 4u) << "the second, as far as the window goes";
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kInvalidArgument);
  EXPECT_EQ(ended[0].reason, "a message of 1001 bytes; peer takes at most 1000 (its max_message_bytes)");
}

TEST_F(OutboxTest, ARegionWithoutAKeyForThisTransportIsReachedByMessage) {
  remote.keys.clear();
  add(transfer(OpKind::kWrite, {10}, true));
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 1, 10})) << "its notification waits";
  EXPECT_TRUE(ended.empty());
  ASSERT_TRUE(path.end(1));
  EXPECT_THAT(post(), ElementsAre()) << "that the message arrived is not that its bytes are placed";
  PathMessage placed;
  placed.type = MessageType::kStagedAck;
  placed.sequence = 1;
  bool moved = false;
  ASSERT_TRUE(outbox.staged_answer(placed, moved, why)) << why;
  EXPECT_TRUE(moved);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 2, 0}));
  complete(2);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kOk);
  EXPECT_EQ(outbox.staged_bytes.get(), 10u);
}

TEST_F(OutboxTest, PiecesOfABatchAreRequestsEachAndEndTogether) {
  TransferImpl& t = transfer(OpKind::kWrite, {10, 0, 20, 30}, true);
  for (Op& op : t.own.ops) op.offset = 60'000 - op.offset;  // never one behind the other
  TransferImpl& next = transfer(OpKind::kRead, {7});
  add(t, next);
  EXPECT_THAT(post(2), ElementsAre(Posted{OpKind::kWrite, 1, 10}, Posted{OpKind::kWrite, 2, 20}));
  EXPECT_THAT(post(),
              ElementsAre(Posted{OpKind::kWrite, 3, 30}, Posted{OpKind::kMessage, 4, 0}, Posted{OpKind::kRead, 5, 7}));
  EndedData sum;
  ASSERT_EQ(path.end_data(1, 6, sum), 3u);
  EXPECT_EQ(sum.bytes, 60u);
  outbox.placed(*sum.transfer, sum.bytes, 3);
  EXPECT_TRUE(ended.empty()) << "its notification is under way";
  complete(4);
  complete(5);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].transfer, &t);
}

// What follows is built without a second look where it is between the memories of what was looked at: not of an empty
// piece behind that.
TEST_F(OutboxTest, TheMemoryOfAnEmptyPieceIsNotTheOneBefore) {
  TransferImpl& t = transfer(OpKind::kWrite, {10, 0});
  t.own.ops[1].remote = &other;
  TransferImpl& next = transfer(OpKind::kWrite, {20});
  next.own.ops[0].remote = &other;
  TransferImpl& alike = transfer(OpKind::kWrite, {30});
  alike.own.ops[0].remote = &other;
  add(t, next, alike);
  const std::span<const WorkRequest> built = outbox.build(way, 10, path.next_id());
  ASSERT_EQ(built.size(), 3u);
  const TransferImpl* const of[] = {&t, &next, &alike};
  for (std::size_t i = 0; i < 3; ++i) {
    const Op& op = of[i]->own.ops[0];
    EXPECT_EQ(built[i].remote_key, op.remote->key(way.peer_transport).key) << i;
    EXPECT_EQ(built[i].remote_address, op.remote->key(way.peer_transport).address + op.offset) << i;
    EXPECT_EQ(built[i].local.front().data, op.data) << i;
  }
  EXPECT_NE(built[0].remote_key, built[1].remote_key);
}

TEST_F(OutboxTest, SmallTransfersAlikeGoBackInTheirOrder) {
  TransferImpl* of[6] = {};
  for (TransferImpl*& t : of) {
    t = &transfer(OpKind::kWrite, {10});
    t->own.ops[0].offset = 1000 * static_cast<std::uint64_t>(&t - of);
    add(*t);
  }
  EXPECT_EQ(post(2).size(), 2u);
  EXPECT_EQ(last.remote_address, 0x10000u + 1000);
  EXPECT_TRUE(outbox.has_backlog());
  EXPECT_EQ(post(0).size(), 0u);
  EXPECT_EQ(post().size(), 4u);
  EXPECT_EQ(last.remote_address, 0x10000u + 5000);
  EXPECT_FALSE(outbox.has_backlog());
  EndedData data;
  for (std::uint64_t id = 1; id <= 6; ++id) {
    ASSERT_EQ(path.end_data(id, 7, data), 1u);
    EXPECT_EQ(data.transfer, of[id - 1]);
    outbox.placed(*data.transfer, data.bytes, 1);
    ASSERT_EQ(ended.size(), id);
    EXPECT_EQ(ended.back().transfer, of[id - 1]);
  }
  EXPECT_EQ(outbox.size(), 0u);
}

TEST_F(OutboxTest, OfABatchWhatIsAdjacentIsGatheredAndWhatIsLargeIsCut) {
  TransferImpl& t = transfer(OpKind::kRead, {10, 20, 5, 1500, 0, 30, 8, 0});
  t.own.ops[2].offset = 30'000;  // the first two are adjacent, this stands alone
  t.own.ops[3].offset = 20'000;  // cut, and its end gathered with the empty one and what follows
  t.own.ops[4].offset = t.own.ops[5].offset = 21'500;
  t.own.ops[6].offset = 10'000;
  add(t);
  EXPECT_THAT(post(),
              ElementsAre(Posted{OpKind::kRead, 1, 30}, Posted{OpKind::kRead, 2, 5}, Posted{OpKind::kRead, 3, 1024},
                          Posted{OpKind::kRead, 4, 506}, Posted{OpKind::kRead, 5, 8}));
  for (std::uint64_t id = 1; id <= 5; ++id) complete(id);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kOk);
}

TEST_F(OutboxTest, ABatchThatThePathTookHalfOfGoesOnThere) {
  constexpr std::size_t kPieces = 100;  // more than a batch of requests
  TransferImpl& t = transfer(OpKind::kWrite, std::vector<std::uint64_t>(kPieces, 8));
  for (Op& op : t.own.ops) op.offset = 60'000 - op.offset;
  add(t);
  std::vector<Posted> all = post(20);
  EXPECT_EQ(all.size(), 20u);
  while (outbox.has_backlog()) {
    const std::vector<Posted> more = post(30);
    ASSERT_FALSE(more.empty());
    EXPECT_EQ(last.remote_address, 0x10000 + 60'000 - 8 * (all.size() + more.size() - 1));
    all.insert(all.end(), more.begin(), more.end());
    for (const Posted& each : more) complete(each.id);
  }
  EXPECT_EQ(all.size(), kPieces);
  for (std::uint64_t id = 1; id <= 20; ++id) complete(id);
  EXPECT_EQ(ended.size(), 1u);
}

TEST_F(OutboxTest, APieceOfABatchThatThePathDoesNotReachGoesByMessageBehindTheOthers) {
  RemoteRegionImpl far;
  far.id = 78;
  far.size = 65'536;
  TransferImpl& t = transfer(OpKind::kWrite, {10, 20, 30});
  t.own.ops[1].remote = &far;  // no key for any path
  add(t);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 1, 10}, Posted{OpKind::kMessage, 2, 20},
                                  Posted{OpKind::kWrite, 3, 30}));
}

TEST_F(OutboxTest, APieceOfABatchInARegionThatIsGoneEndsItWhenTheOthersHave) {
  RemoteRegionImpl gone;
  gone.name = "gone";
  gone.size = 65'536;
  gone.keys = remote.keys;
  gone.gone = RemoteRegionImpl::Gone::kWithdrawn;
  TransferImpl& t = transfer(OpKind::kWrite, {10, 20});
  t.own.ops[1].remote = &gone;
  add(t);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 1, 10}));
  EXPECT_THAT(post(), ElementsAre());
  EXPECT_TRUE(ended.empty());
  complete(1);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kProtectionError);
}

// ---- a path that dies ----------------------------------------------------------------------------------------------

TEST_F(OutboxTest, AfterADeathWhatArrivedEndsAndTheRestIsSaidAgain) {
  TransferImpl &a = transfer(OpKind::kWrite, {100}, true), &b = transfer(OpKind::kWrite, {200}, true),
               &c = notification();
  add(a, b, c);
  ASSERT_EQ(post().size(), 5u);  // a's write and notification, b's, c's notification
  complete(1);
  abort_all();
  EXPECT_TRUE(ended.empty());
  ASSERT_TRUE(outbox.apply_received(2, why)) << why;
  ASSERT_EQ(ended.size(), 2u) << "a and b were delivered, whatever was acknowledged";
  EXPECT_EQ(ended[0].transfer, &a);
  EXPECT_EQ(ended[1].transfer, &b);
  EXPECT_EQ(outbox.acknowledged(), 2u);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 6, 0}));
  complete(6);
  EXPECT_EQ(outbox.acknowledged(), 3u) << "numbered after what had arrived";
}

TEST_F(OutboxTest, AfterADeathDataIsPostedFromWhereItEnded) {
  TransferImpl& t = transfer(OpKind::kWrite, {3000});
  add(t);
  ASSERT_EQ(post().size(), 3u);
  complete(1);
  abort_all();
  ASSERT_TRUE(outbox.apply_received(0, why)) << why;
  EXPECT_EQ(outbox.replayed.get(), 1u);
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 4, 1024}, Posted{OpKind::kWrite, 5, 952}));
  complete(4);
  complete(5);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(t.done_bytes, 3000u);
}

TEST_F(OutboxTest, FragmentsGoOnWhereThePeerStoppedReceiving) {
  add(message(350));
  ASSERT_EQ(post().size(), 4u);
  complete(1);
  abort_all();
  ASSERT_TRUE(outbox.apply_received(3, why)) << why;
  EXPECT_TRUE(ended.empty());
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 5, 50}));
  complete(5);
  EXPECT_EQ(ended.size(), 1u);
}

TEST_F(OutboxTest, APeerThatReceivedWhatWasNotSentIsNotBelieved) {
  add(notification(), notification());
  ASSERT_EQ(post().size(), 2u);
  complete(1);
  abort_all();
  EXPECT_FALSE(outbox.apply_received(3, why));
  EXPECT_EQ(why, "says it received up to message 3; 1 were acknowledged and 2 sent");
  EXPECT_FALSE(outbox.apply_received(0, why)) << "nor one that forgets";
}

// ---- refusals ------------------------------------------------------------------------------------------------------

TEST_F(OutboxTest, BehindARefusedWriteNoMessageOvertakesThoseThatCameBack) {
  TransferImpl &bad = transfer(OpKind::kWrite, {10}, true), &n = notification(), &late = notification();
  add(bad, n);
  ASSERT_EQ(post().size(), 3u);
  complete(1, Code::kProtectionError);
  EXPECT_FALSE(outbox.requeue()) << "two messages are still under way";
  add(late);
  EXPECT_EQ(post().size(), 0u);
  complete(2, Code::kAborted);
  complete(3, Code::kAborted);
  ASSERT_TRUE(outbox.requeue());
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].transfer, &bad);
  EXPECT_EQ(ended[0].code, Code::kProtectionError);
  EXPECT_EQ(post().size(), 2u);
  complete(4);
  EXPECT_EQ(outbox.acknowledged(), 1u) << "the first number again";
  EXPECT_EQ(ended.back().transfer, &n);
}

TEST_F(OutboxTest, WhatCarriedItsNotificationBehindARefusedWriteIsWrittenAgain) {
  can.write_notifies = true;
  TransferImpl &bad = transfer(OpKind::kWrite, {10}), &good = transfer(OpKind::kWrite, {1500}, true),
               &late = transfer(OpKind::kWrite, {20}, true);
  good.own.ops.front().remote = late.own.ops.front().remote = &other;
  add(bad, good, late);
  ASSERT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 1, 10}, Posted{OpKind::kWrite, 2, 1024},
                                  Posted{OpKind::kWrite, 3, 476}, Posted{OpKind::kWrite, 4, 20}));
  complete(1, Code::kProtectionError);
  complete(2);
  complete(3, Code::kAborted);
  EXPECT_FALSE(outbox.requeue()) << "another is still under way";
  complete(4, Code::kAborted);
  ASSERT_TRUE(outbox.requeue());
  EXPECT_THAT(ended, testing::SizeIs(1));
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kWrite, 5, 476}, Posted{OpKind::kWrite, 6, 20}));
  EXPECT_EQ(last.notify, std::optional<std::uint32_t>(3));
  complete(5);
  EXPECT_EQ(outbox.acknowledged(), 1u) << "the first number again";
  complete(6);
  ASSERT_EQ(ended.size(), 3u);
  EXPECT_EQ(ended[1].transfer, &good);
  EXPECT_EQ(ended[2].transfer, &late);
  EXPECT_EQ(ended[2].code, Code::kOk);
}

TEST_F(OutboxTest, ANotifyingWriteThatIsRefusedGivesItsNumberBack) {
  can.write_notifies = true;
  TransferImpl &bad = transfer(OpKind::kWrite, {10}, true), &good = transfer(OpKind::kWrite, {20}, true);
  good.own.ops.front().remote = &other;
  add(bad, good);
  ASSERT_EQ(post().size(), 2u);
  complete(1, Code::kProtectionError);
  complete(2, Code::kAborted);
  ASSERT_TRUE(outbox.requeue());
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].transfer, &bad);
  EXPECT_EQ(ended[0].code, Code::kProtectionError);
  ASSERT_EQ(post().size(), 1u);
  complete(3);
  EXPECT_EQ(outbox.acknowledged(), 1u);
  EXPECT_EQ(ended.back().transfer, &good);
  EXPECT_EQ(ended.back().code, Code::kOk);
}

TEST_F(OutboxTest, ARegionThatRefusedOnceIsNotAskedAgain) {
  add(transfer(OpKind::kWrite, {10}));
  ASSERT_EQ(post().size(), 1u);
  complete(1, Code::kProtectionError);
  add(transfer(OpKind::kRead, {10}));
  EXPECT_EQ(post().size(), 0u);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[1].code, Code::kProtectionError);
  EXPECT_EQ(ended[1].reason, ended[0].reason);
}

// ---- cancels and deadlines -----------------------------------------------------------------------------------------

constexpr Clock::time_point kNow{std::chrono::seconds(5)};

TEST_F(OutboxTest, WhatIsCancelledEndsOnceItsMemoryIsFree) {
  TransferImpl &queued = transfer(OpKind::kWrite, {10}), &posted = transfer(OpKind::kWrite, {10});
  add(posted);
  ASSERT_EQ(post().size(), 1u);
  add(queued);
  outbox.end_early(posted, kNow);
  outbox.end_early(queued, kNow);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].transfer, &queued);
  EXPECT_EQ(ended[0].code, Code::kCancelled);
  EXPECT_FALSE(outbox.has_backlog());
  EXPECT_EQ(outbox.stuck().value().since, kNow) << "one is on the path";
  complete(1, Code::kAborted);
  EXPECT_EQ(ended.size(), 1u) << "it may be on the wire, and land";
  ASSERT_TRUE(outbox.apply_received(0, why)) << why;
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[1].code, Code::kCancelled);
  EXPECT_FALSE(outbox.stuck());
  outbox.end_early(posted, kNow);
  EXPECT_EQ(ended.size(), 2u) << "what has ended cannot be cancelled";
}

TEST_F(OutboxTest, ACancelledReadThatThePathLeftUndoneEndsAtOnce) {
  TransferImpl& t = transfer(OpKind::kRead, {10});
  add(t);
  ASSERT_EQ(post().size(), 1u);
  outbox.end_early(t, kNow);
  complete(1, Code::kAborted);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kCancelled);
}

TEST_F(OutboxTest, WhatIsPlacedBeforeItCouldBeCancelledIsDone) {
  TransferImpl& t = transfer(OpKind::kWrite, {10});
  add(t);
  ASSERT_EQ(post().size(), 1u);
  outbox.end_early(t, kNow);
  complete(1);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kOk);
}

TEST_F(OutboxTest, ADeadlineSaysHowFarItWent) {
  TransferImpl& t = transfer(OpKind::kWrite, {2048});
  t.deadline = kNow;
  add(t);
  ASSERT_EQ(post(1).size(), 1u);
  complete(1);
  outbox.end_late(kNow - std::chrono::milliseconds(1));
  EXPECT_TRUE(ended.empty());
  outbox.end_late(kNow);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].reason, "the deadline passed with 1024 of 2048 bytes placed");
  EXPECT_FALSE(outbox.stuck());
}

// A peer that refuses one part of a transfer and says nothing of the rest holds the caller's memory all the same.
TEST_F(OutboxTest, WhatWasRefusedInPartIsStuckOnceItsTimeIsOver) {
  TransferImpl &late = transfer(OpKind::kWrite, {2048}), &cancelled = transfer(OpKind::kWrite, {2048});
  late.deadline = kNow;
  for (TransferImpl* const t : {&late, &cancelled}) add(*t);
  ASSERT_EQ(post().size(), 4u);
  complete(1, Code::kProtectionError);
  complete(3, Code::kProtectionError);
  EXPECT_FALSE(outbox.stuck()) << "nobody waits for its memory yet";
  outbox.end_early(cancelled, kNow - std::chrono::seconds(1));
  EXPECT_EQ(outbox.stuck().value().since, kNow - std::chrono::seconds(1));
  outbox.end_late(kNow);
  EXPECT_TRUE(ended.empty());
  complete(4);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kProtectionError) << "the first reason counts";
  EXPECT_EQ(outbox.stuck().value().since, kNow);
  complete(2);
  EXPECT_EQ(ended.size(), 2u);
  EXPECT_FALSE(outbox.stuck());
}

TEST_F(OutboxTest, TheOldestThatIsStuckIsTheOneToWaitFor) {
  TransferImpl* made[3];
  for (TransferImpl*& t : made) add(*(t = &transfer(OpKind::kWrite, {10})));
  ASSERT_EQ(post().size(), 3u);
  outbox.end_early(*made[1], kNow);
  outbox.end_early(*made[0], kNow + std::chrono::seconds(1));
  outbox.end_early(*made[1], kNow + std::chrono::seconds(2));
  EXPECT_EQ(outbox.stuck().value().since, kNow);
  complete(2);
  EXPECT_EQ(outbox.stuck().value().since, kNow + std::chrono::seconds(1));
}

// What expires costs what expires: 20,000 that were searched for in queues took 376 ms.
TEST_F(OutboxTest, ManyExpireInTheOrderOfTheirDeadlines) {
  constexpr int kMany = 20'000;
  for (int i = 0; i < kMany; ++i) {
    TransferImpl& t = transfer(OpKind::kWrite, {10}, true);
    t.deadline = kNow + std::chrono::microseconds(i % 2 == 0 ? i : kMany - i);
    add(t);
  }
  outbox.end_late(kNow + std::chrono::microseconds(kMany / 2 - 1));
  EXPECT_EQ(ended.size(), kMany / 2u);
  outbox.end_late(kNow + std::chrono::seconds(1));
  EXPECT_EQ(ended.size(), kMany + 0u);
  EXPECT_TRUE(std::is_sorted(ended.begin(), ended.end(), [](const Ended& a, const Ended& b) {
    return a.transfer->deadline < b.transfer->deadline;
  }));
  EXPECT_FALSE(outbox.has_backlog());
}

// An aborted notification may have been delivered: until the fence tells, its transfer does not end.
TEST_F(OutboxTest, ACancelledTransferWhoseNotificationMayHaveArrivedWaitsForTheFence) {
  for (const bool arrived : {true, false}) {
    ended.clear();
    const std::uint64_t before = outbox.acknowledged();
    TransferImpl& t = notification();
    add(t);
    ASSERT_EQ(post().size(), 1u);
    outbox.end_early(t, kNow);
    abort_all();
    EXPECT_TRUE(ended.empty());
    ASSERT_TRUE(outbox.apply_received(before + (arrived ? 1 : 0), why)) << why;
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_EQ(ended[0].code, arrived ? Code::kOk : Code::kCancelled);
    EXPECT_EQ(post().size(), 0u);
  }
}

// If the fence never comes, nobody knows.
TEST_F(OutboxTest, ACancelledTransferWhoseNotificationMayHaveArrivedHasAnUnknownOutcomeWithoutTheFence) {
  TransferImpl &on_the_path = notification(), &not_posted = notification();
  add(on_the_path);
  ASSERT_EQ(post().size(), 1u);
  add(not_posted);
  outbox.end_early(on_the_path, kNow);
  outbox.end_early(not_posted, kNow);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kCancelled) << "nothing of it was on the path";
  abort_all();
  outbox.end_all(Code::kPeerDied, "gone");
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[1].code, Code::kOutcomeUnknown);
  EXPECT_EQ(ended[1].reason, "cancelled; its notification or message may have arrived all the same: gone");
}

TEST_F(OutboxTest, EndsAllWithTheirOwnReasonOrTheGivenOne) {
  TransferImpl &posted = transfer(OpKind::kWrite, {10}), &queued = notification();
  posted.deadline = kNow;
  add(posted);
  ASSERT_EQ(post().size(), 1u);
  outbox.end_late(kNow);
  add(queued);
  outbox.end_all(Code::kPeerDied, "gone");
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].code, Code::kDeadlineExceeded);
  EXPECT_EQ(ended[1].code, Code::kPeerDied);
  EXPECT_EQ(ended[1].reason, "gone");
  EXPECT_FALSE(outbox.has_backlog());
}

// ---- staged --------------------------------------------------------------------------------------------------------

class StagedOutbox : public OutboxTest {
 protected:
  StagedOutbox() {
    way.staged = true;
    remote.keys.clear();  // a path without one-sided operations has no keys
  }
  bool answer(MessageType type, std::uint64_t sequence, Code code = Code::kOk) {
    PathMessage made;
    made.type = type;
    made.sequence = sequence;
    made.code = code;
    return outbox.staged_answer(made, moved, why);
  }
  bool moved = false;
};

TEST_F(StagedOutbox, WritesGoByMessageAndEndByTheirAnswer) {
  add(transfer(OpKind::kWrite, {250}, true));
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 1, 100}, Posted{OpKind::kMessage, 2, 100},
                                  Posted{OpKind::kMessage, 3, 50}));
  ASSERT_TRUE(answer(MessageType::kStagedAck, 2)) << why;
  EXPECT_EQ(outbox.staged_bytes.get(), 200u);
  EXPECT_EQ(post().size(), 0u);
  ASSERT_TRUE(answer(MessageType::kStagedAck, 3)) << why;
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 4, 0})) << "then the notification";
}

TEST_F(StagedOutbox, ARefusalEndsTheTransferAndANonsenseAnswerIsNamed) {
  add(transfer(OpKind::kWrite, {50}));
  ASSERT_EQ(post().size(), 1u);
  EXPECT_FALSE(answer(MessageType::kStagedAck, 9));
  EXPECT_EQ(why, "answered staged operation 9, which was never sent");
  ASSERT_TRUE(answer(MessageType::kStagedAck, 1, Code::kProtectionError)) << why;
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kProtectionError);
}

TEST_F(StagedOutbox, WhatHadNoAnswerIsPostedAgainOnTheNextPath) {
  add(transfer(OpKind::kWrite, {150}));
  ASSERT_EQ(post().size(), 2u);
  ASSERT_TRUE(answer(MessageType::kStagedAck, 1)) << why;
  for (std::uint64_t id : {1u, 2u}) ASSERT_TRUE(path.end(id));
  outbox.abort_staged();
  ASSERT_TRUE(outbox.apply_received(0, why)) << why;
  EXPECT_THAT(post(), ElementsAre(Posted{OpKind::kMessage, 3, 50}));
  ASSERT_TRUE(answer(MessageType::kStagedAck, 1)) << "numbered anew: " << why;
  EXPECT_EQ(ended.size(), 1u);
}

// ---- several paths --------------------------------------------------------------------------------------------------

}  // namespace
}  // namespace fairlead::datapath
