#include "shm/responder.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "tests/shm/half.h"

namespace fairlead::shm {
namespace {

constexpr std::size_t kTurn = std::size_t{1} << 20;

class ShmResponder : public testing::Test, public Half {
 protected:
  static constexpr std::size_t kBytes = 100'000, kGuard = 4096;

  ShmResponder() {
    granted_ = grants_.grant(target(), Access::kRemoteReadWrite);
    responder_.start(&own->requests[0], &own->responses[1], &own->sides[0], &own->sides[1], true);
  }
  ~ShmResponder() override { grants_.revoke(granted_); }

  std::span<std::byte> target() { return std::span(memory_of_ours_).subspan(kGuard, kBytes); }
  /// Nothing but the target was written.
  bool guards_hold() const {
    const auto untouched = [](std::byte each) { return each == std::byte{0x5a}; };
    return std::all_of(memory_of_ours_.begin(), memory_of_ours_.begin() + kGuard, untouched) &&
           std::all_of(memory_of_ours_.end() - kGuard, memory_of_ours_.end(), untouched);
  }
  std::string_view carry_out() {
    Advance last;
    do {
      last = responder_.advance(told, kTurn);
    } while (last.happened && last.reason.empty() && !last.gone);
    return last.reason;
  }
  /// The next answer is that request `number` ended with `code`.
  void expect_refusal(std::uint32_t number, Code code) {
    ASSERT_TRUE(answers.ready());
    const Slot slot = answers.next();
    answers.pop(slot);
    EXPECT_EQ(slot.kind, SlotKind::kRefused);
    EXPECT_EQ(slot.word, number);
    EXPECT_EQ(static_cast<Code>(slot.key), code);
  }
  std::uint64_t ended() const { return peers->sides[1].answered.ended; }
  Slot write_from(std::uint64_t bytes) const {
    return {.kind = SlotKind::kWriteFrom, .bytes = 16, .key = granted_.key, .length = bytes};
  }

  std::vector<std::byte> memory_of_ours_ = std::vector<std::byte>(kBytes + 2 * kGuard, std::byte{0x5a});
  datapath::GrantTable grants_;
  datapath::GrantReader reader_{grants_};
  datapath::Grant granted_;
  PulledReads reads_;
  Responder responder_{memory, given, reader_, reads_, 0};
};

TEST_F(ShmResponder, WritesThroughTheRingArePlaced) {
  const std::string text(30, 'x');
  push({.kind = SlotKind::kWriteData, .flags = kLast, .bytes = 30, .key = granted_.key, .address = 7}, text.data());
  push({.kind = SlotKind::kWriteData, .flags = kLast, .bytes = 3, .key = granted_.key, .address = kBytes - 3}, "end");
  EXPECT_EQ(carry_out(), "");
  EXPECT_EQ(std::memcmp(target().data() + 7, text.data(), 30), 0);
  EXPECT_EQ(std::memcmp(target().data() + kBytes - 3, "end", 3), 0);
  EXPECT_EQ(ended(), 2u);
  EXPECT_TRUE(guards_hold());
}

TEST_F(ShmResponder, ATurnHasSoManyBytesOfMessages) {
  const std::vector<std::byte> bytes(kMaxPiece, std::byte{7});
  for (int i = 0; i < 5; ++i) push({.kind = SlotKind::kMessage, .bytes = kMaxPiece}, bytes.data());
  (void)responder_.advance(told, 2 * kMaxPiece);
  EXPECT_EQ(told.messages.size(), 2u);
  EXPECT_TRUE(responder_.has_work());
  EXPECT_EQ(carry_out(), "");
  EXPECT_EQ(told.messages.size(), 5u);
  EXPECT_EQ(ended(), 5u);
}

TEST_F(ShmResponder, WritesThatAreNamedAreCopiedFromWhereTheyLie) {
  const std::vector<std::byte> first(kBytes / 2, std::byte{1}), second(kBytes - kBytes / 2, std::byte{2});
  const SourceSegment sources[] = {{reinterpret_cast<std::uint64_t>(first.data()), first.size()},
                                   {0, 0},
                                   {reinterpret_cast<std::uint64_t>(second.data()), second.size()}};
  push({.kind = SlotKind::kWriteFrom, .bytes = sizeof sources, .key = granted_.key, .length = kBytes}, sources);
  EXPECT_EQ(carry_out(), "");
  EXPECT_EQ(ended(), 1u);
  EXPECT_EQ(target().front(), std::byte{1});
  EXPECT_EQ(target().back(), std::byte{2});
  EXPECT_TRUE(guards_hold());
}

TEST_F(ShmResponder, WhatIsNotGrantedIsRefusedAndTouchesNothing) {
  const std::vector<std::byte> source(kBytes + 1, std::byte{9});
  const SourceSegment from{reinterpret_cast<std::uint64_t>(source.data()), kBytes + 1};
  push(write_from(kBytes + 1), &from);
  Slot wrong = write_from(kBytes);
  const SourceSegment less{from.address, kBytes};
  wrong.key ^= 1;
  push(wrong, &less);
  wrong = write_from(kBytes);
  wrong.address = ~std::uint64_t{0} - 10;
  push(wrong, &less);
  push({.kind = SlotKind::kRead, .key = granted_.key, .address = 1, .length = kBytes});
  EXPECT_EQ(carry_out(), "");
  for (std::uint32_t i = 0; i < 4; ++i) expect_refusal(i, Code::kProtectionError);
  EXPECT_EQ(ended(), 4u);
  EXPECT_TRUE(std::all_of(memory_of_ours_.begin(), memory_of_ours_.end(), [](auto b) { return b == std::byte{0x5a}; }));
}

TEST_F(ShmResponder, NoMessageArrivesBehindARefusedWrite) {
  push({.kind = SlotKind::kWriteData, .flags = kLast, .bytes = 3, .key = 1, .address = 0}, "bad");
  push({.kind = SlotKind::kMessage, .bytes = 5, .word = 0}, "early");
  push({.kind = SlotKind::kMessage, .bytes = 4, .word = 1}, "late");
  EXPECT_EQ(carry_out(), "");
  expect_refusal(0, Code::kProtectionError);
  expect_refusal(1, Code::kAborted);
  EXPECT_EQ(told.messages, std::vector<std::string>{"late"});
  EXPECT_EQ(ended(), 3u);
}

/// `knows`: of so many refusals.
Slot notifying(Slot slot, std::uint32_t knows, std::uint32_t value) {
  slot.word = knows;
  slot.notify(value);
  return slot;
}

TEST_F(ShmResponder, AWriteThatIsPlacedNotifies) {
  const std::string text(40, 'x');
  const auto piece = [&](std::uint16_t bytes, std::uint64_t at) {
    return Slot{.kind = SlotKind::kWriteData, .flags = kLast, .bytes = bytes, .key = granted_.key, .address = at};
  };
  push(notifying(piece(kPayloadBesideValue, 0), 0, 1), text.data());
  push(notifying(piece(kPayloadBesideValue + 1, 100), 0, 2), text.data());
  push(notifying(piece(0, 0), 0, 3));
  Slot begins = piece(40, 200);
  begins.flags = 0;
  push(begins, text.data());
  push(notifying(piece(8, 240), 0, 4), text.data());
  push({.kind = SlotKind::kMessage, .bytes = 5}, "hello");
  const std::vector<std::byte> source(kBytes, std::byte{9});
  const SourceSegment from{reinterpret_cast<std::uint64_t>(source.data()), kBytes};
  Slot lost = piece(0, 0);
  lost.flags |= kLost;
  push(notifying(lost, 0, 5));
  EXPECT_EQ(carry_out(), "");
  EXPECT_EQ(told.notifications, (std::vector<std::uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(std::memcmp(target().data() + 100, text.data(), kPayloadBesideValue + 1), 0);
  EXPECT_EQ(std::memcmp(target().data() + 200, (text + text).data(), 48), 0);
  EXPECT_EQ(target()[kPayloadBesideValue], std::byte{0x5a}) << "the value is no payload";
  expect_refusal(5, Code::kDataLoss);
  push(notifying(write_from(kBytes), 1, 6), &from);
  EXPECT_EQ(carry_out(), "");
  EXPECT_EQ(told.notifications.back(), 6u);
  EXPECT_EQ(target().back(), std::byte{9});
  EXPECT_EQ(ended(), 7u);
  EXPECT_TRUE(guards_hold());
}

TEST_F(ShmResponder, NoNotificationArrivesBehindARefusedWrite) {
  const std::vector<std::byte> source(kBytes, std::byte{9});
  const SourceSegment from{reinterpret_cast<std::uint64_t>(source.data()), kBytes};
  push(notifying({.kind = SlotKind::kWriteData, .flags = kLast, .bytes = 3, .key = 1}, 0, 1), "bad");
  push(notifying({.kind = SlotKind::kWriteData, .flags = kLast, .bytes = 5, .key = granted_.key}, 0, 2), "early");
  push(notifying(write_from(kBytes), 0, 3), &from);
  push({.kind = SlotKind::kMessage, .bytes = 5, .word = 0}, "early");
  push(notifying({.kind = SlotKind::kWriteData, .flags = kLast, .bytes = 4, .key = granted_.key}, 1, 4), "late");
  EXPECT_EQ(carry_out(), "");
  expect_refusal(0, Code::kProtectionError);
  for (const std::uint32_t turned_away : {1u, 2u, 3u}) expect_refusal(turned_away, Code::kAborted);
  EXPECT_EQ(told.notifications, std::vector<std::uint32_t>{4}) << "those turned away are no refusals by themselves";
  EXPECT_TRUE(told.messages.empty());
  EXPECT_EQ(std::memcmp(target().data(), "late", 4), 0);
  EXPECT_EQ(target()[4], std::byte{0x5a}) << "what is turned away leaves nothing";
  EXPECT_EQ(ended(), 5u);
}

TEST_F(ShmResponder, ANotificationThatCannotBeEndsIt) {
  const auto lies = [this](Slot slot, const char* payload) {
    Half attacker;
    Responder victim(attacker.memory, attacker.given, reader_, reads_, 0);
    victim.start(&attacker.own->requests[0], &attacker.own->responses[1], &attacker.own->sides[0],
                 &attacker.own->sides[1], true);
    attacker.push(slot, payload);
    EXPECT_NE(victim.advance(attacker.told, kTurn).reason, "");
    EXPECT_TRUE(attacker.told.notifications.empty());
  };
  lies(notifying({.kind = SlotKind::kWriteData, .flags = kLast, .bytes = 3, .key = granted_.key}, 1, 7), "abc");
  lies(notifying({.kind = SlotKind::kWriteData, .bytes = 3, .key = granted_.key}, 0, 7), "abc");
  Slot from_nowhere = notifying(write_from(0), 1, 7);
  lies(from_nowhere, "0123456789abcdef");
}

TEST_F(ShmResponder, ALostSourceIsARefusal) {
  push({.kind = SlotKind::kWriteData, .flags = kLast | kLost, .key = granted_.key});
  const SourceSegment nowhere{4096, 50'000};
  push(write_from(50'000), &nowhere);
  push({.kind = SlotKind::kMessage, .bytes = 5, .word = 0}, "early");
  EXPECT_EQ(carry_out(), "");
  expect_refusal(0, Code::kDataLoss);
  expect_refusal(1, Code::kDataLoss);
  expect_refusal(2, Code::kAborted);
  EXPECT_TRUE(told.messages.empty());
}

TEST_F(ShmResponder, ATargetThatIsGoneIsRefused) {
  void* const gone = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  const auto grant = grants_.grant({static_cast<std::byte*>(gone), 50'000}, Access::kRemoteReadWrite);
  const std::vector<std::byte> source(50'000);
  const SourceSegment from{reinterpret_cast<std::uint64_t>(source.data()), source.size()};
  Slot slot = write_from(source.size());
  slot.key = grant.key;
  push(slot, &from);
  push({.kind = SlotKind::kWriteData, .flags = kLast, .bytes = 3, .key = grant.key}, "abc");
  push({.kind = SlotKind::kRead, .key = grant.key, .length = 100});
  EXPECT_EQ(carry_out(), "");
  for (std::uint32_t i = 0; i < 3; ++i) expect_refusal(i, Code::kProtectionError);
  grants_.revoke(grant);
  ::munmap(gone, kBytes);
}

// What was copied of memory that the peer has let go of meanwhile may be anything.
TEST_F(ShmResponder, AWriteOfAPeerThatHasClosedDoesNotCount) {
  const std::vector<std::byte> source(kBytes);
  const SourceSegment from{reinterpret_cast<std::uint64_t>(source.data()), source.size()};
  push(write_from(kBytes), &from);
  push({.kind = SlotKind::kMessage, .bytes = 4}, "late");
  peers->sides[0].state.closed = 1;
  EXPECT_TRUE(responder_.advance(told, kTurn).gone);
  EXPECT_EQ(ended(), 0u);
  EXPECT_TRUE(told.messages.empty());
  EXPECT_EQ(target().front(), std::byte{0x5a}) << "nothing of it is copied";
}

// It closes while its write is being copied: what it puts there afterwards goes nowhere.
TEST_F(ShmResponder, AWriteStopsWhereItsPeerCloses) {
  std::vector<std::byte> source(kBytes, std::byte{1});
  const SourceSegment from{reinterpret_cast<std::uint64_t>(source.data()), source.size()};
  push(write_from(kBytes), &from);
  EXPECT_FALSE(responder_.advance(told, 4096).gone);
  EXPECT_FALSE(responder_.advance(told, 4096).gone);
  peers->sides[0].state.closed = 1;
  std::ranges::fill(source, std::byte{9});
  EXPECT_TRUE(responder_.advance(told, kTurn).gone);
  EXPECT_EQ(std::ranges::count(target(), std::byte{9}), 0);
  EXPECT_GT(std::ranges::count(target(), std::byte{1}), 0);
}

TEST_F(ShmResponder, AWriteFromMemoryThatWasNotOfferedEndsIt) {
  memory.start(&own->sides[0], &own->sides[1], false, true);
  const std::vector<std::byte> source(kBytes);
  const SourceSegment from{reinterpret_cast<std::uint64_t>(source.data()), source.size()};
  push(write_from(kBytes), &from);
  EXPECT_EQ(carry_out(), kMemoryNotOffered);
  EXPECT_EQ(ended(), 0u);
  EXPECT_EQ(target().front(), std::byte{0x5a});
}

TEST_F(ShmResponder, AWriteOfAPeerThatHungUpDoesNotCount) {
  const std::vector<std::byte> source(kBytes);
  const SourceSegment from{reinterpret_cast<std::uint64_t>(source.data()), source.size()};
  push(write_from(kBytes), &from);
  sockets[0].reset();
  EXPECT_TRUE(responder_.advance(told, kTurn).gone);
  EXPECT_EQ(ended(), 0u);
}

TEST_F(ShmResponder, AReadIsCheckedAgainWhenItIsDone) {
  peer_pulls();
  push({.kind = SlotKind::kRead, .key = granted_.key, .length = kBytes});
  push({.kind = SlotKind::kMessage, .bytes = 4}, "next");
  EXPECT_EQ(carry_out(), "");
  ASSERT_TRUE(answers.ready());
  const Slot from = answers.next();
  answers.pop(from);
  EXPECT_EQ(from.kind, SlotKind::kReadFrom);
  EXPECT_EQ(from.address, reinterpret_cast<std::uint64_t>(target().data()));
  EXPECT_EQ(told.messages.size(), 1u) << "what is behind it does not wait,";
  EXPECT_EQ(ended(), 0u) << "but is not reported before it";
  EXPECT_EQ(peers->sides[1].withdrawn[0], 0);
  grants_.revoke(granted_);
  reads_.withdraw(granted_.key);
  EXPECT_EQ(peers->sides[1].withdrawn[0], 1) << "it is told to stop";
  push({.kind = SlotKind::kPulled, .word = 0});
  EXPECT_EQ(carry_out(), "");
  expect_refusal(0, Code::kProtectionError);
  EXPECT_EQ(ended(), 2u);
}

TEST_F(ShmResponder, APeerThatTakesNoAnswersIsWaitedForWithoutMemory) {
  for (std::uint32_t i = 0; i < 200; ++i) {
    push({.kind = SlotKind::kRead, .key = granted_.key, .length = 8000});
  }
  EXPECT_EQ(carry_out(), "");
  EXPECT_FALSE(responder_.has_work());
  EXPECT_LT(ended(), 64u);
  std::uint64_t got = 0;
  while (ended() < 200 || answers.ready()) {
    while (answers.ready()) {
      const Slot slot = answers.next();
      got += slot.bytes;
      answers.pop(slot);
    }
    answers.publish();
    ASSERT_TRUE(ended() == 200 || responder_.has_work());
    ASSERT_EQ(carry_out(), "");
  }
  EXPECT_EQ(got, 200u * 8000);
}

TEST_F(ShmResponder, WhatIsNoRequestEndsIt) {
  const std::uint64_t too_long = kMaxLength + 1;
  const std::vector<std::vector<Slot>> all = {
      {{.kind = static_cast<SlotKind>(0)}},
      {{.kind = static_cast<SlotKind>(255)}},
      {{.kind = SlotKind::kReadData}},
      {{.kind = SlotKind::kRefused}},
      {{.kind = SlotKind::kMessage, .bytes = kMaxPiece + 1}},
      {{.kind = SlotKind::kMessage, .bytes = 0xffff}},
      {{.kind = SlotKind::kMessage, .word = 1}},
      {{.kind = SlotKind::kWriteData, .bytes = 0xffff, .key = granted_.key}},
      {{.kind = SlotKind::kWriteData}, {.kind = SlotKind::kMessage}},
      {{.kind = SlotKind::kWriteData}, {.kind = SlotKind::kRead}},
      {{.kind = SlotKind::kWriteFrom, .bytes = 17 * 16}},
      {{.kind = SlotKind::kWriteFrom, .bytes = 255 * 16}},
      {{.kind = SlotKind::kWriteFrom, .bytes = 24}},
      {{.kind = SlotKind::kWriteFrom, .bytes = 0, .length = 5}},
      {{.kind = SlotKind::kWriteFrom, .bytes = 0, .length = too_long}},
      {{.kind = SlotKind::kRead, .key = granted_.key, .length = too_long}},
      {{.kind = SlotKind::kPulled, .word = 0}},
      {{.kind = SlotKind::kPulled, .word = 0xffff}},
      {{.kind = SlotKind::kRead, .key = granted_.key, .length = 8}, {.kind = SlotKind::kPulled, .word = 0}},
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    Half attacker;
    Responder victim(attacker.memory, attacker.given, reader_, reads_, 0);
    victim.start(&attacker.own->requests[0], &attacker.own->responses[1], &attacker.own->sides[0],
                 &attacker.own->sides[1], true);
    for (const Slot& slot : all[i]) attacker.out.push(slot);
    Advance last;
    for (int turn = 0; turn < 5 && last.reason.empty(); ++turn) last = victim.advance(attacker.told, kTurn);
    EXPECT_NE(last.reason, "");
    EXPECT_TRUE(attacker.told.messages.empty());
  }
  EXPECT_TRUE(guards_hold());
}

// Nobody has shown that the process which the kernel named is the one that asks: it is not copied from.
TEST_F(ShmResponder, AWriteToCopyWhereNoneWasOfferedEndsIt) {
  const std::vector<std::byte> source(kBytes);
  const SourceSegment from{reinterpret_cast<std::uint64_t>(source.data()), source.size()};
  Half deputy;
  Responder victim(deputy.memory, deputy.given, reader_, reads_, 0);
  victim.start(&deputy.own->requests[0], &deputy.own->responses[1], &deputy.own->sides[0], &deputy.own->sides[1],
               false);
  deputy.peers->sides[1].state.pulls = 1;  // the memory is the attacker's, too
  deputy.push(write_from(kBytes), &from);
  EXPECT_EQ(victim.advance(deputy.told, kTurn).reason, "a write to copy, which was not offered");
  EXPECT_EQ(target().front(), std::byte{0x5a});
}

TEST_F(ShmResponder, SegmentsThatAreLongerThanTheWriteEndIt) {
  const SourceSegment from[] = {{0, ~std::uint64_t{0}}, {0, 11}};
  push({.kind = SlotKind::kWriteFrom, .bytes = 32, .key = granted_.key, .length = 10}, from);
  EXPECT_NE(carry_out(), "");
  EXPECT_EQ(ended(), 0u);
}

TEST_F(ShmResponder, APeerThatTookMoreThanThereWasEndsIt) {
  peers->sides[0].heard.responses.slots = 1'000'000;
  for (int i = 0; i < 100; ++i) push({.kind = SlotKind::kWriteData, .flags = kLast, .bytes = 1, .key = 1}, "x");
  EXPECT_NE(carry_out(), "");
}

// Whatever stands in the ring: nothing beside the granted bytes is written, and nothing outside of the ring is read.
TEST_F(ShmResponder, RandomSlotsDoNoHarm) {
  std::mt19937_64 random(5);
  const auto some = [&](std::initializer_list<std::uint64_t> values) {
    const std::uint64_t pick = random() % (values.size() + 1);
    return pick == values.size() ? random() : values.begin()[pick];
  };
  for (int round = 0; round < 300; ++round) {
    Half attacker;
    if (round % 2 == 0) attacker.peer_pulls();
    Responder victim(attacker.memory, attacker.given, reader_, reads_, 0);
    victim.start(&attacker.own->requests[0], &attacker.own->responses[1], &attacker.own->sides[0],
                 &attacker.own->sides[1], true);
    const auto here = reinterpret_cast<std::uint64_t>(memory_of_ours_.data());
    for (std::uint32_t i = 0; i < 64; ++i) {
      Slot slot{.stamp = 0,
                .kind = static_cast<SlotKind>(random() % 7),
                .flags = static_cast<std::uint8_t>(random() % 4),
                .bytes = static_cast<std::uint16_t>(some({0, 16, 32, 1000, kMaxPiece})),
                .word = static_cast<std::uint32_t>(some({0, 0, i})),
                .key = some({granted_.key, granted_.key}),
                .address = some({0, kBytes - 16, kBytes}),
                .length = some({0, 16, 1000, kBytes})};
      const SourceSegment from{some({here, here}), slot.length};
      std::memcpy(slot.payload, &from, sizeof from);
      attacker.out.push(slot);  // without a look at what room there is
    }
    Advance last;
    for (int turn = 0; turn < 100 && last.reason.empty() && !last.gone; ++turn) {
      last = victim.advance(attacker.told, kTurn);
      while (attacker.answers.ready()) attacker.answers.pop(attacker.answers.next());
      attacker.answers.publish();
    }
    ASSERT_TRUE(guards_hold()) << round;
  }
}

}  // namespace
}  // namespace fairlead::shm
