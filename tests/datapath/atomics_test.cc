// Atomics by message: what the target does with a word, and what becomes of those whose outcome is late, or never
// comes.
#include "datapath/flow/atomics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <memory>

#include "base/guarded.h"
#include "datapath/flow/outbox.h"
#include "tests/datapath/counting_device.h"

namespace fairlead::datapath {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kWords = 4;

class AtomicsAtTheTarget : public testing::Test {
 protected:
  AtomicsAtTheTarget() {
    EXPECT_TRUE(table->attach(device).ok());
    publish("words", std::as_writable_bytes(std::span(words)), Access::kRemoteAtomic);
    publish("others", std::as_writable_bytes(std::span(others)), Access::kRemoteReadWrite);
  }
  ~AtomicsAtTheTarget() override { table->shutdown(); }

  void publish(const char* name, std::span<std::byte> bytes, Access access) {
    auto range = table->add({.bytes = bytes, .access = Access::kRemoteReadWrite});
    auto region = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteReadWrite, nullptr);
    ASSERT_TRUE(table->publish(name, region, bytes, access, std::nullopt).ok());
  }
  std::uint64_t id_of(const char* name) const {
    std::uint64_t id = 0;
    EXPECT_TRUE(table->seen_by("").find(name, [&](const Publication& found) { id = found.id; }).ok());
    return id;
  }
  std::optional<atomics::Outcome> ask(AtomicOp op, const char* name, std::uint64_t offset, std::uint64_t value,
                                      std::uint64_t expected = 0, std::uint32_t beyond = 0) {
    std::vector<std::byte> operands;
    atomics::put_operands(operands, value, expected);
    PathMessage message;
    message.type = MessageType::kAtomic;
    message.length = static_cast<std::uint32_t>(op) + beyond;
    message.value = id_of(name);
    message.offset = offset;
    message.data = operands;
    return atomics::carry_out(message, table->seen_by(""), why);
  }
  void expect_refused(const std::optional<atomics::Outcome>& outcome) {
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->code, Code::kProtectionError);
  }

  std::array<std::uint64_t, kWords> words{10, 20, 30, 40};
  std::array<std::uint64_t, kWords> others{};
  std::string why;
  CountingDevice device;
  std::shared_ptr<RegionTable> table = std::make_shared<RegionTable>();
};

TEST_F(AtomicsAtTheTarget, AddAndSwapSayWhatTheWordHeld) {
  EXPECT_EQ(ask(AtomicOp::kFetchAdd, "words", 8, 5)->held, 20u);
  EXPECT_EQ(ask(AtomicOp::kFetchAdd, "words", 8, ~std::uint64_t{0})->held, 25u) << "wraps around";
  EXPECT_EQ(ask(AtomicOp::kCompareSwap, "words", 16, 31, 30)->held, 30u);
  EXPECT_EQ(ask(AtomicOp::kCompareSwap, "words", 24, 1, 30)->held, 40u);
  EXPECT_EQ(words, (std::array<std::uint64_t, kWords>{10, 24, 31, 40}));
}

TEST_F(AtomicsAtTheTarget, NothingElseIsTouched) {
  expect_refused(ask(AtomicOp::kFetchAdd, "others", 0, 1));
  expect_refused(ask(AtomicOp::kFetchAdd, "words", 4, 1));
  expect_refused(ask(AtomicOp::kFetchAdd, "words", kWords * 8 - 4, 1));
  expect_refused(ask(AtomicOp::kFetchAdd, "words", kWords * 8, 1));
  expect_refused(ask(AtomicOp::kFetchAdd, "words", ~std::uint64_t{7}, 1));
  EXPECT_EQ(words, (std::array<std::uint64_t, kWords>{10, 20, 30, 40}));
  EXPECT_EQ(others, (std::array<std::uint64_t, kWords>{}));
}

TEST_F(AtomicsAtTheTarget, MemoryThatIsGoneIsRefused) {
  install_fault_handlers();
  void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  publish("gone", {static_cast<std::byte*>(page), 4096}, Access::kRemoteAtomic);
  EXPECT_EQ(ask(AtomicOp::kFetchAdd, "gone", 0, 1)->code, Code::kOk);
  ::munmap(page, 4096);
  expect_refused(ask(AtomicOp::kFetchAdd, "gone", 0, 1));
}

TEST_F(AtomicsAtTheTarget, WhatIsNoAtomicEndsTheSession) {
  for (const AtomicOp none : {AtomicOp::kNone, static_cast<AtomicOp>(3)}) {
    EXPECT_FALSE(ask(none, "words", 0, 1));
    EXPECT_THAT(why, HasSubstr("kind"));
  }
  EXPECT_FALSE(ask(AtomicOp::kFetchAdd, "words", 0, 1, 0, 256)) << "not cut down to what is known";
  PathMessage short_one;
  short_one.type = MessageType::kAtomic;
  short_one.length = 1;
  EXPECT_FALSE(atomics::carry_out(short_one, table->seen_by(""), why));
  EXPECT_THAT(why, HasSubstr("0 bytes"));
}

/// An outbox with a path of 64 requests, the words of a peer, and what ended.
class AtomicsOfOurs : public testing::Test, protected OutboxUser {
 protected:
  AtomicsOfOurs() {
    can.max_message = 4096;
    can.max_segments = 4;
    can.max_outstanding = 64;
    remote.name = "words";
    remote.size = kWords * 8;
    remote.access = Access::kRemoteAtomic;
    outbox.set_limits({.window = {.events = 10'000}, .max_message = 1000});
  }
  ~AtomicsOfOurs() override { outbox.end_all(Code::kCancelled, "over"); }

  TransferImpl& add(std::uint64_t amount = 1) {
    TransferImpl& made = *made_.emplace_back(std::make_unique<TransferImpl>());
    made.atomic = AtomicOp::kFetchAdd;
    made.has_message = true;
    made.own.ops.push_back({nullptr, 0, nullptr, &remote, 8});
    atomics::put_operands(made.message, amount, 0);
    outbox.add(made);
    return made;
  }
  /// What a batch says: the decoded headers.
  std::vector<PathMessage> post() {
    std::vector<PathMessage> said;
    const auto requests = outbox.build(way, path.room(can.max_outstanding), path.next_id());
    for (const WorkRequest& request : requests) {
      said.push_back(*decode({request.local[0].data, request.local[0].length}));
    }
    outbox.commit(requests.size(), path);
    return said;
  }
  void arrive_all() {
    while (!path.empty()) outbox.completed(path.end_oldest(), Code::kOk);
  }
  void abort_all() {
    while (!path.empty()) outbox.completed(path.end_oldest(), Code::kAborted);
  }
  bool hear(std::uint64_t ticket, std::uint64_t held, Code code = Code::kOk) {
    PathMessage outcome;
    outcome.type = MessageType::kOutcome;
    outcome.code = code;
    outcome.total = ticket;
    outcome.value = held;
    return outbox.take_outcome(outcome, why);
  }
  void transfer_ended(TransferImpl& one, Code code) override { ended.push_back({&one, code, one.reason}); }
  [[nodiscard]] std::string who() const override { return "peer"; }

  struct Ended {
    TransferImpl* transfer;
    Code code;
    std::string reason;
  };
  std::vector<Ended> ended;
  Capabilities can;
  Outbox::Way way{.can = &can};
  InFlight path;
  Outbox outbox{*this, 1024};
  std::string why;
  RemoteRegionImpl remote;
  std::vector<std::unique_ptr<TransferImpl>> made_;
};

TEST_F(AtomicsOfOurs, EndWithTheOutcomeAndTheMessageWhicheverIsLast) {
  TransferImpl &first = add(), &second = add();
  const auto said = post();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].type, MessageType::kAtomic);
  EXPECT_EQ(said[0].offset, 8u);
  ASSERT_TRUE(hear(said[0].total, 70));
  EXPECT_TRUE(ended.empty()) << "the path has it still";
  arrive_all();
  ASSERT_EQ(ended.size(), 1u) << "the second has no outcome";
  ASSERT_TRUE(hear(said[1].total, 71));
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(first.value, 70u);
  EXPECT_EQ(second.value, 71u);
  EXPECT_EQ(ended[1].code, Code::kOk);
}

TEST_F(AtomicsOfOurs, SayTheSameTicketAgainOnTheNextPath) {
  add();
  add();
  const auto said = post();
  abort_all();
  ASSERT_TRUE(outbox.apply_received(1, why)) << "the first one arrived";
  const auto again = post();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].total, said[1].total);
  EXPECT_EQ(again[0].sequence, said[1].sequence);
  arrive_all();
  EXPECT_TRUE(hear(said[0].total, 1));
  EXPECT_TRUE(hear(said[1].total, 2));
  EXPECT_EQ(ended.size(), 2u);
}

TEST_F(AtomicsOfOurs, AreCancelledOnlyWhileThePeerCannotHaveThem) {
  TransferImpl& waiting = add();
  outbox.end_early(waiting, {});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kCancelled);
  TransferImpl& posted = add();
  const auto said = post();
  ASSERT_EQ(said.size(), 1u);
  arrive_all();
  outbox.end_early(posted, {});
  EXPECT_EQ(ended.size(), 1u);
  EXPECT_FALSE(outbox.stuck()) << "no path need be given up for it";
  ASSERT_TRUE(hear(said[0].total, 5));
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[1].code, Code::kOk) << "it was carried out";
  // Cancelled, and then the path was lost with it: the fence tells.
  TransferImpl& lost = add();
  (void)post();
  outbox.end_early(lost, {});
  abort_all();
  EXPECT_EQ(ended.size(), 2u);
  ASSERT_TRUE(outbox.apply_received(1, why)) << why;
  ASSERT_EQ(ended.size(), 3u);
  EXPECT_EQ(ended[2].code, Code::kCancelled);
  EXPECT_TRUE(post().empty());
}

TEST_F(AtomicsOfOurs, EndTrulyWithTheSession) {
  for (int i = 0; i < 4; ++i) add();
  const auto said = post();
  ASSERT_EQ(said.size(), 4u);
  outbox.completed(path.end_oldest(), Code::kOk);
  outbox.completed(path.end_oldest(), Code::kOk);
  ASSERT_TRUE(hear(said[0].total, 9));
  ASSERT_TRUE(hear(said[3].total, 9)) << "before its message was reported";
  add();
  abort_all();
  outbox.end_all(Code::kPeerDied, "the peer died");
  std::vector<Code> codes;
  for (const Ended& one : ended) codes.push_back(one.code);
  EXPECT_THAT(
      codes, testing::ElementsAre(Code::kOk, Code::kOutcomeUnknown, Code::kOutcomeUnknown, Code::kOk, Code::kPeerDied));
}

TEST_F(AtomicsOfOurs, WaitForOutcomesOnceManyAreUnderWay) {
  can.max_outstanding = 1000;
  for (std::size_t i = 0; i < atomics::Awaited::kMost + 10; ++i) add();
  std::vector<std::uint64_t> tickets;
  for (auto said = post(); !said.empty(); said = post()) {
    for (const PathMessage& message : said) tickets.push_back(message.total);
  }
  arrive_all();
  ASSERT_EQ(tickets.size(), atomics::Awaited::kMost);
  EXPECT_TRUE(post().empty());
  ASSERT_TRUE(hear(tickets[0], 0));
  EXPECT_EQ(post().size(), 1u);
}

TEST_F(AtomicsOfOurs, ARefusedOneFailsAndSoDoThoseBehindIt) {
  add();
  TransferImpl& later = add();
  const auto said = post();
  arrive_all();
  ASSERT_TRUE(hear(said[0].total, 0, Code::kProtectionError));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].code, Code::kProtectionError);
  EXPECT_THAT(ended[0].reason, HasSubstr("words"));
  ASSERT_TRUE(hear(said[1].total, 3)) << "it was under way";
  EXPECT_EQ(later.value, 3u);
  add();
  EXPECT_TRUE(post().empty());
  EXPECT_EQ(ended.back().code, Code::kProtectionError);
}

TEST_F(AtomicsOfOurs, OutcomesNobodyWaitsForEndTheSession) {
  EXPECT_FALSE(hear(1, 0));
  add();
  EXPECT_FALSE(hear(1, 0)) << "not posted yet";
  const auto said = post();
  EXPECT_FALSE(hear(said[0].total + 1, 0));
  EXPECT_FALSE(hear(said[0].total + atomics::Awaited::kMost, 0));
  EXPECT_FALSE(hear(said[0].total, 0, Code::kCancelled)) << "no such outcome";
  EXPECT_THAT(why, HasSubstr("cancelled"));
  EXPECT_TRUE(hear(said[0].total, 0));
  EXPECT_FALSE(hear(said[0].total, 0)) << "once";
  EXPECT_THAT(why, HasSubstr("waits for none"));
  arrive_all();
}

TEST_F(AtomicsOfOurs, NeitherTheyNorOutcomesTakeCredits) {
  outbox.set_limits({.window = {.events = 1}, .max_message = 1000});
  const auto send = [this] {
    TransferImpl& made = *made_.emplace_back(std::make_unique<TransferImpl>());
    made.is_send = made.has_message = true;
    outbox.add(made);
  };
  for (std::uint64_t ticket = 1; ticket <= 50; ++ticket) ASSERT_TRUE(outbox.say(ticket, {Code::kOk, 4}, 64));
  for (int i = 0; i < 10; ++i) add();
  send();
  send();
  const auto said = post();
  ASSERT_EQ(said.size(), 61u) << "all but the second message, which has no credit";
  EXPECT_EQ(said[0].type, MessageType::kOutcome);
  EXPECT_EQ(said[60].type, MessageType::kFragment);
  arrive_all();
  ASSERT_TRUE(outbox.say(51, {}, 64));
  EXPECT_EQ(post().size(), 1u) << "outcomes overtake what waits";
  outbox.consumed(said[60].sequence);
  EXPECT_EQ(post().size(), 1u);
  abort_all();
  ASSERT_TRUE(outbox.apply_received(61, why));
  EXPECT_EQ(post().size(), 2u) << "the outcome and the message, again";
  arrive_all();
  EXPECT_EQ(outbox.own(), 10u) << "the atomics";
}

TEST_F(AtomicsOfOurs, APeerThatTakesNoOutcomesIsNotKeptOnForEver) {
  std::size_t held = 0;
  while (outbox.say(held, {}, 64) && held < 100'000) ++held;
  EXPECT_EQ(held, atomics::Awaited::kMost + 64);
}

}  // namespace
}  // namespace fairlead::datapath
