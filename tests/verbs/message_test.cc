// Messages and their credits: nothing is sent without a buffer at the far end, and nobody waits for ever.
#include <gtest/gtest.h>

#include <random>

#include "harness.h"

namespace fairlead::verbs::testing {
namespace {

VerbsConfig small_config(std::uint32_t send = 16, std::uint32_t receive = 4) {
  VerbsConfig config;
  config.send_depth = send;
  config.receive_depth = receive;
  config.message_bytes = 128;
  return config;
}

void post_text(Path& path, std::uint64_t id, std::string text) {
  const LocalSegment part = text_segment(text);
  const WorkRequest request = message_request(id, {&part, 1});
  ASSERT_EQ(path.post({&request, 1}), 1U);
}

TEST(Message, ArrivesInOrderAndIsCopiedByPost) {
  FakePair pair({}, small_config());
  for (int i = 0; i < 4; ++i) post_text(pair.path(), static_cast<std::uint64_t>(i), "message " + std::to_string(i));
  pair.settle();
  EXPECT_EQ(pair.far.log.messages, (std::vector<std::string>{"message 0", "message 1", "message 2", "message 3"}));
  EXPECT_EQ(pair.near.log.completions.size(), 4U);
}

TEST(Message, GathersSegments) {
  FakePair pair({}, small_config());
  std::string a = "one ", b = "two ", c = "three ", d = "four ", e = "five";
  const LocalSegment parts[] = {text_segment(a), text_segment(b), text_segment(c), text_segment(d), text_segment(e)};
  const WorkRequest request = message_request(1, parts);  // more segments than the device takes: they are copied
  EXPECT_EQ(pair.path().post({&request, 1}), 1U);
  pair.settle();
  EXPECT_EQ(pair.far.log.messages, std::vector<std::string>{"one two three four five"});
}

TEST(Message, LongestFits) {
  FakePair pair({}, small_config());
  const std::string text(pair.near.device->capabilities().max_message, 'm');
  EXPECT_EQ(text.size(), 120U);
  post_text(pair.path(), 1, text);
  pair.settle();
  EXPECT_EQ(pair.far.log.messages, std::vector<std::string>{text});
}

TEST(Message, WaitsForCreditAndIsSentWhenItComes) {
  FakePair pair({}, small_config());
  for (std::uint64_t i = 0; i < 10; ++i) post_text(pair.path(), i, std::to_string(i));
  while (pair.near.verbs->step(pair.qp())) {
  }
  pair.near.poll();
  EXPECT_EQ(pair.qp().posted.size(), 4U) << "one per buffer of the peer";
  EXPECT_EQ(pair.near.log.completions.size(), 4U);
  pair.settle();
  EXPECT_EQ(pair.near.log.completions.size(), 10U);
  EXPECT_EQ(pair.far.log.messages.size(), 10U);
}

TEST(Message, WhoLeavesTakesWhatItHadPostedOutOfTheCount) {
  FakePair pair({}, small_config());
  const datapath::Traffic& near = pair.near.endpoint->traffic();
  const datapath::Traffic& far = pair.far.endpoint->traffic();
  post_text(pair.path(), 1, "four");
  pair.settle();
  EXPECT_EQ(near.bytes_sent.get(), 4U);
  EXPECT_EQ(far.bytes_received.get(), 4U);
  EXPECT_EQ(near.requests.get() - near.ended.get(), 0U);
  post_text(pair.path(), 2, "lost");
  EXPECT_EQ(near.requests.get() - near.ended.get(), 1U);
  EXPECT_EQ(near.paths.get() - near.paths_ended.get(), 1U);
  pair.near.paths.clear();
  EXPECT_EQ(near.requests.get() - near.ended.get(), 0U);
  EXPECT_EQ(near.paths.get() - near.paths_ended.get(), 0U);
  EXPECT_EQ(near.bytes_sent.get(), 4U);
}

TEST(Message, WritesBehindAWaitingMessageKeepTheirPlace) {
  FakePair pair({}, small_config());
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const LocalSegment segment = source.segment(0, 8);
  for (std::uint64_t i = 0; i < 5; ++i) post_text(pair.path(), i, "x");
  const WorkRequest write = write_request(5, {&segment, 1}, target);
  EXPECT_EQ(pair.path().post({&write, 1}), 1U);
  EXPECT_EQ(pair.qp().posted.size(), 4U);
  pair.settle();
  ASSERT_EQ(pair.near.log.completions.size(), 6U);
  EXPECT_EQ(pair.near.log.completions.back().id, 5U);
}

TEST(Message, RepliesCarryCreditsSoThatNoCreditMessageIsNeeded) {
  FakePair pair({}, small_config());
  pair.far.log.message_hook = [&](Path& path, const std::string& text) { post_text(path, 1, "re " + text); };
  const std::size_t before = pair.far.verbs->qp().posted.size();
  for (std::uint64_t i = 0; i < 40; ++i) {
    post_text(pair.path(), i, "ping");
    pair.settle();
  }
  EXPECT_EQ(pair.near.log.messages.size(), 40U);
  EXPECT_EQ(pair.far.verbs->qp().posted.size() - before, 40U);
  EXPECT_EQ(pair.qp().posted.size(), 40U);
}

TEST(Message, OneWayTrafficIsCreditedByFewCreditMessages) {
  FakePair pair({}, small_config(16, 8));
  for (std::uint64_t i = 0; i < 200; ++i) {
    post_text(pair.path(), i, "one way");
    pair.settle();
  }
  EXPECT_EQ(pair.far.log.messages.size(), 200U);
  EXPECT_EQ(pair.far.verbs->qp().posted.size(), 200U / 5) << "five of eight owed are more than half";
}

TEST(Message, BuffersOfAPollAreRepostedWithOneDoorbell) {
  FakePair pair({}, small_config(16, 16));
  for (std::uint64_t i = 0; i < 10; ++i) post_text(pair.path(), i, "x");
  while (pair.near.verbs->step(pair.qp())) {
  }
  const std::size_t before = pair.far.verbs->qp().receive_doorbells;
  pair.far.poll();
  EXPECT_EQ(pair.far.log.messages.size(), 10U);
  EXPECT_EQ(pair.far.verbs->qp().receive_doorbells, before) << "what came is reported first";
  pair.far.poll();
  EXPECT_EQ(pair.far.verbs->qp().receive_doorbells, before + 1);
}

// Both directions, random schedules, a device that is polled seldom: no RNR (the double would record it), nothing
// lost, and the credit messages stop when the messages do.
TEST(Message, BothDirectionsUnderRandomSchedules) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    auto pick = [&](std::uint32_t low, std::uint32_t high) {
      return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
    };
    FakePair pair({}, small_config(pick(4, 11), pick(1, 6)));
    constexpr int kMessages = 100;
    int posted[2] = {0, 0};
    FakeEnd* ends[2] = {&pair.near, &pair.far};
    int idle = 0;
    for (int steps = 0; idle < 100 && steps < 200000; ++steps) {
      const unsigned who = pick(0, 1);
      FakeEnd& end = *ends[who];
      bool moved = false;
      switch (pick(0, 2)) {
        case 0: {
          if (posted[who] == kMessages) break;
          std::string text = std::to_string(posted[who]);
          const LocalSegment part = text_segment(text);
          const WorkRequest request = message_request(static_cast<std::uint64_t>(posted[who]), {&part, 1});
          moved = end.paths[0]->post({&request, 1}) == 1;
          posted[who] += moved ? 1 : 0;
          break;
        }
        case 1:
          moved = end.verbs->step(end.verbs->qp());
          break;
        default:
          moved = end.poll();
          break;
      }
      idle = moved ? 0 : idle + 1;
    }
    ASSERT_GE(idle, 100) << "never falls silent, seed " << seed;
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(posted[i], kMessages) << "seed " << seed;
      ASSERT_EQ(ends[i]->log.messages.size(), std::size_t{kMessages}) << "seed " << seed;
      ASSERT_EQ(ends[i]->log.completions.size(), std::size_t{kMessages}) << "seed " << seed;
      for (int j = 0; j < kMessages; ++j)
        ASSERT_EQ(ends[i]->log.messages[static_cast<std::size_t>(j)], std::to_string(j));
    }
  }
}

TEST(Message, MalformedOnesEndThePath) {
  const std::vector<std::vector<std::byte>> cases = {
      {},                                                    // shorter than a header
      std::vector<std::byte>(8, std::byte{0}),               // no type
      {std::byte{1}, {}, {}, std::byte{1}, {}, {}, {}, {}},  // a credit that was never taken
  };
  for (const auto& bytes : cases) {
    FakePair pair({}, small_config());
    pair.near.verbs->deliver(pair.qp(), bytes);
    std::vector<std::byte> good(8);
    good[0] = std::byte{1};
    pair.near.verbs->deliver(pair.qp(), good);
    pair.near.poll();
    ASSERT_EQ(pair.near.log.downs.size(), 1U);
    EXPECT_EQ(pair.near.log.downs[0].first, Code::kDataLoss);
    EXPECT_TRUE(pair.near.log.messages.empty()) << "after a gap nothing is in order any more";
    while (pair.near.poll()) {
    }
    EXPECT_TRUE(pair.path().drained());
  }
}

}  // namespace
}  // namespace fairlead::verbs::testing
