// How paths die: the culprit has its own code, the innocents are aborted, everything completes exactly once.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>

#include "harness.h"

namespace fairlead::verbs::testing {
namespace {

using Completions = std::vector<EventLog::Completion>;

VerbsConfig small_config() {
  VerbsConfig config;
  config.send_depth = 16;
  config.receive_depth = 8;
  config.message_bytes = 128;
  return config;
}

void drain(FakeEnd& end) {
  for (int i = 0; i < 100 && end.poll(); ++i) {
  }
}

struct Writes {
  explicit Writes(FakePair& pair, std::size_t count = 5)
      : source(*pair.near.device, 64), target(*pair.far.device, 64), segment(source.segment(0, 8)) {
    for (std::size_t i = 0; i < count; ++i) list.push_back(write_request(i, {&segment, 1}, target));
  }
  Region source, target;
  LocalSegment segment;
  std::vector<WorkRequest> list;
};

TEST(Failure, CulpritAndInnocents) {
  FakePair pair({}, small_config());
  Writes writes(pair);
  writes.list[2].remote_key = 0xdead;
  EXPECT_EQ(pair.path().post(writes.list), 5U);
  pair.settle();
  EXPECT_EQ(
      pair.near.log.completions,
      (Completions{
          {0, Code::kOk}, {1, Code::kOk}, {2, Code::kProtectionError}, {3, Code::kAborted}, {4, Code::kAborted}}));
  ASSERT_EQ(pair.near.log.downs.size(), 1U);
  EXPECT_EQ(pair.near.log.downs[0].first, Code::kProtectionError);
  EXPECT_NE(pair.near.log.downs[0].second.find("remote access error"), std::string::npos);
  EXPECT_TRUE(pair.path().drained());
  EXPECT_EQ(pair.path().post(writes.list), 0U);
}

TEST(Failure, TheTargetOfAViolationLearnsWhy) {
  FakePair pair({}, small_config());
  Writes writes(pair, 1);
  writes.list[0].remote_key = 0xdead;
  EXPECT_EQ(pair.path().post(writes.list), 1U);
  pair.settle();
  ASSERT_EQ(pair.far.log.downs.size(), 1U);
  EXPECT_EQ(pair.far.log.downs[0].first, Code::kProtectionError);
  EXPECT_NE(pair.far.log.downs[0].second.find("violated the protection of our memory"), std::string::npos);
  EXPECT_TRUE(pair.far.paths[0]->drained());
}

TEST(Failure, StatusesMapToCodes) {
  const std::pair<ibv_wc_status, Code> cases[] = {
      {IBV_WC_REM_ACCESS_ERR, Code::kProtectionError},  {IBV_WC_REM_OP_ERR, Code::kProtectionError},
      {IBV_WC_RETRY_EXC_ERR, Code::kUnavailable},       {IBV_WC_RNR_RETRY_EXC_ERR, Code::kUnavailable},
      {IBV_WC_LOC_PROT_ERR, Code::kInvalidArgument},    {IBV_WC_LOC_LEN_ERR, Code::kInvalidArgument},
      {IBV_WC_REM_INV_REQ_ERR, Code::kInvalidArgument}, {IBV_WC_LOC_QP_OP_ERR, Code::kInternal},
      {IBV_WC_FATAL_ERR, Code::kUnavailable},           {IBV_WC_BAD_RESP_ERR, Code::kUnavailable}};
  for (const auto& [status, code] : cases) {
    FakePair pair({}, small_config());
    Writes writes(pair, 3);
    EXPECT_EQ(pair.path().post(writes.list), 3U);
    pair.near.verbs->fail(pair.qp(), status);
    drain(pair.near);
    EXPECT_EQ(pair.near.log.completions, (Completions{{0, code}, {1, Code::kAborted}, {2, Code::kAborted}}));
    ASSERT_EQ(pair.near.log.downs.size(), 1U);
    EXPECT_EQ(pair.near.log.downs[0].first, code);
    EXPECT_GT(pair.near.log.downs[0].second.size(), 20U);
    EXPECT_TRUE(pair.path().drained());
  }
}

TEST(Failure, AFailedPieceFailsItsRequest) {
  RecordingVerbs::Features features;
  features.max_msg_sz = 128;
  FakePair pair(features, small_config());
  Region source(*pair.near.device, 1000), target(*pair.far.device, 1000);
  const LocalSegment large = source.segment(0, 1000), small = source.segment(0, 8);
  const std::array list = {write_request(1, {&small, 1}, target), write_request(2, {&large, 1}, target),
                           write_request(3, {&small, 1}, target)};
  EXPECT_EQ(pair.path().post(list), 3U);
  for (int i = 0; i < 4; ++i) pair.near.verbs->step(pair.qp());
  pair.near.verbs->fail(pair.qp(), IBV_WC_RETRY_EXC_ERR);
  drain(pair.near);
  EXPECT_EQ(pair.near.log.completions, (Completions{{1, Code::kOk}, {2, Code::kUnavailable}, {3, Code::kAborted}}));
}

TEST(Failure, RequestsThatNeverReachedTheWireAreAborted) {
  RecordingVerbs::Features features;
  features.max_msg_sz = 128;
  FakePair pair(features, small_config());
  Region source(*pair.near.device, 10000), target(*pair.far.device, 10000);
  const LocalSegment large = source.segment(0, 10000), small = source.segment(0, 8);
  const std::array list = {write_request(1, {&large, 1}, target), write_request(2, {&small, 1}, target),
                           read_request(3, {&small, 1}, target)};
  EXPECT_EQ(pair.path().post(list), 3U);
  EXPECT_EQ(pair.qp().posted.size(), 16U);
  pair.near.verbs->fail(pair.qp(), IBV_WC_REM_ACCESS_ERR);
  drain(pair.near);
  EXPECT_EQ(pair.near.log.completions,
            (Completions{{1, Code::kProtectionError}, {2, Code::kAborted}, {3, Code::kAborted}}));
  EXPECT_TRUE(pair.path().drained());
}

TEST(Failure, ACreditMessageBlamesNobody) {
  FakePair pair({}, small_config());
  Writes writes(pair, 2);
  pair.far.log.message_hook = {};
  std::string text = "x";
  const LocalSegment part = text_segment(text);
  for (std::uint64_t i = 0; i < 6; ++i) {
    const WorkRequest request = message_request(i, {&part, 1});
    EXPECT_EQ(pair.path().post({&request, 1}), 1U);
  }
  while (pair.near.verbs->step(pair.qp())) {
  }
  pair.far.poll();
  pair.far.poll();  // takes the messages, then returns the credits
  ASSERT_EQ(pair.far.verbs->qp().sends.size(), 1U) << "the credit message";
  const LocalSegment empty{};
  const WorkRequest write{.id = 9, .kind = OpKind::kWrite, .local = {&empty, 1}};
  EXPECT_EQ(pair.far.paths[0]->post({&write, 1}), 1U);
  pair.far.verbs->fail(pair.far.verbs->qp(), IBV_WC_RETRY_EXC_ERR);
  drain(pair.far);
  EXPECT_EQ(pair.far.log.completions, (Completions{{9, Code::kAborted}}));
  ASSERT_EQ(pair.far.log.downs.size(), 1U);
  EXPECT_EQ(pair.far.log.downs[0].first, Code::kUnavailable);
}

TEST(Failure, MessagesThatArrivedBeforeAreStillDelivered) {
  FakePair pair({}, small_config());
  std::string text = "last words";
  const LocalSegment part = text_segment(text);
  const WorkRequest request = message_request(1, {&part, 1});
  EXPECT_EQ(pair.path().post({&request, 1}), 1U);
  while (pair.near.verbs->step(pair.qp())) {
  }
  pair.far.paths[0]->close();
  EXPECT_FALSE(pair.far.paths[0]->drained());
  drain(pair.far);
  EXPECT_EQ(pair.far.log.messages, std::vector<std::string>{"last words"});
  EXPECT_TRUE(pair.far.paths[0]->drained());
  EXPECT_TRUE(pair.far.log.downs.empty()) << "closed by its user";
}

TEST(Failure, CloseFlushesEverythingOnce) {
  FakePair pair({}, small_config());
  Writes writes(pair, 10);
  EXPECT_EQ(pair.path().post(writes.list), 10U);
  for (int i = 0; i < 3; ++i) pair.near.verbs->step(pair.qp());
  pair.path().close();
  EXPECT_EQ(pair.qp().state, IBV_QPS_ERR);
  EXPECT_TRUE(pair.near.log.completions.empty()) << "nothing is reported from within close()";
  drain(pair.near);
  ASSERT_EQ(pair.near.log.completions.size(), 10U);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(pair.near.log.completions[i].id, i);
  EXPECT_EQ(pair.near.log.completions[9].code, Code::kAborted);
  EXPECT_TRUE(pair.path().drained());
  EXPECT_TRUE(pair.near.log.downs.empty());
  pair.path().close();
  EXPECT_TRUE(pair.path().drained());
}

// As QEMU's pvrdma.
TEST(Failure, FromADeviceThatFlushesNothingTheQueuePairIsTaken) {
  RecordingVerbs::Features features;
  features.flushes = false;
  FakePair pair(features, small_config());
  Writes writes(pair, 10);
  EXPECT_EQ(pair.path().post(writes.list), 10U);
  for (int i = 0; i < 3; ++i) pair.near.verbs->step(pair.qp());
  pair.path().close();
  drain(pair.near);
  EXPECT_FALSE(pair.path().drained());
  EXPECT_NE(pair.near.endpoint->wait_timeout_us(), -1) << "somebody has to look again";
  pair.near.clock.advance(kSecond);
  drain(pair.near);
  EXPECT_FALSE(pair.path().drained()) << "it may only be slow";
  pair.near.clock.advance(kMillisecond);
  drain(pair.near);
  EXPECT_TRUE(pair.path().drained());
  ASSERT_EQ(pair.near.log.completions.size(), 10U);
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(pair.near.log.completions[i].id, i);
  EXPECT_EQ(pair.near.log.completions[9].code, Code::kAborted);
  drain(pair.near);
  EXPECT_EQ(pair.near.endpoint->wait_timeout_us(), -1);
}

TEST(Failure, CloseBeforeConnect) {
  FakeEnd end({}, small_config());
  Path& path = end.add_path(PathRole::kActive);
  EXPECT_FALSE(path.drained());
  path.close();
  drain(end);
  EXPECT_TRUE(path.drained());
  EXPECT_TRUE(end.log.downs.empty());
}

// Between the offer of a path and its answer there is a round trip, in which the device may die.
TEST(Failure, ADeviceThatDiesBeforeAPathIsConnectedIsNoCrash) {
  for (const bool answered : {false, true}) {
    FakeEnd end({}, small_config()), peer({}, small_config());
    Path& path = end.add_path(PathRole::kActive);
    const std::string theirs = peer.add_path(PathRole::kPassive).local_description();
    end.verbs->raise(IBV_EVENT_DEVICE_FATAL);
    EXPECT_FALSE(end.endpoint->arm());
    drain(end);
    if (answered) {
      EXPECT_EQ(path.connect(theirs).code(), Code::kUnavailable);
    }
    path.close();
    drain(end);
    EXPECT_TRUE(path.drained());
  }
}

TEST(Failure, APostThatTheDeviceRefusesEndsThePath) {
  FakePair pair({}, small_config());
  Writes writes(pair, 4);
  pair.near.verbs->features().post_send_errno = EINVAL;
  EXPECT_EQ(pair.path().post(writes.list), 4U);
  EXPECT_TRUE(pair.near.log.downs.empty()) << "never from within post()";
  drain(pair.near);
  EXPECT_EQ(pair.near.log.completions,
            (Completions{{0, Code::kInternal}, {1, Code::kAborted}, {2, Code::kAborted}, {3, Code::kAborted}}));
  ASSERT_EQ(pair.near.log.downs.size(), 1U);
  EXPECT_EQ(pair.near.log.downs[0].first, Code::kInternal);
  EXPECT_TRUE(pair.path().drained());
}

TEST(Failure, ADeadDeviceFlushesNothing) {
  FakePair pair({}, small_config());
  Writes writes(pair, 3);
  EXPECT_EQ(pair.path().post(writes.list), 3U);
  pair.near.verbs->raise(IBV_EVENT_DEVICE_FATAL);
  EXPECT_FALSE(pair.near.endpoint->arm());
  drain(pair.near);
  ASSERT_EQ(pair.near.log.downs.size(), 1U);
  EXPECT_EQ(pair.near.log.downs[0].first, Code::kUnavailable);
  EXPECT_EQ(pair.near.log.completions, (Completions{{0, Code::kAborted}, {1, Code::kAborted}, {2, Code::kAborted}}));
  EXPECT_TRUE(pair.path().drained());
}

TEST(Failure, DestroyedFromWithinACallback) {
  for (const char* where : {"completion", "down", "message", "ready"}) {
    FakePair pair({}, small_config());
    Writes writes(pair, 3);
    auto destroy = [&](Path& path) {
      std::erase_if(pair.near.paths, [&](const auto& own) { return own.get() == &path; });
    };
    const std::string_view kind = where;
    if (kind == "completion") pair.near.log.completion_hook = [&](Path& path, std::uint64_t, Code) { destroy(path); };
    if (kind == "down") pair.near.log.down_hook = destroy;
    if (kind == "message") pair.near.log.message_hook = [&](Path& path, const std::string&) { destroy(path); };
    if (kind == "ready") {
      pair.near.log.ready_hook = destroy;
      Path& second = pair.near.add_path(PathRole::kActive);
      connect_paths(second, pair.far.add_path(PathRole::kPassive));
    }
    EXPECT_EQ(pair.path().post(writes.list), 3U);
    if (kind == "message") {
      std::vector<std::byte> message(8);
      message[0] = std::byte{1};
      pair.near.verbs->deliver(pair.qp(), message);
      pair.near.verbs->deliver(pair.qp(), message);
    }
    if (kind == "completion" || kind == "down") pair.near.verbs->fail(pair.qp(), IBV_WC_RETRY_EXC_ERR);
    drain(pair.near);
    EXPECT_EQ(pair.near.paths.size(), kind == "ready" ? 1U : 0U) << where;
    if (kind == "completion") {
      EXPECT_EQ(pair.near.log.completions.size(), 1U);
    }
    if (kind == "message") {
      EXPECT_EQ(pair.near.log.messages.size(), 1U);
    }
  }
}

TEST(Failure, CompletionsOfADestroyedPathGoNowhere) {
  FakePair pair({}, small_config());
  Writes writes(pair, 3);
  EXPECT_EQ(pair.path().post(writes.list), 3U);
  pair.near.verbs->fail(pair.qp(), IBV_WC_RETRY_EXC_ERR);
  pair.near.paths.clear();
  Path& fresh = pair.near.add_path(PathRole::kActive);  // takes the same slot
  drain(pair.near);
  EXPECT_TRUE(pair.near.log.completions.empty());
  EXPECT_TRUE(pair.near.log.downs.empty());
  EXPECT_FALSE(fresh.drained());
}

}  // namespace
}  // namespace fairlead::verbs::testing
