// What a post looks like on the device: doorbells, signals, inline data, pieces, READ depth.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>

#include "base/guarded.h"
#include "harness.h"

namespace fairlead::verbs::testing {
namespace {

VerbsConfig depth(std::uint32_t send) {
  VerbsConfig config;
  config.send_depth = send;
  config.receive_depth = 16;
  config.message_bytes = 256;
  return config;
}

std::vector<WorkRequest> many(std::size_t count, const WorkRequest& like) {
  std::vector<WorkRequest> requests(count, like);
  for (std::size_t i = 0; i < count; ++i) requests[i].id = i;
  return requests;
}

TEST(Post, OneDoorbellPerList) {
  FakePair pair({}, depth(64));
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const LocalSegment segment = source.segment(0, 64);
  const auto list = many(40, write_request(0, {&segment, 1}, target));
  EXPECT_EQ(pair.path().post(list), 40U);
  EXPECT_EQ(pair.qp().doorbells, std::vector<std::size_t>{40});
  EXPECT_EQ(pair.path().post({list.data(), 1}), 1U);
  EXPECT_EQ(pair.qp().doorbells, (std::vector<std::size_t>{40, 1}));
  pair.settle();
  EXPECT_EQ(pair.near.log.completions.size(), 41U);
}

TEST(Post, SignalsEveryNthAndTheLast) {
  FakePair pair({}, depth(64));  // every 16th
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const LocalSegment segment = source.segment(0, 8);
  EXPECT_EQ(pair.path().post(many(40, write_request(0, {&segment, 1}, target))), 40U);
  std::vector<std::size_t> signalled;
  for (std::size_t i = 0; i < 40; ++i) {
    if (pair.qp().posted[i].signalled()) signalled.push_back(i);
  }
  EXPECT_EQ(signalled, (std::vector<std::size_t>{15, 31, 39}));
}

TEST(Post, UnsignalledOnesCompleteWithALaterSignalledOne) {
  FakePair pair({}, depth(64));
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const LocalSegment segment = source.segment(0, 8);
  EXPECT_EQ(pair.path().post(many(20, write_request(0, {&segment, 1}, target))), 20U);
  for (int i = 0; i < 15; ++i) pair.near.verbs->step(pair.qp());
  pair.near.poll();
  EXPECT_TRUE(pair.near.log.completions.empty());
  pair.near.verbs->step(pair.qp());
  pair.near.poll();
  ASSERT_EQ(pair.near.log.completions.size(), 16U);
  for (std::uint64_t i = 0; i < 16; ++i) EXPECT_EQ(pair.near.log.completions[i], (EventLog::Completion{i, Code::kOk}));
  pair.settle();
  EXPECT_EQ(pair.near.log.completions.size(), 20U);
}

TEST(Post, FullAtMaxOutstandingAndAgainAfterCompletions) {
  FakePair pair({}, depth(8));
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const LocalSegment segment = source.segment(0, 8);
  const auto list = many(20, write_request(0, {&segment, 1}, target));
  EXPECT_EQ(pair.near.device->capabilities().max_outstanding, 8U);
  EXPECT_EQ(pair.path().post(list), 8U);
  EXPECT_EQ(pair.path().post({list.data() + 8, 12}), 0U);
  pair.settle();
  EXPECT_EQ(pair.path().post({list.data() + 8, 12}), 8U);
  pair.settle();
  EXPECT_EQ(pair.near.log.completions.size(), 16U);
}

TEST(Post, NoInlineUnlessGranted) {
  FakePair pair({}, depth(8));
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const LocalSegment segment = source.segment(0, 8);
  std::string text = "hello";
  const LocalSegment text_part = text_segment(text);
  const std::array list = {write_request(1, {&segment, 1}, target), message_request(2, {&text_part, 1})};
  EXPECT_EQ(pair.path().post(list), 2U);
  for (const RecordedSend& send : pair.qp().posted) EXPECT_FALSE(send.is_inline());
}

TEST(Post, InlineUpToWhatWasGranted) {
  RecordingVerbs::Features features;
  features.max_inline = 100;  // not a power of two: asked for 64, granted 100
  FakePair pair(features, depth(8));
  Region source(*pair.near.device, 256), target(*pair.far.device, 256);
  source.fill(3);
  const std::array segments = {source.segment(0, 8), source.segment(0, 100), source.segment(0, 101)};
  const std::array parts = {source.segment(0, 60), source.segment(60, 40)};
  std::string small(92, 'a'), large(93, 'b');
  const LocalSegment small_part = text_segment(small), large_part = text_segment(large);
  const std::array list = {write_request(0, {&segments[0], 1}, target), write_request(1, {&segments[1], 1}, target),
                           write_request(2, {&segments[2], 1}, target), write_request(3, parts, target),
                           message_request(4, {&small_part, 1}),        message_request(5, {&large_part, 1})};
  EXPECT_EQ(pair.path().post(list), list.size());
  std::vector<bool> is_inline;
  for (const RecordedSend& send : pair.qp().posted) is_inline.push_back(send.is_inline());
  EXPECT_EQ(is_inline, (std::vector<bool>{true, true, false, true, true, false}));
  pair.settle();
  EXPECT_EQ(std::memcmp(source.memory.data(), target.memory.data(), 101), 0);
  EXPECT_EQ(pair.far.log.messages, (std::vector<std::string>{small, large}));
}

// One of several in a doorbell, whose memory whoever posts would fault over: the device says it, of that one.
TEST(Post, WhatIsGoneDoesNotGoInline) {
  install_fault_handlers();
  RecordingVerbs::Features features;
  features.max_inline = 100;
  FakePair pair(features, depth(8));
  Region source(*pair.near.device, 256), target(*pair.far.device, 256);
  auto* const page =
      static_cast<std::byte*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(page, MAP_FAILED);
  const auto registered = pair.near.device->register_memory({.bytes = {page, 4096}});
  ASSERT_TRUE(registered);
  ASSERT_EQ(::mprotect(page, 4096, PROT_NONE), 0);
  const std::array segments = {source.segment(0, 8), LocalSegment{page, 8, registered->local}, source.segment(8, 8),
                               source.segment(16, 101)};
  const std::array parts = {source.segment(0, 8), segments[1]};
  const std::array list = {write_request(0, {&segments[0], 1}, target), write_request(1, {&segments[1], 1}, target),
                           write_request(2, {&segments[2], 1}, target), write_request(3, {&segments[3], 1}, target),
                           write_request(4, parts, target)};
  EXPECT_EQ(pair.path().post(list), list.size());
  std::vector<bool> is_inline;
  for (const RecordedSend& send : pair.qp().posted) is_inline.push_back(send.is_inline());
  EXPECT_EQ(is_inline, (std::vector<bool>{true, false, true, false, false}));
  ASSERT_EQ(::mprotect(page, 4096, PROT_READ | PROT_WRITE), 0);  // the device that records them copies all of them
  pair.settle();
  EXPECT_EQ(pair.near.log.completions.size(), list.size());
  pair.near.device->deregister(*registered);
  ::munmap(page, 4096);
}

TEST(Post, ReadsAreNeverInline) {
  RecordingVerbs::Features features;
  features.max_inline = 256;
  FakePair pair(features, depth(8));
  Region local(*pair.near.device, 64), target(*pair.far.device, 64);
  target.fill(9);
  const LocalSegment segment = local.segment(0, 8);
  const WorkRequest request = read_request(1, {&segment, 1}, target, 8);
  EXPECT_EQ(pair.path().post({&request, 1}), 1U);
  EXPECT_FALSE(pair.qp().posted[0].is_inline());
  pair.settle();
  EXPECT_EQ(std::memcmp(local.memory.data(), target.memory.data() + 8, 8), 0);
}

TEST(Post, SplitsAtMaxMsgSize) {
  RecordingVerbs::Features features;
  features.max_msg_sz = 1000;
  FakePair pair(features, depth(8));
  Region source(*pair.near.device, 2500), target(*pair.far.device, 2600);
  source.fill(1);
  const std::array segments = {source.segment(0, 1500), source.segment(1500, 1000)};
  const WorkRequest request = write_request(7, segments, target, 100);
  EXPECT_EQ(pair.path().post({&request, 1}), 1U);
  std::vector<std::uint64_t> sizes;
  for (const RecordedSend& send : pair.qp().posted) sizes.push_back(send.bytes());
  EXPECT_EQ(sizes, (std::vector<std::uint64_t>{1000, 1000, 500}));
  EXPECT_EQ(pair.qp().doorbells.size(), 1U);
  pair.settle();
  EXPECT_EQ(pair.near.log.completions, (std::vector<EventLog::Completion>{{7, Code::kOk}}));
  EXPECT_EQ(std::memcmp(source.memory.data(), target.memory.data() + 100, 2500), 0);
}

TEST(Post, SplitsMoreThanTheSendQueueHolds) {
  RecordingVerbs::Features features;
  features.max_msg_sz = 256;
  FakePair pair(features, depth(4));
  Region source(*pair.near.device, 10000), target(*pair.far.device, 10000);
  source.fill(2);
  const LocalSegment segment = source.segment(0, 10000);
  const std::array list = {write_request(1, {&segment, 1}, target), write_request(2, {&segment, 1}, target)};
  EXPECT_EQ(pair.path().post(list), 2U);
  EXPECT_LE(pair.qp().sends.size(), 4U);
  pair.settle();
  EXPECT_EQ(pair.qp().posted.size(), 80U);
  EXPECT_EQ(pair.near.log.completions, (std::vector<EventLog::Completion>{{1, Code::kOk}, {2, Code::kOk}}));
  EXPECT_EQ(source.memory, target.memory);
}

TEST(Post, ReadDepthIsTheSmallerOfBothEnds) {
  RecordingVerbs::Features near_features, far_features;
  near_features.max_rd_atomic = 8;
  far_features.max_rd_atomic = 2;
  FakeEnd near(near_features), far(far_features);
  Path& active = near.add_path(PathRole::kActive);
  Path& passive = far.add_path(PathRole::kPassive);
  connect_paths(active, passive);
  EXPECT_EQ(near.verbs->qp().attr.max_rd_atomic, 2);
  EXPECT_EQ(near.verbs->qp().attr.max_dest_rd_atomic, 8);
  EXPECT_EQ(far.verbs->qp().attr.max_rd_atomic, 2);
  EXPECT_EQ(far.verbs->qp().attr.max_dest_rd_atomic, 2);
}

TEST(Post, ReadsOutstandingStayWithinTheDepth) {
  FakePair pair({}, depth(64));  // max_rd_atomic 4
  Region local(*pair.near.device, 64 * 20), target(*pair.far.device, 64 * 20);
  target.fill(5);
  std::vector<LocalSegment> segments;
  std::vector<WorkRequest> list;
  for (std::size_t i = 0; i < 20; ++i) segments.push_back(local.segment(64 * i, 64));
  for (std::size_t i = 0; i < 20; ++i) list.push_back(read_request(i, {&segments[i], 1}, target, 64 * i));
  EXPECT_EQ(pair.path().post(list), 20U);
  EXPECT_EQ(pair.qp().sends.size(), 4U);
  pair.settle();  // the double records a violation if there are ever more
  EXPECT_EQ(pair.near.log.completions.size(), 20U);
  EXPECT_EQ(local.memory, target.memory);
}

TEST(Post, ZeroLengthNeedsNoKey) {
  FakePair pair({}, depth(8));
  const LocalSegment empty{};
  const std::array list = {WorkRequest{.id = 1, .kind = OpKind::kWrite, .local = {}},
                           WorkRequest{.id = 2, .kind = OpKind::kRead, .local = {&empty, 1}},
                           WorkRequest{.id = 3, .kind = OpKind::kMessage, .local = {}}};
  EXPECT_EQ(pair.path().post(list), 3U);
  EXPECT_EQ(pair.qp().posted[0].segments.size(), 0U);
  EXPECT_EQ(pair.qp().posted[1].segments.size(), 0U);
  pair.settle();
  EXPECT_EQ(pair.near.log.completions,
            (std::vector<EventLog::Completion>{{1, Code::kOk}, {2, Code::kOk}, {3, Code::kOk}}));
  EXPECT_EQ(pair.far.log.messages, std::vector<std::string>{""});
}

TEST(Post, RefusedRequestsEndInTheirTurn) {
  FakePair pair({}, depth(8));
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const std::array five = {source.segment(0, 1), source.segment(1, 1), source.segment(2, 1), source.segment(3, 1),
                           source.segment(4, 1)};
  std::string text(pair.near.device->capabilities().max_message + 1, 'x');
  const LocalSegment long_text = text_segment(text);
  const LocalSegment segment = source.segment(0, 8);
  const std::array list = {write_request(1, {&segment, 1}, target), write_request(2, five, target),
                           message_request(3, {&long_text, 1}), write_request(4, {&segment, 1}, target)};
  EXPECT_EQ(pair.near.device->capabilities().max_segments, 4U);
  EXPECT_EQ(pair.path().post(list), 4U);
  EXPECT_TRUE(pair.near.log.completions.empty());
  pair.settle();
  EXPECT_EQ(pair.near.log.completions,
            (std::vector<EventLog::Completion>{
                {1, Code::kOk}, {2, Code::kInvalidArgument}, {3, Code::kInvalidArgument}, {4, Code::kOk}}));
  EXPECT_TRUE(pair.near.log.downs.empty());
}

TEST(Post, ARefusedRequestAloneCompletesFromPoll) {
  VerbsConfig config = depth(8);
  config.one_sided = false;
  FakePair pair({}, config);
  EXPECT_FALSE(pair.near.device->capabilities().one_sided);
  EXPECT_EQ(pair.qp().attr.qp_access_flags, 0U);
  const std::array list = {WorkRequest{.id = 1, .kind = OpKind::kWrite, .local = {}},
                           WorkRequest{.id = 2, .kind = OpKind::kRead, .local = {}}};
  EXPECT_EQ(pair.path().post(list), 2U);
  EXPECT_FALSE(pair.near.endpoint->arm()) << "there is something to report";
  EXPECT_TRUE(pair.near.poll());
  EXPECT_EQ(pair.near.log.completions,
            (std::vector<EventLog::Completion>{{1, Code::kUnimplemented}, {2, Code::kUnimplemented}}));
}

TEST(Post, FromWithinACallback) {
  FakePair pair({}, depth(4));
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const LocalSegment segment = source.segment(0, 8);
  std::uint64_t next = 4;
  pair.near.log.completion_hook = [&](Path& path, std::uint64_t, Code) {
    if (next == 100) return;
    const WorkRequest request = write_request(next, {&segment, 1}, target);
    EXPECT_EQ(path.post({&request, 1}), 1U);
    ++next;
  };
  EXPECT_EQ(pair.path().post(many(4, write_request(0, {&segment, 1}, target))), 4U);
  pair.settle();
  ASSERT_EQ(pair.near.log.completions.size(), 100U);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(pair.near.log.completions[i].id, i);
}

// The last piece takes it along, and a credit with it; without one the piece waits.
TEST(Post, ANotificationGoesWithTheLastPieceAndTakesACredit) {
  RecordingVerbs::Features features;
  features.max_msg_sz = 256;
  VerbsConfig config = depth(16);
  config.receive_depth = 2;
  FakePair pair(features, config);
  Region source(*pair.near.device, 600), target(*pair.far.device, 600);
  source.fill(5);
  const LocalSegment segment = source.segment(0, 600);
  auto list = many(3, write_request(0, {&segment, 1}, target));
  for (std::uint32_t i = 0; i < 3; ++i) list[i].notify = 70 + i;
  EXPECT_EQ(pair.path().post(list), 3U);
  std::vector<ibv_wr_opcode> opcodes;
  for (const RecordedSend& send : pair.qp().posted) opcodes.push_back(send.wr.opcode);
  const ibv_wr_opcode plain = IBV_WR_RDMA_WRITE, last = IBV_WR_RDMA_WRITE_WITH_IMM;
  EXPECT_EQ(opcodes, (std::vector{plain, plain, last, plain, plain, last, plain, plain}));
  pair.settle();
  EXPECT_EQ(pair.far.log.notifications, (std::vector<std::uint32_t>{70, 71, 72}));
  EXPECT_EQ(pair.near.log.completions.size(), 3U);
  EXPECT_EQ(std::memcmp(source.memory.data(), target.memory.data(), 600), 0);
}

TEST(Post, ANotificationOfOnePieceWaitsForACreditAndNothingOvertakesIt) {
  VerbsConfig config = depth(16);
  config.receive_depth = 2;
  FakePair pair({}, config);
  Region source(*pair.near.device, 64), target(*pair.far.device, 64);
  const LocalSegment segment = source.segment(0, 8);
  auto list = many(4, write_request(0, {&segment, 1}, target));
  for (std::uint32_t i = 0; i < 3; ++i) list[i].notify = 70 + i;
  EXPECT_EQ(pair.path().post(list), 4U);
  const auto opcodes = [&] {
    std::vector<ibv_wr_opcode> all;
    for (const RecordedSend& send : pair.qp().posted) all.push_back(send.wr.opcode);
    return all;
  };
  const ibv_wr_opcode plain = IBV_WR_RDMA_WRITE, notifies = IBV_WR_RDMA_WRITE_WITH_IMM;
  EXPECT_EQ(opcodes(), (std::vector{notifies, notifies}));
  pair.settle();
  EXPECT_EQ(opcodes(), (std::vector{notifies, notifies, notifies, plain}));
  EXPECT_EQ(pair.far.log.notifications, (std::vector<std::uint32_t>{70, 71, 72}));
  EXPECT_EQ(pair.near.log.completions,
            (std::vector<EventLog::Completion>{{0, Code::kOk}, {1, Code::kOk}, {2, Code::kOk}, {3, Code::kOk}}));
}

}  // namespace
}  // namespace fairlead::verbs::testing
