// Verbs in threads that pthread_cancel() has ended already, but for the next cancellation point: what waits for nothing
// passes none. Those that wait are in tests/dropin/cancelled_threads.c.
#include <poll.h>
#include <pthread.h>

#include "tests/verbs/soft/endpoint.h"

namespace fairlead::soft::test {
namespace {

/// Whether `body` comes to its end in such a thread, which then ends as cancelled.
template <typename Body>
bool outlives_cancellation(Body body) {
  struct Run {
    Body body;
    bool ended = false;
  } run{std::move(body)};
  const auto begin = [](void* at) -> void* {
    Run& own = *static_cast<Run*>(at);
    ::pthread_cancel(::pthread_self());
    own.body();
    own.ended = true;
    ::pthread_testcancel();
    return nullptr;
  };
  pthread_t thread{};
  EXPECT_EQ(::pthread_create(&thread, nullptr, begin, &run), 0);
  void* result = nullptr;
  EXPECT_EQ(::pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  return run.ended;
}

/// DPDK's drivers make system calls of their own.
bool over_dpdk() {
  const auto memif = fairlead::test::memif_under_test();
  return memif && memif->starts_with("dpdk");
}

/// Both kinds of messages, until both ends know it.
void talk(Endpoint& a, Endpoint& b) {
  a.done.clear();
  b.done.clear();
  EXPECT_EQ(b.post_recv(1, 0, 64), 0);
  EXPECT_EQ(a.post(IBV_WR_RDMA_WRITE, 2, 64, 1 << 20, &b, 64), 0);
  EXPECT_EQ(a.post(IBV_WR_SEND, 3, 0, 64, nullptr, 0), 0);
  EXPECT_TRUE(drive(a, b, [&] { return a.done.size() == 2 && b.done.size() == 1; }));
}

TEST(Cancellation, DoesNotEndWhoPolls) {
  if (over_dpdk()) GTEST_SKIP() << "DPDK's drivers may be cancelled";
  Endpoint a(open_on_wire(), {.channel = true});
  Endpoint b(open_on_wire(), {.channel = true});
  connect(a, b);
  EXPECT_TRUE(outlives_cancellation([&] {
    EXPECT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
    for (int i = 0; i < 10; ++i) talk(a, b);
  }));
  pollfd event{b.channel->fd, POLLIN, 0};
  ASSERT_EQ(::poll(&event, 1, 0), 1);
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  ASSERT_EQ(api().get_cq_event(b.channel, &cq, &user), 0);
  api().ack_cq_events(cq, 1);
  talk(a, b);
}

TEST(Cancellation, LeavesDevicesWhole) {
  if (over_dpdk()) GTEST_SKIP() << "DPDK's drivers may be cancelled";
  EXPECT_TRUE(outlives_cancellation([] {
    Endpoint a(open_on_wire(), {.channel = true});
    Endpoint b(open_on_wire(), {.channel = true});
    connect(a, b);
    talk(a, b);
  }));
}

}  // namespace
}  // namespace fairlead::soft::test
