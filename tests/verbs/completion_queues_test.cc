#include "verbs/transport/completion_queues.h"

#include <gtest/gtest.h>

#include "harness.h"

namespace fairlead::verbs::testing {
namespace {

VerbsConfig small_config() {
  VerbsConfig config;
  config.send_depth = 16;
  config.receive_depth = 16;
  return config;
}

constexpr std::uint32_t kEntriesPerPath = 16 + 16 + 2 * kControlDepth;

// Every completion that a queue pair can ever have fits beside those of all others.
void expect_no_overrun_possible(RecordingVerbs& verbs) {
  std::map<ibv_cq*, std::uint64_t> needed;
  for (RecordedQp* qp : verbs.qps()) {
    needed[qp->send_cq] += qp->cap.max_send_wr;
    needed[qp->recv_cq] += qp->cap.max_recv_wr;
  }
  for (const auto& [cq, entries] : needed) EXPECT_LE(entries, static_cast<std::uint64_t>(cq->cqe));
}

TEST(CompletionQueues, AnotherQueueWhenOneIsFull) {
  RecordingVerbs::Features features;
  features.max_cqe = 2 * static_cast<int>(kEntriesPerPath) + 5;
  FakeEnd end(features, small_config());
  for (int i = 0; i < 5; ++i) {
    end.add_path(PathRole::kActive);
    expect_no_overrun_possible(*end.verbs);
  }
  EXPECT_EQ(end.verbs->cqs().size(), 3U);
}

TEST(CompletionQueues, RoomOfADestroyedPathIsUsedAgainOnceTheQueueWasEmpty) {
  RecordingVerbs::Features features;
  features.max_cqe = static_cast<int>(kEntriesPerPath);
  FakeEnd end(features, small_config());
  end.add_path(PathRole::kActive);
  end.paths[0]->close();  // leaves flushed receives in the queue
  end.paths.clear();
  end.add_path(PathRole::kActive);
  EXPECT_EQ(end.verbs->cqs().size(), 2U) << "the old completions are still there";
  end.poll();
  end.paths.clear();
  end.poll();
  end.add_path(PathRole::kActive);
  EXPECT_EQ(end.verbs->cqs().size(), 2U);
  expect_no_overrun_possible(*end.verbs);
}

TEST(CompletionQueues, RefusesAPathThatNoQueueCanHold) {
  RecordingVerbs::Features features;
  features.max_cqe = static_cast<int>(kEntriesPerPath) - 1;
  FakeEnd end(features, small_config());
  const auto path = end.endpoint->open_path({});
  ASSERT_FALSE(path);
  EXPECT_EQ(path.error().code(), Code::kResourceExhausted);
  EXPECT_NE(path.error().message().find("48 completion entries, the device's queues hold at most 47"),
            std::string::npos)
      << path.error().message();
}

}  // namespace
}  // namespace fairlead::verbs::testing
