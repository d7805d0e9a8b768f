// Memory that is gone while it is registered: an error of the request, never a signal to the process.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/guarded.h"
#include "base/unique_fd.h"
#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/api.h"

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytes = 16 * kPage;
constexpr int kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// A mapped file, whose second half can be taken away, by one of three ways.
class Vanishing {
 public:
  enum class Way { kTruncate, kUnmap, kProtect };

  Vanishing() : fd_(::memfd_create("vanishing", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(fd_.get(), kBytes), 0);
    // Far from where the system puts what is mapped next: else a thread's stack may fill the hole meanwhile.
    void* address = ::mmap(reinterpret_cast<void*>(kFarAway), kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    EXPECT_NE(address, MAP_FAILED);
    data = static_cast<std::uint8_t*>(address);
  }
  ~Vanishing() { ::munmap(data, kBytes); }
  void take_half(Way way) {
    switch (way) {
      case Way::kTruncate:
        EXPECT_EQ(::ftruncate(fd_.get(), kBytes / 2), 0);
        return;
      case Way::kUnmap:
        EXPECT_EQ(::munmap(data + kBytes / 2, kBytes / 2), 0);
        return;
      case Way::kProtect:
        EXPECT_EQ(::mprotect(data + kBytes / 2, kBytes / 2, PROT_NONE), 0);
        return;
    }
  }
  std::uint8_t* data = nullptr;

 private:
  static constexpr std::uintptr_t kFarAway = std::uintptr_t{32} << 40;  // of 128 TiB; no more than a wish
  UniqueFd fd_;
};

class FaultsInMemory : public testing::TestWithParam<Vanishing::Way> {
 protected:
  void SetUp() override {
    connect(*world.a, *world.b);
    at_a = api::reg_mr(world.a->pd, here.data, kBytes, kAll);
    at_b = api::reg_mr(world.b->pd, there.data, kBytes, kAll);
  }
  void TearDown() override {
    EXPECT_EQ(api::dereg_mr(at_a), 0);
    EXPECT_EQ(api::dereg_mr(at_b), 0);
  }
  void post(ibv_wr_opcode opcode, std::size_t offset, std::size_t length) {
    ibv_sge segment{reinterpret_cast<std::uint64_t>(here.data) + offset, static_cast<std::uint32_t>(length),
                    at_a->lkey};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    const std::uint64_t remote = reinterpret_cast<std::uint64_t>(there.data) + offset;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      wr.wr.atomic = {remote, 1, 0, at_b->rkey};
    } else {
      wr.wr.rdma = {remote, at_b->rkey};
    }
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(world.a->qp, &wr, &bad), 0);
  }
  void post_recv(std::size_t offset, std::size_t length) {
    ibv_sge segment{reinterpret_cast<std::uint64_t>(there.data) + offset, static_cast<std::uint32_t>(length),
                    at_b->lkey};
    ibv_recv_wr wr{};
    wr.sg_list = &segment;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(world.b->qp, &wr, &bad), 0);
  }
  /// The status of what a posted last.
  ibv_wc_status status() {
    EXPECT_TRUE(world.run_until([&] { return !world.a->done.empty(); }));
    return world.a->done.empty() ? IBV_WC_SUCCESS : world.a->done[0].status;
  }

  Simulation world{{}, {}, {.buffer_bytes = kPage}};
  Vanishing here;
  Vanishing there;
  ibv_mr* at_a = nullptr;
  ibv_mr* at_b = nullptr;
};

// Ranges that begin in what is there and end in what is not; the small one goes through the copying path.
constexpr std::pair<std::size_t, std::size_t> kRanges[] = {{kBytes / 2 - 3000, 20'000}, {kBytes / 2 - 8, 16}};

TEST_P(FaultsInMemory, TheSourceOfAWriteIsALocalError) {
  here.take_half(GetParam());
  post(IBV_WR_RDMA_WRITE, kRanges[0].first, kRanges[0].second);
  EXPECT_EQ(status(), IBV_WC_LOC_PROT_ERR);
}
TEST_P(FaultsInMemory, TheSourceOfAShortSendIsALocalError) {
  here.take_half(GetParam());
  post(IBV_WR_SEND, kRanges[1].first, kRanges[1].second);
  EXPECT_EQ(status(), IBV_WC_LOC_PROT_ERR);
}
TEST_P(FaultsInMemory, TheTargetOfAWriteIsARemoteOperationalError) {
  there.take_half(GetParam());
  post(IBV_WR_RDMA_WRITE, kRanges[0].first, kRanges[0].second);
  EXPECT_EQ(status(), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(world.b->state(), IBV_QPS_ERR);
}
TEST_P(FaultsInMemory, TheSourceOfAReadIsARemoteOperationalError) {
  for (const auto& [offset, length] : kRanges) {
    if (offset == kRanges[0].first) there.take_half(GetParam());
    if (world.a->state() != IBV_QPS_RTS) continue;
    post(IBV_WR_RDMA_READ, offset, length);
    EXPECT_EQ(status(), IBV_WC_REM_OP_ERR);
  }
}
TEST_P(FaultsInMemory, TheTargetOfAReadIsALocalError) {
  here.take_half(GetParam());
  post(IBV_WR_RDMA_READ, kRanges[0].first, kRanges[0].second);
  EXPECT_EQ(status(), IBV_WC_LOC_PROT_ERR);
}
TEST_P(FaultsInMemory, AReceiveBufferFailsItsReceiverAndTellsTheSender) {
  there.take_half(GetParam());
  post_recv(kRanges[0].first, kRanges[0].second);
  post(IBV_WR_SEND, 0, 10'000);
  EXPECT_EQ(status(), IBV_WC_REM_OP_ERR);
  ASSERT_EQ(world.b->done.size(), 1U);
  EXPECT_EQ(world.b->done[0].status, IBV_WC_LOC_PROT_ERR);
}
TEST_P(FaultsInMemory, AnAtomicIsARemoteOperationalError) {
  there.take_half(GetParam());
  post(IBV_WR_ATOMIC_FETCH_AND_ADD, kBytes / 2, 8);
  EXPECT_EQ(status(), IBV_WC_REM_OP_ERR);
}
TEST_P(FaultsInMemory, WhatIsStillThereCanBeUsed) {
  here.take_half(GetParam());
  there.take_half(GetParam());
  post(IBV_WR_RDMA_WRITE, 0, kBytes / 2);
  EXPECT_EQ(status(), IBV_WC_SUCCESS);
}

std::string name_of(const testing::TestParamInfo<Vanishing::Way>& info) {
  static constexpr const char* kNames[] = {"truncate", "unmap", "protect"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Ways, FaultsInMemory,
                         testing::Values(Vanishing::Way::kTruncate, Vanishing::Way::kUnmap, Vanishing::Way::kProtect),
                         name_of);

// Memory that goes between a packet's building and its sending, over real sockets and threads that block every signal.
TEST(FaultsOverUdp, TakingMemoryAwayUnderTrafficEndsItAndNothingElse) {
  for (int round = 0; round < 20; ++round) {
    Endpoint a(open_on_wire(), {.buffer_bytes = kBytes});
    Endpoint b(open_on_wire(), {.buffer_bytes = kBytes});
    connect(a, b);
    Vanishing memory;
    ibv_mr* mr = api::reg_mr(a.pd, memory.data, kBytes, kAll);
    std::thread taker([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(500 * round));
      memory.take_half(static_cast<Vanishing::Way>(round % 3));
    });
    std::thread worker([&] {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
      int in_flight = 0;
      drive(a, b, [&] {
        for (; in_flight - static_cast<int>(a.done.size()) < 16; ++in_flight) {
          ibv_sge segment{reinterpret_cast<std::uint64_t>(memory.data), kBytes, mr->lkey};
          ibv_send_wr wr{};
          wr.opcode = IBV_WR_RDMA_WRITE;
          wr.send_flags = IBV_SEND_SIGNALED;
          wr.sg_list = &segment;
          wr.num_sge = 1;
          wr.wr.rdma = {reinterpret_cast<std::uint64_t>(b.buffer.data()), b.mr->rkey};
          ibv_send_wr* bad = nullptr;
          if (ibv_post_send(a.qp, &wr, &bad) != 0) break;
        }
        return !a.done.empty() && a.done.back().status != IBV_WC_SUCCESS;
      });
    });
    taker.join();
    worker.join();
    const auto failed = std::find_if(a.done.begin(), a.done.end(),
                                     [](const ibv_wc& completion) { return completion.status != IBV_WC_SUCCESS; });
    ASSERT_NE(failed, a.done.end());
    EXPECT_EQ(failed->status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(api::dereg_mr(mr), 0);
  }
}

// The handlers must not swallow what is not theirs.
TEST(FaultHandlersDeathTest, AFaultOfTheApplicationStillEndsIt) {
  install_fault_handlers();
  auto* nowhere = static_cast<volatile char*>(::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT_DEATH(*nowhere = 1, "");
  EXPECT_DEATH(::raise(SIGSEGV), "");  // sent, not raised by the CPU
  // Inside an attempt, but not at the memory that the attempt is about.
  std::byte mine[8];
  EXPECT_DEATH(static_cast<void>(attempt(mine, sizeof(mine), [nowhere] { *nowhere = 1; })), "");
}

volatile sig_atomic_t application_faults = 0;
sigjmp_buf application_way_out;
void application_handler(int, siginfo_t*, void*) {
  application_faults = application_faults + 1;
  ::siglongjmp(application_way_out, 1);
}

// In a process of its own, where no handler was installed yet.
void expect_the_application_handler_to_be_called() {
  struct sigaction action{};
  action.sa_sigaction = &application_handler;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  install_fault_handlers();
  auto* nowhere = static_cast<std::byte*>(::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (readable(nowhere, kPage) || application_faults != 0) ::_exit(1);  // ours, not the application's
  for (int i = 0; i < 3; ++i) {
    if (sigsetjmp(application_way_out, 1) == 0) {
      *const_cast<volatile std::byte*>(nowhere) = std::byte{1};
      ::_exit(2);
    }
  }
  if (application_faults != 3) ::_exit(3);
  if (readable(nowhere, kPage)) ::_exit(4);  // and still so after it left its handler by a jump
  ::_exit(0);
}

TEST(FaultHandlersDeathTest, TheHandlerThatWasThereBeforeGetsTheRest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(expect_the_application_handler_to_be_called(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fairlead::soft::test
