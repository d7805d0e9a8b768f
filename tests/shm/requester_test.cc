#include "shm/requester.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/system/unix_packets.h"
#include "memreg/arena.h"
#include "tests/shm/half.h"
#include "tests/shm/tripwire.h"

namespace fairlead::shm {
namespace {

using datapath::LocalSegment;
using datapath::OpKind;
using datapath::WorkRequest;

constexpr std::size_t kTurn = std::size_t{1} << 20;

class ShmRequester : public testing::Test, public Half {
 protected:
  static constexpr std::size_t kBytes = 100'000;

  ShmRequester() { start(requester_, *this); }
  static void start(Requester& requester, Half& half) {
    requester.start(&half.own->requests[1], &half.own->responses[0], &half.own->sides[0], &half.own->sides[1], true);
  }
  std::size_t post(OpKind kind, std::uint64_t id, std::size_t bytes) { return post(requester_, kind, id, bytes); }
  std::size_t post(Requester& requester, OpKind kind, std::uint64_t id, std::size_t bytes) {
    const LocalSegment segment{local_.data(), bytes, 0};
    const WorkRequest work{.id = id, .kind = kind, .local = {&segment, 1}, .remote_key = 77};
    return requester.post({&work, 1});
  }
  Slot next_asked() {
    EXPECT_TRUE(asked.ready());
    const Slot slot = asked.next();
    asked.pop(slot);
    asked.publish();
    return slot;
  }
  void say(const ArenaPacket& packet, int descriptor = -1) {
    peers->sides[0].arenas.told.fetch_add(1);
    EXPECT_TRUE(send_packet(sockets[0].get(), std::as_bytes(std::span(&packet, 1)), descriptor));
  }
  void end(std::uint64_t count) { peers->sides[0].answered.ended = count; }

  std::vector<std::byte> local_ = std::vector<std::byte>(kBytes, std::byte{3});
  Requester requester_{memory, given};
};

TEST_F(ShmRequester, SmallGoesThroughTheRingLargeIsNamedWhereThePeerCanReadIt) {
  ASSERT_EQ(post(OpKind::kWrite, 1, kThroughRing), 1u);
  EXPECT_EQ(next_asked().kind, SlotKind::kWriteData);
  ASSERT_EQ(post(OpKind::kWrite, 2, kThroughRing + 1), 1u);
  EXPECT_EQ(next_asked().kind, SlotKind::kWriteData) << "it has not said that it can";
  peer_pulls();
  ASSERT_EQ(post(OpKind::kWrite, 3, kThroughRing + 1), 1u);
  const Slot named = next_asked();
  EXPECT_EQ(named.kind, SlotKind::kWriteFrom);
  EXPECT_EQ(named.length, kThroughRing + 1);
  EXPECT_EQ(named.key, 77u);
}

TEST_F(ShmRequester, CompletionsComeOnceAndInOrder) {
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(post(OpKind::kMessage, id, 8), 1u);
  end(2);
  EXPECT_TRUE(requester_.has_work());
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.completions, (std::vector<std::pair<std::uint64_t, Code>>{{0, Code::kOk}, {1, Code::kOk}}));
  EXPECT_FALSE(requester_.has_work());
  requester_.stop();
  EXPECT_EQ(requester_.take_first(), std::pair(std::uint64_t{2}, Code::kAborted));
  EXPECT_TRUE(requester_.idle());
}

TEST_F(ShmRequester, ARequestOfThePeersSaysWhatHasEnded) {
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(post(OpKind::kMessage, id, 8), 1u);
  requester_.hear(2);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.completions.size(), 2u);
  requester_.hear(1);  // it was said before the others had ended
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.completions.size(), 2u);
  requester_.hear(4);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "the end of requests that were not sent");
  EXPECT_EQ(told.completions.size(), 2u);
}

// Whoever waits is passed over, but for what there can be to do.
TEST_F(ShmRequester, OneThatWaitsIsStillUntilItIsAnswered) {
  ASSERT_EQ(post(OpKind::kRead, 0, 8), 1u);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_TRUE(requester_.is_still());
  answer({.kind = SlotKind::kReadData, .bytes = 8}, "readback");
  EXPECT_FALSE(requester_.is_still()) << "an answer";
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_TRUE(requester_.is_still());
  peers->sides[0].answered.progress = 1;
  EXPECT_FALSE(requester_.is_still()) << "the peer is at work";
  EXPECT_TRUE(requester_.advance(told, kTurn).happened);
  EXPECT_TRUE(requester_.is_still());
  requester_.hear(1);
  EXPECT_FALSE(requester_.is_still()) << "an end that a request told of";
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.completions.size(), 1u);
  while (post(OpKind::kWrite, 1, 20'000) == 1 && requester_.is_still()) {
  }
  EXPECT_FALSE(requester_.is_still()) << "what has not found room";
}

TEST_F(ShmRequester, WhatNobodyHearsOfIsLookedForAtOnce) {
  ASSERT_EQ(post(OpKind::kMessage, 0, 8), 1u);
  requester_.hear(1);  // so it is answered
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  for (const OpKind kind : {OpKind::kWrite, OpKind::kRead}) {
    const std::size_t before = told.completions.size();
    ASSERT_EQ(post(kind, before, kind == OpKind::kRead ? 0 : 8), 1u);
    end(before + 1);
    EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
    EXPECT_EQ(told.completions.size(), before + 1);
    ASSERT_EQ(post(OpKind::kMessage, before + 1, 8), 1u);
    requester_.hear(static_cast<std::uint32_t>(before + 2));
    EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  }
}

TEST_F(ShmRequester, AndOursSayWhatHasEndedOfThePeers) {
  for (const OpKind kind : {OpKind::kMessage, OpKind::kWrite, OpKind::kRead}) {
    requester_.tell(0x1'0000'0007 + static_cast<std::uint64_t>(kind));
    ASSERT_EQ(post(kind, 1, 8), 1u);
    EXPECT_EQ(next_asked().ended, 7 + static_cast<std::uint32_t>(kind));
  }
}

// Behind what takes the peer long it would hear of an end late: that counts as not said.
TEST_F(ShmRequester, WhatThePeerComesToLateIsNotSaid) {
  requester_.tell(1);
  ASSERT_EQ(post(OpKind::kMessage, 0, 8), 1u);
  EXPECT_EQ(requester_.said(), 1u);
  for (const auto& [kind, bytes] : {std::pair(OpKind::kWrite, kMaxPiece + 1UL), std::pair(OpKind::kRead, 8UL)}) {
    const std::uint64_t before = requester_.said(), posted = told.completions.size() + requester_.outstanding();
    requester_.tell(before + 1);
    ASSERT_EQ(post(kind, posted, kind == OpKind::kRead ? 0 : bytes), 1u);
    ASSERT_EQ(post(OpKind::kMessage, posted + 1, 8), 1u);
    EXPECT_EQ(requester_.said(), before);
    end(posted + 2);
    EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
    ASSERT_EQ(post(OpKind::kMessage, posted + 2, 8), 1u);
    EXPECT_EQ(requester_.said(), before + 1);
  }
  requester_.tell(100);
  for (std::uint64_t id = 0; id < kDepth - 10; ++id) ASSERT_EQ(post(OpKind::kMessage, id, 8), 1u);
  EXPECT_EQ(requester_.said(), 100u);
  requester_.tell(101);
  ASSERT_EQ(post(OpKind::kMessage, kDepth, 8), 1u);
  EXPECT_EQ(requester_.said(), 100u) << "behind so many";
}

TEST_F(ShmRequester, WhatEndsWellInARowIsToldTogether) {
  for (const std::uint64_t id : {1u, 2u, 3u, 4u, 5u, 6u, 9u}) ASSERT_EQ(post(OpKind::kWrite, id, 8), 1u);
  answer({.kind = SlotKind::kRefused, .word = 2, .key = static_cast<std::uint64_t>(Code::kProtectionError)});
  end(7);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.rows, (std::vector<std::uint64_t>{2, 3, 1})) << "but for one that failed, and another's number";
  ASSERT_EQ(told.completions.size(), 7u);
  EXPECT_EQ(told.completions[2], std::pair(std::uint64_t{3}, Code::kProtectionError));
  EXPECT_EQ(told.completions[6], std::pair(std::uint64_t{9}, Code::kOk));
}

TEST_F(ShmRequester, AReadWithoutItsDataEndsARow) {
  for (const std::uint64_t id : {1u, 2u}) ASSERT_EQ(post(OpKind::kWrite, id, 8), 1u);
  ASSERT_EQ(post(OpKind::kRead, 3, 8), 1u);
  end(3);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "the end of a read without its data");
  EXPECT_EQ(told.rows, std::vector<std::uint64_t>{2});
}

TEST_F(ShmRequester, MessagesBehindAWriteThatWaitsForRoomAreKept) {
  ASSERT_EQ(post(OpKind::kWrite, 0, kBytes), 1u);
  ASSERT_EQ(post(OpKind::kWrite, 1, kBytes), 1u);
  std::uint64_t kept = 0;
  while (post(OpKind::kMessage, 2 + kept, kMostStored) == 1) ++kept;
  EXPECT_GE(kept, 16u);
  EXPECT_LT(kept, kDepth) << "what is kept has a limit";
  std::fill(local_.begin(), local_.end(), std::byte{9});  // only the writes have not been copied
  std::uint64_t messages = 0;
  for (int turn = 0; turn < 1000 && messages < kept; ++turn) {
    (void)requester_.advance(told, kTurn);
    while (asked.ready()) {
      const Slot slot = asked.next();
      if (slot.kind == SlotKind::kMessage) {
        EXPECT_EQ(asked.payload(slot)[0], std::byte{3});
        EXPECT_EQ(asked.payload(slot)[slot.bytes - 1], std::byte{3});
        ++messages;
      }
      asked.pop(slot);
    }
    asked.publish();
  }
  EXPECT_EQ(messages, kept);
}

TEST_F(ShmRequester, ALargeMessageThatTheRingHasNoRoomForIsNotTaken) {
  ASSERT_EQ(post(OpKind::kWrite, 0, kBytes), 1u);
  ASSERT_EQ(post(OpKind::kWrite, 1, kBytes), 1u);
  EXPECT_EQ(post(OpKind::kMessage, 2, kMostStored + 1), 0u);
  while (requester_.outstanding() != 0) {
    while (asked.ready()) (void)next_asked();
    end(requester_.outstanding() == 2 ? 1 : 2);
    (void)requester_.advance(told, kTurn);
  }
  EXPECT_EQ(post(OpKind::kMessage, 2, kMostStored + 1), 1u);
}

TEST_F(ShmRequester, ATurnHasSoManyBytesOfMessages) {
  (void)requester_.advance(told, 2 * kMaxPiece);
  std::uint64_t taken = 0;
  while (post(OpKind::kMessage, taken, kMaxPiece) == 1) ++taken;
  EXPECT_EQ(taken, 2u);
  EXPECT_EQ(post(OpKind::kMessage, taken, 8), 0u) << "none goes before those that wait";
  (void)requester_.advance(told, 2 * kMaxPiece);
  EXPECT_EQ(post(OpKind::kMessage, taken, kMaxPiece), 1u);
}

TEST_F(ShmRequester, AReadIsCopiedAndOnlyThenSaidToBe) {
  const std::vector<std::byte> theirs(kBytes, std::byte{8});
  ASSERT_EQ(post(OpKind::kRead, 5, kBytes), 1u);
  EXPECT_EQ(next_asked().kind, SlotKind::kRead);
  answer({.kind = SlotKind::kReadFrom, .word = 0, .address = reinterpret_cast<std::uint64_t>(theirs.data())});
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(local_, theirs);
  const Slot pulled = next_asked();
  EXPECT_EQ(pulled.kind, SlotKind::kPulled);
  EXPECT_TRUE(told.completions.empty());
  end(1);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.completions.size(), 1u);
}

TEST_F(ShmRequester, NothingIsCopiedOfAPeerThatHasClosed) {
  const std::vector<std::byte> theirs(kBytes, std::byte{8});
  ASSERT_EQ(post(OpKind::kRead, 5, kBytes), 1u);
  answer({.kind = SlotKind::kReadFrom, .word = 0, .address = reinterpret_cast<std::uint64_t>(theirs.data())});
  EXPECT_FALSE(requester_.advance(told, kBytes / 2).gone);
  peers->sides[0].state.closed = 1;
  EXPECT_TRUE(requester_.advance(told, kTurn).gone);
  EXPECT_EQ(std::ranges::count(local_, std::byte{8}), static_cast<std::ptrdiff_t>(kBytes / 2));
}

// Its id may be another's by now.
TEST_F(ShmRequester, AReadOfAPeerThatHungUpDoesNotCount) {
  const std::vector<std::byte> theirs(kBytes, std::byte{8});
  ASSERT_EQ(post(OpKind::kRead, 5, kBytes), 1u);
  (void)next_asked();
  answer({.kind = SlotKind::kReadFrom, .word = 0, .address = reinterpret_cast<std::uint64_t>(theirs.data())});
  sockets[0].reset();
  EXPECT_TRUE(requester_.advance(told, kTurn).gone);
  EXPECT_FALSE(memory.stands()) << "nor does what the other half copied";
  EXPECT_FALSE(asked.ready());
}

TEST_F(ShmRequester, AReadStopsWhereItsRightIsWithdrawn) {
  const std::vector<std::byte> theirs(kBytes, std::byte{8});
  for (const std::uint64_t id : {5U, 6U}) ASSERT_EQ(post(OpKind::kRead, id, kBytes), 1u);
  for (std::uint32_t read = 0; read < 2; ++read) {
    answer({.kind = SlotKind::kReadFrom, .word = read, .address = reinterpret_cast<std::uint64_t>(theirs.data())});
  }
  (void)requester_.advance(told, kBytes / 2);
  peers->sides[0].withdrawn[0] = 1;
  EXPECT_EQ(requester_.advance(told, kBytes / 4).reason, "");
  EXPECT_EQ(std::ranges::count(local_, std::byte{8}), static_cast<std::ptrdiff_t>(kBytes / 2));
  (void)requester_.advance(told, kTurn);
  end(2);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.completions,
            (std::vector<std::pair<std::uint64_t, Code>>{{5, Code::kProtectionError}, {6, Code::kOk}}));
}

// Its owner withdraws it and takes back the arena that it lies in, after the first of two segments.
TEST_F(ShmRequester, AReadWhoseArenaIsTakenBackInItsMiddleFailsAlone) {
  memory.start(&own->sides[0], &own->sides[1], false, true);
  const auto arena = memreg::Arena::map(2 * Tripwire::kPage, {.readable = true});
  ASSERT_TRUE(arena);
  constexpr std::uint64_t kThere = 1 << 20;
  say({.kind = ArenaNews::kGiven, .address = kThere, .bytes = arena->bytes().size()}, arena->fd());
  Tripwire first([this] {
    peers->sides[0].withdrawn[0] = 1;
    say({.kind = ArenaNews::kTakenBack, .bytes = 1});
  });
  const LocalSegment segments[] = {{first.page(), Tripwire::kPage, 0}, {local_.data(), Tripwire::kPage, 0}};
  const WorkRequest read{.id = 5, .kind = OpKind::kRead, .local = segments, .remote_key = 77};
  ASSERT_EQ(requester_.post({&read, 1}), 1u);
  answer({.kind = SlotKind::kReadFrom, .word = 0, .address = kThere});
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(memory.reason(), "");
  EXPECT_EQ(copies.mapped.get(), Tripwire::kPage) << "the first was read before";
  EXPECT_EQ(local_.front(), std::byte{3});
  end(1);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.completions, (std::vector<std::pair<std::uint64_t, Code>>{{5, Code::kProtectionError}}));
}

TEST_F(ShmRequester, AReadOfMemoryThatWasNotOfferedEndsIt) {
  memory.start(&own->sides[0], &own->sides[1], false, true);
  const std::vector<std::byte> theirs(kBytes, std::byte{8});
  ASSERT_EQ(post(OpKind::kRead, 5, kBytes), 1u);
  answer({.kind = SlotKind::kReadFrom, .word = 0, .address = reinterpret_cast<std::uint64_t>(theirs.data())});
  EXPECT_EQ(requester_.advance(told, kTurn).reason, kMemoryNotOffered);
  EXPECT_EQ(local_.front(), std::byte{3});
}

TEST_F(ShmRequester, AReadOfMemoryThatIsGoneFailsAlone) {
  ASSERT_EQ(post(OpKind::kRead, 5, kBytes), 1u);
  answer({.kind = SlotKind::kReadFrom, .word = 0, .address = 4096});
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  end(1);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.completions, (std::vector<std::pair<std::uint64_t, Code>>{{5, Code::kProtectionError}}));
}

TEST_F(ShmRequester, TheLastSlotOfAWriteTakesItsNotificationAlong) {
  const auto post_notifying = [this](std::uint64_t id, std::size_t bytes) {
    const LocalSegment segment{local_.data(), bytes, 0};
    const WorkRequest work{
        .id = id, .kind = OpKind::kWrite, .local = {&segment, 1}, .remote_key = 77, .notify = 0xfffffff0 + id};
    return requester_.post({&work, 1});
  };
  const auto expect_value = [](Slot slot, std::uint32_t value) {
    EXPECT_TRUE(slot.notifies());
    EXPECT_EQ(slot.value(), value);
    EXPECT_EQ(slot.word, 0u);
  };
  ASSERT_EQ(post_notifying(1, kPayloadBesideValue), 1u);
  Slot small = next_asked();
  expect_value(small, 0xfffffff1);
  EXPECT_EQ(std::memcmp(small.inside(), local_.data(), kPayloadBesideValue), 0);
  ASSERT_EQ(post_notifying(2, kPayloadBesideValue + 1), 1u);
  EXPECT_FALSE(asked.next().fits_inside());
  expect_value(next_asked(), 0xfffffff2);
  ASSERT_EQ(post_notifying(3, kMaxPiece + 8), 1u);
  EXPECT_FALSE(next_asked().notifies()) << "there is more of it";
  expect_value(next_asked(), 0xfffffff3);
  peer_pulls();
  ASSERT_EQ(post_notifying(4, kBytes), 1u);
  const Slot named = next_asked();
  EXPECT_EQ(named.kind, SlotKind::kWriteFrom);
  expect_value(named, 0xfffffff4);
}

TEST_F(ShmRequester, AWriteThatIsTurnedAwayIsNoRefusal) {
  const auto post_notifying = [this](std::uint64_t id) {
    const LocalSegment segment{local_.data(), 8, 0};
    const WorkRequest work{.id = id, .kind = OpKind::kWrite, .local = {&segment, 1}, .notify = 7};
    ASSERT_EQ(requester_.post({&work, 1}), 1u);
  };
  post_notifying(1);
  post_notifying(2);
  answer({.kind = SlotKind::kRefused, .word = 0, .key = static_cast<std::uint64_t>(Code::kProtectionError)});
  answer({.kind = SlotKind::kRefused, .word = 1, .key = static_cast<std::uint64_t>(Code::kAborted)});
  end(2);
  EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
  EXPECT_EQ(told.completions,
            (std::vector<std::pair<std::uint64_t, Code>>{{1, Code::kProtectionError}, {2, Code::kAborted}}));
  post_notifying(3);
  (void)next_asked();
  (void)next_asked();
  EXPECT_EQ(next_asked().word, 1u) << "of one refusal it knows";
  answer({.kind = SlotKind::kRefused, .word = 2, .key = static_cast<std::uint64_t>(Code::kAborted)});
  end(3);
  EXPECT_NE(requester_.advance(told, kTurn).reason, "") << "there was nothing that it did not know of";
}

TEST_F(ShmRequester, WhatIsNoAnswerEndsIt) {
  const Slot none{.kind = SlotKind::kPulled};  // in whose place nothing is answered
  struct Case {
    OpKind asked;
    std::vector<Slot> answers;
    std::uint64_t ended;
  };
  const auto refused = [](std::uint32_t word, Code code) {
    return Slot{.kind = SlotKind::kRefused, .word = word, .key = static_cast<std::uint64_t>(code)};
  };
  const std::vector<Case> all = {
      {OpKind::kMessage, {none}, 0},
      {OpKind::kMessage, {}, 2},
      {OpKind::kMessage, {}, ~std::uint64_t{0}},
      {OpKind::kMessage, {refused(1, Code::kAborted)}, 0},
      {OpKind::kMessage, {refused(0, Code::kAborted)}, 1},  // no write was refused
      {OpKind::kMessage, {refused(0, Code::kProtectionError)}, 1},
      {OpKind::kWrite, {refused(0, Code::kOk)}, 1},
      {OpKind::kWrite, {refused(0, Code::kAborted)}, 1},
      {OpKind::kWrite, {refused(0, Code::kProtectionError), refused(0, Code::kProtectionError)}, 1},
      {OpKind::kRead, {refused(0, Code::kDataLoss)}, 1},
      {OpKind::kRead, {}, 1},  // without its data
      {OpKind::kRead, {{.kind = SlotKind::kReadData, .bytes = 8, .word = 0, .address = 8}}, 0},
      {OpKind::kRead, {{.kind = SlotKind::kReadData, .bytes = 1001, .word = 0}}, 0},
      {OpKind::kRead, {{.kind = SlotKind::kReadData, .bytes = 0xffff, .word = 0}}, 0},
      {OpKind::kRead, {{.kind = SlotKind::kReadData, .bytes = 8, .word = 7}}, 0},
      {OpKind::kWrite, {{.kind = SlotKind::kReadData, .bytes = 8, .word = 0}}, 0},
      {OpKind::kWrite, {{.kind = SlotKind::kReadFrom, .word = 0}}, 0},
      {OpKind::kRead, {{.kind = SlotKind::kReadFrom, .word = 0}, {.kind = SlotKind::kReadFrom, .word = 0}}, 0},
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    Half attacker;
    Requester victim(attacker.memory, attacker.given);
    start(victim, attacker);
    ASSERT_EQ(post(victim, all[i].asked, 1, 1000), 1u);
    for (const Slot& slot : all[i].answers) attacker.replies.push(slot);
    attacker.peers->sides[0].answered.ended = all[i].ended;
    EXPECT_NE(victim.advance(attacker.told, kTurn).reason, "");
    EXPECT_TRUE(attacker.told.completions.empty());
  }
}

TEST_F(ShmRequester, AReadToCopyWhereNoneWasOfferedEndsIt) {
  Half deputy;
  Requester victim(deputy.memory, deputy.given);
  victim.start(&deputy.own->requests[1], &deputy.own->responses[0], &deputy.own->sides[0], &deputy.own->sides[1],
               false);
  ASSERT_EQ(post(victim, OpKind::kRead, 1, kBytes), 1u);
  deputy.answer(
      {.kind = SlotKind::kReadFrom, .word = 0, .address = reinterpret_cast<std::uint64_t>(told.messages.data())});
  EXPECT_EQ(victim.advance(deputy.told, kTurn).reason, "a read to copy, which was not offered");
}

// It says where the newest read lies, then where all the others do, and refuses those: more than the depth could be
// kept.
TEST_F(ShmRequester, MoreReadsToCopyThanTheDepthEndIt) {
  const std::vector<std::byte> theirs(kBytes, std::byte{8});
  std::string_view reason;
  const auto advance = [&] {
    reason = requester_.advance(told, 1).reason;
    while (asked.ready()) asked.pop(asked.next());
    asked.publish();
  };
  const auto say_where = [&](std::uint32_t number) {
    answer({.kind = SlotKind::kReadFrom, .word = number, .address = reinterpret_cast<std::uint64_t>(theirs.data())});
    advance();
  };
  for (std::uint64_t id = 0; id < kDepth; ++id) {
    ASSERT_EQ(post(OpKind::kRead, id, kBytes), 1u);
    advance();
  }
  say_where(kDepth - 1);
  for (std::uint32_t number = 0; number + 1 < kDepth; ++number) {
    say_where(number);
    answer({.kind = SlotKind::kRefused, .word = number, .key = static_cast<std::uint64_t>(Code::kProtectionError)});
    advance();
    ASSERT_EQ(reason, "") << number;
  }
  end(kDepth - 1);
  advance();
  ASSERT_EQ(told.completions.size(), kDepth - 1);
  ASSERT_EQ(post(OpKind::kRead, kDepth, kBytes), 1u);
  say_where(kDepth);
  EXPECT_EQ(reason, "more reads to copy than the depth");
}

TEST_F(ShmRequester, APeerThatTookMoreThanThereWasEndsIt) {
  peers->sides[0].answered.requests.slots = 1'000'000;
  std::uint64_t id = 0;
  while (post(OpKind::kWrite, id, 20'000) == 1 && id < kDepth) ++id;
  EXPECT_NE(requester_.advance(told, kTurn).reason, "");
}

// With nothing under way a still requester is passed over: not one that has seen a lie.
TEST_F(ShmRequester, AnIdleOneThatWasLiedToIsNotStill) {
  EXPECT_TRUE(requester_.is_still());
  std::uint64_t id = 0;
  for (; id < kDepth && post(OpKind::kMessage, id, kMostStored + 1) == 1; ++id) {
    EXPECT_TRUE(requester_.is_still()) << "nothing is answered";
    peers->sides[0].answered.requests.slots = 1'000'000;  // which is looked at where the ring seems full
    end(id + 1);
    EXPECT_FALSE(requester_.is_still()) << "an end that has not been seen";
    EXPECT_EQ(requester_.advance(told, kTurn).reason, "");
    EXPECT_TRUE(requester_.idle());
  }
  ASSERT_LT(id, kDepth) << "the ring is full at last";
  EXPECT_FALSE(requester_.is_still());
  EXPECT_NE(requester_.advance(told, kTurn).reason, "");
}

// Whatever stands in the ring of answers: only the bytes that were to be read are written.
TEST_F(ShmRequester, RandomAnswersDoNoHarm) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 300; ++round) {
    Half attacker;
    Requester victim(attacker.memory, attacker.given);
    start(victim, attacker);
    std::fill(local_.begin(), local_.end(), std::byte{3});
    for (std::uint64_t id = 0; id < 8; ++id) {
      ASSERT_EQ(post(victim, id % 2 == 0 ? OpKind::kRead : OpKind::kWrite, id, 40'000), 1u);
    }
    for (int i = 0; i < 32; ++i) {
      attacker.replies.push({.kind = static_cast<SlotKind>(5 + random() % 4),
                             .bytes = static_cast<std::uint16_t>(random() % 3 == 0 ? random() : random() % 20'000),
                             .word = static_cast<std::uint32_t>(random() % 9),
                             .key = random() % 4 == 0 ? random() : 9,
                             .address = random() % 2 == 0 ? 0 : random() % 40'000});
    }
    attacker.peers->sides[0].answered.ended = random() % 9;
    for (int turn = 0; turn < 5; ++turn) {
      if (!victim.advance(attacker.told, kTurn).reason.empty()) break;
    }
    ASSERT_TRUE(
        std::all_of(local_.begin() + 40'000, local_.end(), [](std::byte each) { return each == std::byte{3}; }));
  }
}

}  // namespace
}  // namespace fairlead::shm
