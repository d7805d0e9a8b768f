// fork() with a device open, and limits of the process.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include "tests/no_threads.h"
#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/api/api.h"

namespace fairlead::soft::test {
namespace {

/// Runs `body` in a forked child; its exit status.
template <typename Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// Writes all of a's buffer to b, some times.
void exchange(Endpoint& a, Endpoint& b, std::uint32_t seed) {
  fill_pattern(a.buffer, seed);
  a.done.clear();
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, i, 0, a.buffer.size(), &b, 0), 0);
  }
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 8; }));
  for (const ibv_wc& completion : a.done) ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
  ASSERT_EQ(a.buffer, b.buffer);
}

TEST(Fork, AChildThatExitsLeavesTheTrafficAlone) {
  Endpoint a(open_udp(), {.buffer_bytes = 1 << 20});
  Endpoint b(open_udp(), {.buffer_bytes = 1 << 20});
  connect(a, b);
  for (std::uint32_t round = 0; round < 10; ++round) {
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 77, 0, 1 << 20, &b, 0), 0);  // in flight, so that locks are taken now and then
    EXPECT_EQ(in_child([] { return 0; }), 0);
    ASSERT_TRUE(drive(a, b, [&] { return !a.done.empty() && a.done.back().wr_id == 77; }));
    exchange(a, b, round);
  }
}

TEST(Fork, AChildThatPollsAndPostsTakesNothingFromTheParent) {
  Endpoint a(open_udp(), {.buffer_bytes = 1 << 20});
  Endpoint b(open_udp(), {.buffer_bytes = 1 << 20});
  connect(a, b);
  exchange(a, b, 1);
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    a.post(IBV_WR_RDMA_WRITE, 1, 0, 1000, &b, 0);
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    const int flags = ::fcntl(done[0], F_GETFL);
    ::fcntl(done[0], F_SETFL, flags | O_NONBLOCK);
    while (::read(done[0], &byte, 1) != 1) {
      a.poll();
      b.poll();
    }
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  exchange(a, b, 2);
  EXPECT_EQ(a.counter("drop_no_qp"), 0U);
  ASSERT_EQ(::write(done[1], &byte, 1), 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) ::close(fd);
}

TEST(Fork, AChildMayCloseWhatItInheritedAndOpenItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer the child of a process with threads cannot start its own";
#endif
  auto a = std::make_unique<Endpoint>(open_udp(), EndpointOptions{.buffer_bytes = 1 << 20});
  auto b = std::make_unique<Endpoint>(open_udp(), EndpointOptions{.buffer_bytes = 1 << 20});
  connect(*a, *b);
  exchange(*a, *b, 1);  // the watchers run
  EXPECT_EQ(in_child([&] {
              ::alarm(60);
              a.reset();
              b.reset();
              Endpoint mine(open_udp(), {.buffer_bytes = 1 << 16});
              Endpoint other(open_udp(), {.buffer_bytes = 1 << 16});
              connect(mine, other);
              exchange(mine, other, 5);
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
  exchange(*a, *b, 2);
}

constexpr unsigned kChildSeconds = 20;  // more than it needs: what still runs then hangs

// fork() comes in the middle of what the thread does, with locks held that nobody lets go of in the child.
TEST(Fork, AChildMayOpenADeviceThatAThreadOfTheParentsIsOpening) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer a fork beside threads is not what it is elsewhere";
#endif
  const auto device = find_or_add_device({"forked", Profile::kFull, "udp", ""});
  ASSERT_TRUE(device);
  std::atomic<bool> stop{false};
  std::atomic<int> opened{0};
  std::thread opener([&] {
    while (!stop) {
      ibv_context* context = api().open_device(*device);
      if (context != nullptr && api().close_device(context) == 0) ++opened;
    }
  });
  while (opened == 0) std::this_thread::yield();
  for (int round = 0; round < 40 && !testing::Test::HasFailure(); ++round) {
    EXPECT_EQ(in_child([&] {
                ::alarm(kChildSeconds);
                if (!soft::api::is_soft(*device)) return 1;
                ibv_context* context = api().open_device(*device);
                return context != nullptr && api().close_device(context) == 0 ? 0 : 2;
              }),
              0);
  }
  stop = true;
  opener.join();
}

bool readable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 1000) == 1 && ready.revents == POLLIN;
}

/// Sends one message from a to b; nobody takes the completions of b.
void send_one(Endpoint& a, Endpoint& b) {
  ASSERT_EQ(b.post_recv(1, 0, 64), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND, 1, 0, 64, nullptr, 0), 0);
  ASSERT_TRUE(drive(a, a, [&] { return a.done.size() == 1; }));
  ASSERT_EQ(a.done[0].status, IBV_WC_SUCCESS);
}

/// Its exit status.
int child_that_closes(std::unique_ptr<Endpoint>& a, std::unique_ptr<Endpoint>& b) {
  return in_child([&] {
    ::alarm(kChildSeconds);
    a.reset();
    b.reset();
    return testing::Test::HasFailure() ? 1 : 0;
  });
}

TEST(Fork, AChildThatClosesItsCopiesLeavesTheParentItsEvents) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer the child of a process with threads cannot close its device, which joins one";
#endif
  auto a = std::make_unique<Endpoint>(open_udp(), EndpointOptions{.channel = true});
  auto b = std::make_unique<Endpoint>(open_udp(), EndpointOptions{.channel = true});
  connect(*a, *b);
  impl(b->context).async_events().push({.element = {.qp = b->qp}, .event_type = IBV_EVENT_COMM_EST});
  ASSERT_EQ(ibv_req_notify_cq(b->cq, 0), 0);
  send_one(*a, *b);
  EXPECT_EQ(child_that_closes(a, b), 0);
  ASSERT_TRUE(readable(b->channel->fd));
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  ASSERT_EQ(api().get_cq_event(b->channel, &cq, &user), 0);
  EXPECT_EQ(cq, b->cq);
  ASSERT_TRUE(readable(b->context->async_fd));
  ibv_async_event event{};
  ASSERT_EQ(api().get_async_event(b->context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_COMM_EST);
  // Nor does a child wait until the parent acknowledges what it took.
  EXPECT_EQ(in_child([&] {
              ::alarm(kChildSeconds);
              if (api().get_cq_event(b->channel, &cq, &user) == 0 || errno != ENODEV) return 2;
              b.reset();
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
  api().ack_cq_events(cq, 1);
  api().ack_async_event(&event);
}

TEST(Fork, AChildDoesNotWaitForAPollOfTheParents) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer the child of a process with threads cannot close its device, which joins one";
#endif
  auto a = std::make_unique<Endpoint>(open_udp());
  auto b = std::make_unique<Endpoint>(open_udp(), EndpointOptions{.wc_flags = IBV_WC_EX_WITH_BYTE_LEN});
  connect(*a, *b);
  send_one(*a, *b);
  std::promise<void> polling;
  std::promise<void> forked;
  std::thread poller([&, until = forked.get_future()] {
    auto* extended = reinterpret_cast<ibv_cq_ex*>(b->cq);
    ibv_poll_cq_attr attr{};
    EXPECT_EQ(ibv_start_poll(extended, &attr), 0);
    polling.set_value();
    until.wait();
    ibv_end_poll(extended);
  });
  polling.get_future().wait();
  EXPECT_EQ(child_that_closes(a, b), 0);
  forked.set_value();
  poller.join();
}

std::size_t open_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// At each number of free descriptors, opening succeeds or says why, and leaves nothing behind.
TEST(ProcessLimits, TooFewDescriptorsAreAnErrorAndNothingLeaks) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer makes a pipe to look at a thrown object";
#endif
  EXPECT_EQ(in_child([] {
              const auto device = find_or_add_device({"soft0", Profile::kFull, "udp", ""});
              ibv_context* first = api().open_device(*device);  // what a process opens once and keeps
              if (first == nullptr || api().close_device(first) != 0) return 1;
              const std::size_t before = open_descriptors();
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              constexpr rlim_t kEnough = 64;
              rlim_t refused = 0;
              bool opened = false;
              for (rlim_t spare = 0; spare < kEnough && !opened; ++spare) {
                const rlimit tight{before - 1 + spare, limit.rlim_max};
                ::setrlimit(RLIMIT_NOFILE, &tight);
                errno = 0;
                ibv_context* context = api().open_device(*device);
                const int error = errno;
                ibv_comp_channel* channel = context != nullptr ? api().create_comp_channel(context) : nullptr;
                const int channel_error = errno;
                ::setrlimit(RLIMIT_NOFILE, &limit);
                if (context == nullptr && error != EMFILE) return 2;
                if (context != nullptr && channel == nullptr && channel_error != EMFILE) return 3;
                opened = channel != nullptr;
                refused += opened ? 0 : 1;
                if (channel != nullptr) api().destroy_comp_channel(channel);
                if (context != nullptr && api().close_device(context) != 0) return 4;
                if (open_descriptors() != before) return 5;
              }
              return opened && refused > 0 ? 0 : 6;
            }),
            0);
}

std::size_t address_space() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(ProcessLimits, TooLittleMemoryIsAnErrorNotAnEnd) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve address space of their own";
#endif
  EXPECT_EQ(in_child([] {
              Endpoint end(open_udp(), {.buffer_bytes = 4096});
              const rlimit tight{address_space() + (64 << 20), RLIM_INFINITY};
              if (::setrlimit(RLIMIT_AS, &tight) != 0) return 1;
              std::vector<ibv_qp*> made;
              while (made.size() < 1000) {
                ibv_qp* qp = end.make_qp({.max_wr = 16384, .max_inline = 1024});
                if (qp == nullptr) break;
                made.push_back(qp);
              }
              if (errno != ENOMEM || made.size() == 1000) return 2;
              for (ibv_qp* qp : made) {
                if (api().destroy_qp(qp) != 0) return 3;
              }
              // Small things still work.
              ibv_mr* mr = api().reg_mr(end.pd, end.buffer.data(), 10, IBV_ACCESS_LOCAL_WRITE);
              return mr != nullptr && api().dereg_mr(mr) == 0 ? 0 : 4;
            }),
            0);
}

/// Signals that this thread does not take.
std::set<int> blocked_signals() {
  sigset_t mask;
  ::sigemptyset(&mask);
  EXPECT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &mask), 0);
  std::set<int> blocked;
  for (int signal = 1; signal < SIGRTMAX; ++signal) {
    if (::sigismember(&mask, signal) == 1) blocked.insert(signal);
  }
  return blocked;
}

TEST(ProcessLimits, WithoutAThreadThereIsNoQueuePairYet) {
  ibv_context* context = open_udp();
  ibv_pd* pd = api().alloc_pd(context);
  ibv_cq* cq = api().create_cq(context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  const std::set<int> before = blocked_signals();
  {
    const fairlead::test::NoThreads none;
    for (int i = 0; i < 2; ++i) {
      errno = 0;
      EXPECT_EQ(api().create_qp(pd, &init), nullptr);
      EXPECT_EQ(errno, EAGAIN);
      EXPECT_EQ(blocked_signals(), before);
    }
  }
  EXPECT_EQ(api().destroy_cq(cq), 0);
  EXPECT_EQ(api().dealloc_pd(pd), 0);

  Endpoint a(context, {.channel = true});
  Endpoint b(open_udp());
  connect(a, b);
  ASSERT_EQ(a.post_recv(1, 0, 8), 0);
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
  ASSERT_EQ(b.post(IBV_WR_SEND, 2, 0, 8, nullptr, 0), 0);
  pollfd readable{a.channel->fd, POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, 10'000), 1) << "nobody watches for who waits for the event";
  ibv_cq* told = nullptr;
  void* of = nullptr;
  ASSERT_EQ(api().get_cq_event(a.channel, &told, &of), 0);
  api().ack_cq_events(told, 1);
}

}  // namespace
}  // namespace fairlead::soft::test
