// What signals to this process change of what it knows of its peer: nothing.
#include "shm/peer_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/system/unix_packets.h"
#include "shm/meeting/socket.h"
#include "tests/shm/half.h"

namespace fairlead::shm {
namespace {

constexpr int kSignals = 1000, kMostAsked = 10'000'000;

/// Interrupts this thread every 20 us, and its system calls with it.
class Interrupted {
 public:
  Interrupted() {
    taken_ = 0;
    struct sigaction counts{};
    counts.sa_handler = [](int) { taken_.fetch_add(1, std::memory_order_relaxed); };
    EXPECT_EQ(::sigaction(SIGUSR1, &counts, &before_), 0);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGUSR1;
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    EXPECT_EQ(::timer_create(CLOCK_MONOTONIC, &event, &timer_), 0);
    constexpr timespec kEvery{.tv_sec = 0, .tv_nsec = 20'000};
    const itimerspec times{.it_interval = kEvery, .it_value = kEvery};
    EXPECT_EQ(::timer_settime(timer_, 0, &times, nullptr), 0);
  }
  Interrupted(const Interrupted&) = delete;
  Interrupted& operator=(const Interrupted&) = delete;
  ~Interrupted() {
    EXPECT_EQ(::timer_delete(timer_), 0);
    EXPECT_EQ(::sigaction(SIGUSR1, &before_, nullptr), 0);
  }

  [[nodiscard]] int times() const { return taken_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<int> taken_{0};
  timer_t timer_{};
  struct sigaction before_{};
};

TEST(ShmPeerMemory, APeerThatLivesIsAliveWhateverSignalsCome) {
  Half half;
  const Interrupted interrupted;
  int asked = 0;
  for (; interrupted.times() < kSignals && asked < kMostAsked; ++asked) {
    ASSERT_TRUE(half.memory.alive()) << "asked " << asked << " times, " << interrupted.times() << " signals";
  }
  ASSERT_GE(interrupted.times(), kSignals);
  half.sockets[0].reset();
  EXPECT_FALSE(half.memory.alive());
}

// Asked after each copy by the kernel: once it does not stand, all that was copied before is lost.
TEST(ShmPeerMemory, WhatWasCopiedStandsWhateverSignalsCome) {
  Half half;
  const Interrupted interrupted;
  for (int asked = 0; interrupted.times() < kSignals && asked < kMostAsked; ++asked) {
    const std::byte from{5};
    std::byte to{0};
    ASSERT_EQ(half.memory.copy(&to, reinterpret_cast<std::uint64_t>(&from), 1), PeerMemory::Copied::kAll);
    ASSERT_TRUE(half.memory.stands()) << "asked " << asked << " times, " << interrupted.times() << " signals";
  }
  ASSERT_GE(interrupted.times(), kSignals);
}

// Of a process that nobody would say the end of, the id may be another's by the time that it is copied from.
TEST(ShmPeerMemory, IsNotReadByAnIdAlone) {
  Half half;
  static Token own{std::byte{1}, std::byte{2}};
  const Greeting greeting{.token = {}, .own = own, .own_address = reinterpret_cast<std::uint64_t>(&own)};
  datapath::Copies copies;
  PeerMemory known(copies);
  known.meet(
      {.id = ::getpid(), .life = PrivateFd(UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))))},
      half.sockets[1].get());
  EXPECT_TRUE(known.can_read(greeting));
  PeerMemory by_id(copies);
  by_id.meet({.id = ::getpid(), .life = {}}, half.sockets[1].get());
  EXPECT_FALSE(by_id.can_read(greeting));
}

// What a peer sent and nobody read is closed before its socket is, and nothing comes any more.
TEST(ShmMeetingSocket, IsEmptiedBeforeItIsDropped) {
  int ends[2], pipe_ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd mine(ends[0]), peers(ends[1]);
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd out(pipe_ends[0]);
  UniqueFd in(pipe_ends[1]);
  const std::byte packet{1};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(send_packet(peers.get(), {&packet, 1}, in.get()));
  in.reset();
  char byte = 0;
  EXPECT_EQ(::read(out.get(), &byte, 1), -1) << "they are still open, in packets";
  empty(mine.get());
  EXPECT_EQ(::read(out.get(), &byte, 1), 0) << "and are not any more";
  EXPECT_FALSE(send_packet(peers.get(), {&packet, 1}));
}

}  // namespace
}  // namespace fairlead::shm
