#include "datapath/lane/event_queues.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "datapath/lane/lane.h"
#include "tests/readable.h"

namespace fairlead::datapath {
namespace {

class Source final : public EventSource {
 public:
  [[nodiscard]] bool events_over() const noexcept override { return over; }
  bool over = false;
};

Event numbered(std::uint64_t number) {
  Event made;
  made.kind = Event::Kind::kNotification;
  made.value = number;
  return made;
}

Event last_of_all() {
  Event made;
  made.kind = Event::Kind::kClosed;
  return made;
}

class Done final : public Submission {
 public:
  void run() noexcept override {}
};

class EventQueuesTest : public testing::Test {
 protected:
  EventQueuesTest() { EXPECT_TRUE(queues.valid()); }

  EventQueues queues;
  std::shared_ptr<Source> one = std::make_shared<Source>(), other = std::make_shared<Source>();
  Event event;
  Taken taken;
};

TEST_F(EventQueuesTest, EventsOfASessionComeInOrderAndAreCounted) {
  for (std::uint64_t i = 1; i <= 100; ++i) queues.push_event(*one, numbered(i));
  EXPECT_EQ(one->inbox.pending(), 100u);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(queues.take_event(one->inbox, event, taken));
    EXPECT_EQ(event.value, i);
    EXPECT_EQ(taken.events, i);
  }
  EXPECT_FALSE(queues.take_event(one->inbox, event, taken));
  EXPECT_EQ(one->inbox.pending(), 0u);
}

TEST_F(EventQueuesTest, CommandsAreTakenFirstButAfterTheBeginning) {
  const auto push = [this](std::uint64_t number, TrafficClass traffic, Event::Kind kind) {
    Event made = numbered(number);
    made.traffic = traffic;
    made.kind = kind;
    queues.push_event(*one, std::move(made));
  };
  using Kind = Event::Kind;
  push(1, TrafficClass::kBulk, Kind::kConnected);
  push(2, TrafficClass::kBulk, Kind::kNotification);
  push(3, TrafficClass::kCommands, Kind::kMessage);
  push(4, TrafficClass::kBulk, Kind::kMessage);
  push(5, TrafficClass::kCommands, Kind::kPathChanged);
  push(6, TrafficClass::kBulk, Kind::kClosed);
  EXPECT_EQ(one->inbox.pending(), 6u);
  EXPECT_EQ(one->inbox.waiting(TrafficClass::kBulk), 2u) << "what the peer sent";
  EXPECT_EQ(one->inbox.waiting(TrafficClass::kCommands), 1u);
  std::vector<std::uint64_t> values;
  while (queues.take_event(one->inbox, event, taken)) values.push_back(event.value);
  EXPECT_EQ(values, (std::vector<std::uint64_t>{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(one->inbox.pending(), 0u);
  EXPECT_EQ(one->inbox.waiting(TrafficClass::kBulk), 0u);
  EXPECT_EQ(one->inbox.waiting(TrafficClass::kCommands), 0u);
}

// No window bounds them: a path may come and go as often as the peer pleases.
TEST_F(EventQueuesTest, ChangesOfPathsThatNobodyTakesAreBounded) {
  const auto push = [this](std::uint64_t number, Event::Kind kind) {
    Event made = numbered(number);
    made.kind = kind;
    queues.push_event(*one, std::move(made));
  };
  for (std::uint64_t i = 1; i <= 1000; ++i) push(i, Event::Kind::kPathChanged);
  push(1001, Event::Kind::kNotification);
  for (std::uint64_t i = 1002; i <= 2000; ++i) push(i, Event::Kind::kPathChanged);
  EXPECT_EQ(one->inbox.pending(), Inbox::kMostChanges + 2);
  std::vector<std::uint64_t> values;
  while (queues.take_event(one->inbox, event, taken)) values.push_back(event.value);
  ASSERT_EQ(values.size(), Inbox::kMostChanges + 2);
  const std::vector<std::uint64_t> last(values.end() - 3, values.end());
  EXPECT_EQ(last, (std::vector<std::uint64_t>{1000, 1001, 2000})) << "the last of each, in order";
  push(2001, Event::Kind::kPathChanged);
  push(2002, Event::Kind::kPathChanged);
  EXPECT_EQ(one->inbox.pending(), 2u) << "there is room again";
}

TEST_F(EventQueuesTest, SessionsTakeTurns) {
  for (std::uint64_t i = 0; i < 3; ++i) queues.push_event(*one, numbered(10 + i));
  queues.push_event(*other, numbered(20));
  std::vector<std::uint64_t> values;
  while (queues.take_any_event(event, taken)) values.push_back(event.value);
  EXPECT_EQ(values, (std::vector<std::uint64_t>{10, 20, 11, 12})) << "the one with many does not shut the other out";
}

TEST_F(EventQueuesTest, WhatTheSessionsOwnerTookIsNotFoundAgain) {
  const int fd = queues.fd();
  queues.push_event(*one, numbered(1));
  EXPECT_TRUE(readable(fd));
  ASSERT_TRUE(queues.take_event(one->inbox, event, taken));
  EXPECT_FALSE(readable(fd)) << "who waits for it would spin";
  EXPECT_FALSE(queues.any_events());
  EXPECT_EQ(queues.take_any_event(event, taken), nullptr);
  queues.push_event(*one, numbered(2));
  EXPECT_EQ(queues.take_any_event(event, taken), one);
  EXPECT_EQ(event.value, 2u);
  EXPECT_EQ(taken.events, 2u);
}

TEST_F(EventQueuesTest, TheDescriptorIsReadableWhileAnythingWaits) {
  queues.push_event(*one, numbered(1));
  const int fd = queues.fd();
  EXPECT_TRUE(readable(fd)) << "what came before anybody asked for it counts";
  ASSERT_NE(queues.take_any_event(event, taken), nullptr);
  EXPECT_FALSE(readable(fd));
  queues.push_accepted(other);
  Done done;
  ASSERT_TRUE(queues.push_completed(done));
  ASSERT_EQ(queues.take_accepted(), other);
  EXPECT_TRUE(readable(fd)) << "a transfer still waits";
  ASSERT_EQ(queues.take_completed(), &done);
  EXPECT_FALSE(readable(fd));
  EXPECT_EQ(queues.take_accepted(), nullptr);
  EXPECT_EQ(queues.take_completed(), nullptr);
}

TEST_F(EventQueuesTest, ClearingDropsAllButSessionsOwnEvents) {
  const int fd = queues.fd();
  Done done[3];
  for (Done& each : done) ASSERT_TRUE(queues.push_completed(each));
  queues.push_accepted(other);
  queues.push_event(*one, numbered(1));
  std::vector<Submission*> dropped;
  queues.clear([&](Submission& each) { dropped.push_back(&each); });
  EXPECT_EQ(dropped, (std::vector<Submission*>{&done[0], &done[1], &done[2]}));
  EXPECT_FALSE(readable(fd));
  EXPECT_EQ(other.use_count(), 1) << "the queue kept it no longer";
  EXPECT_EQ(queues.take_any_event(event, taken), nullptr);
  EXPECT_TRUE(queues.take_event(one->inbox, event, taken)) << "its owner still finds it";
  queues.push_event(*one, numbered(2));
  EXPECT_EQ(queues.take_any_event(event, taken), one) << "and is listed anew";
}

// It would keep the session, and that the engine, whose the queues are.
TEST_F(EventQueuesTest, WhatComesAfterTheEndIsNotKept) {
  const int fd = queues.fd();
  Done before, after;
  ASSERT_TRUE(queues.push_completed(before));
  std::vector<Submission*> dropped;
  queues.end([&](Submission& each) { dropped.push_back(&each); });
  EXPECT_EQ(dropped, (std::vector<Submission*>{&before}));
  EXPECT_FALSE(queues.push_completed(after));
  queues.push_accepted(other);
  queues.push_event(*one, numbered(1));
  EXPECT_FALSE(readable(fd));
  EXPECT_EQ(queues.take_completed(), nullptr);
  EXPECT_EQ(other.use_count(), 1);
  EXPECT_EQ(one.use_count(), 1);
  EXPECT_EQ(queues.take_any_event(event, taken), nullptr);
  EXPECT_TRUE(queues.take_event(one->inbox, event, taken)) << "its owner still finds it";
}

// Peers that come and go while the application looks for none.
TEST_F(EventQueuesTest, SessionsThatEndedAndWereNeverTakenGiveWay) {
  const int fd = queues.fd();
  queues.push_event(*one, numbered(0));
  queues.push_accepted(one);
  one->over = true;
  std::vector<std::weak_ptr<Source>> came;
  for (std::size_t i = 1; i <= 3 * EventQueues::kMostAccepted; ++i) {
    const auto each = std::make_shared<Source>();
    came.push_back(each);
    queues.push_event(*each, numbered(i));
    queues.push_accepted(each);
    each->over = i != 6;
  }
  std::size_t left = 0;
  for (const auto& each : came) left += each.expired() ? 0 : 1;
  EXPECT_EQ(left, EventQueues::kMostAccepted);
  EXPECT_FALSE(came[5].expired()) << "it lives";
  EXPECT_TRUE(came[6].expired()) << "of the others the oldest went";
  EXPECT_EQ(one.use_count(), 1);
  EXPECT_TRUE(queues.take_event(one->inbox, event, taken)) << "who has it finds what it left";
  EXPECT_EQ(queues.take_accepted(), came[5].lock()) << "and the rest are in their order";
  EXPECT_EQ(queues.take_accepted(), came[2 * EventQueues::kMostAccepted + 1].lock());
  while (queues.take_accepted() != nullptr) {
  }
  std::vector<std::uint64_t> values;
  while (queues.take_any_event(event, taken) != nullptr) values.push_back(event.value);
  ASSERT_EQ(values.size(), EventQueues::kMostAccepted) << "with their events";
  EXPECT_EQ(values.front(), 6u);
  EXPECT_FALSE(readable(fd));
}

TEST_F(EventQueuesTest, WhoAsksForEventsLosesNoneOfThem) {
  EXPECT_EQ(queues.take_any_event(event, taken), nullptr);
  constexpr std::size_t kCame = 2 * EventQueues::kMostAccepted;
  for (std::size_t i = 0; i < kCame; ++i) {
    const auto each = std::make_shared<Source>();
    queues.push_event(*each, numbered(i));
    queues.push_accepted(each);
    each->over = true;
  }
  for (std::size_t i = 0; i < kCame; ++i) {
    ASSERT_NE(queues.take_any_event(event, taken), nullptr);
    EXPECT_EQ(event.value, i);
  }
  std::size_t accepted = 0;
  while (queues.take_accepted() != nullptr) ++accepted;
  EXPECT_EQ(accepted, EventQueues::kMostAccepted);
}

// Nobody has a handle of them, and nobody looks.
TEST_F(EventQueuesTest, SessionsThatEndedGiveWayWhereNobodyTakesEvents) {
  constexpr std::size_t kCame = 3 * EventQueues::kMostEnded;
  queues.push_event(*one, numbered(0));  // lives
  queues.push_event(*other, numbered(1));
  queues.push_event(*other, last_of_all());
  std::vector<std::weak_ptr<Source>> came;
  for (std::size_t i = 0; i < kCame; ++i) {
    const auto each = std::make_shared<Source>();
    came.push_back(each);
    queues.push_event(*each, numbered(i));
    queues.push_event(*each, last_of_all());
  }
  EXPECT_TRUE(came[kCame - EventQueues::kMostEnded - 1].expired()) << "the oldest go first";
  std::size_t left = 0;
  for (const auto& each : came) left += each.expired() ? 0 : 1;
  EXPECT_EQ(left, EventQueues::kMostEnded);
  EXPECT_EQ(other.use_count(), 1);
  EXPECT_TRUE(queues.take_event(other->inbox, event, taken)) << "who has it finds what it left";
  EXPECT_EQ(event.value, 1u);
  EXPECT_EQ(one.use_count(), 2) << "what lives is kept";
  std::size_t events = 0;
  while (queues.take_any_event(event, taken) != nullptr) ++events;
  EXPECT_EQ(events, 1 + 2 * EventQueues::kMostEnded);
  // From here on somebody asks.
  for (std::size_t i = 0; i < kCame; ++i) {
    const auto each = std::make_shared<Source>();
    queues.push_event(*each, last_of_all());
  }
  events = 0;
  while (queues.take_any_event(event, taken) != nullptr) ++events;
  EXPECT_EQ(events, kCame);
}

TEST_F(EventQueuesTest, WhatNobodyIsToldOfIsForgotten) {
  const int fd = queues.fd();
  const std::weak_ptr<Source> watch = other;
  queues.push_event(*other, numbered(1));
  Event command = numbered(2);
  command.traffic = TrafficClass::kCommands;
  queues.push_event(*other, std::move(command));
  EXPECT_TRUE(readable(fd));
  queues.forget(*other);
  EXPECT_FALSE(readable(fd));
  EXPECT_EQ(other->inbox.pending(), 0u);
  EXPECT_EQ(other->inbox.waiting(TrafficClass::kCommands), 0u);
  EXPECT_FALSE(queues.take_event(other->inbox, event, taken));
  other.reset();
  EXPECT_TRUE(watch.expired());
  queues.forget(*one);  // of which there was nothing
  EXPECT_EQ(queues.take_any_event(event, taken), nullptr);
}

TEST_F(EventQueuesTest, SessionsThatLiveDoNotGiveWay) {
  for (std::size_t i = 0; i < EventQueues::kMostAccepted + 10; ++i) queues.push_accepted(std::make_shared<Source>());
  std::size_t taken_ones = 0;
  while (queues.take_accepted() != nullptr) ++taken_ones;
  EXPECT_EQ(taken_ones, EventQueues::kMostAccepted + 10);
}

TEST_F(EventQueuesTest, AnOwnerThatTakesTheOldestLeavesTheRestToOthers) {
  const int fd = queues.fd();
  queues.push_event(*one, numbered(1));
  queues.push_event(*one, numbered(2));
  ASSERT_TRUE(queues.take_event(one->inbox, event, taken));
  EXPECT_TRUE(readable(fd));
  EXPECT_EQ(queues.take_any_event(event, taken), one);
  EXPECT_EQ(event.value, 2u);
  EXPECT_FALSE(readable(fd));
}

// Once, and not for each event: a session that lives is kept in any case.
TEST_F(EventQueuesTest, ASessionIsKeptFromItsFirstEventToItsLast) {
  queues.push_event(*other, numbered(1));
  const std::weak_ptr<Source> watch = other;
  other.reset();
  EXPECT_NE(queues.take_any_event(event, taken), nullptr);
  ASSERT_FALSE(watch.expired());
  queues.push_event(*watch.lock(), last_of_all());
  EXPECT_NE(queues.take_any_event(event, taken), nullptr);
  EXPECT_TRUE(watch.expired()) << "that was its last";
}

TEST_F(EventQueuesTest, ItsOwnHandleMayTakeTheLast) {
  queues.push_event(*one, numbered(1));
  queues.push_event(*one, last_of_all());
  ASSERT_TRUE(queues.take_event(one->inbox, event, taken));
  EXPECT_EQ(one.use_count(), 2);
  ASSERT_TRUE(queues.take_event(one->inbox, event, taken));
  EXPECT_EQ(one.use_count(), 1);
}

TEST_F(EventQueuesTest, NoSessionIsKeptBehindTheEnd) {
  queues.push_event(*one, numbered(1));
  queues.push_event(*other, numbered(1));
  ASSERT_TRUE(queues.take_event(one->inbox, event, taken));
  EXPECT_EQ(one.use_count(), 2) << "its last is to come";
  queues.end([](Submission&) {});
  EXPECT_EQ(one.use_count(), 1);
  EXPECT_EQ(other.use_count(), 1);
  queues.push_event(*one, last_of_all());
  EXPECT_EQ(one.use_count(), 1);
}

// Pushed by one thread for each session, taken by two that take any and by one that takes the first session's own.
TEST_F(EventQueuesTest, ManyThreadsLoseAndDoubleNothing) {
  constexpr std::uint64_t kEach = 20'000;
  std::atomic<std::uint64_t> sum{0}, count{0};
  const auto note = [&](const Event& got) {
    sum += got.value;
    ++count;
  };
  std::vector<std::thread> threads;
  for (const auto& source : {one, other}) {
    threads.emplace_back([&, source] {
      for (std::uint64_t i = 1; i <= kEach; ++i) queues.push_event(*source, numbered(i));
    });
  }
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      Event got;
      Taken nth;
      while (count < 2 * kEach) {
        if (queues.take_any_event(got, nth) != nullptr) note(got);
      }
    });
  }
  threads.emplace_back([&] {
    Event got;
    Taken nth;
    while (count < 2 * kEach) {
      if (queues.take_event(one->inbox, got, nth)) note(got);
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 2 * kEach);
  EXPECT_EQ(sum, kEach * (kEach + 1));
  EXPECT_EQ(one->inbox.pending() + other->inbox.pending(), 0u);
}

}  // namespace
}  // namespace fairlead::datapath
