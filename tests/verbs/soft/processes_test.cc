// Sixty-four processes on one host, each with a device, exchange verified data in pairs.
//
// The parent only forks and waits; the processes meet in a page of shared memory.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "tests/verbs/soft/seat.h"

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kProcesses = 64;
constexpr std::size_t kBytes = 1 << 20;
constexpr auto kLimit = std::chrono::seconds(100);

struct Meeting {
  std::array<Seat, kProcesses> seats;
  std::atomic<std::size_t> done{0};
};

[[noreturn]] void give_up(std::size_t index, const std::string& why) {
  std::fprintf(stderr, "process %zu: %s\n", index, why.c_str());
  ::_exit(1);
}

void require(std::size_t index, bool condition, const char* what) {
  if (!condition) give_up(index, what);
}

// What a process does: its peer is the one whose number differs in the last bit. Both write half of the peer's buffer,
// read it back, and tell each other; nobody leaves before all are done.
void take_part(Meeting& meeting, std::size_t index, const std::string& address) {
  const auto end_of_time = std::chrono::steady_clock::now() + kLimit;
  const auto wait_for = [&](const char* what, const auto& finished, auto&& meanwhile) {
    while (!finished()) {
      meanwhile();
      if (std::chrono::steady_clock::now() > end_of_time) give_up(index, std::string("no end to waiting for ") + what);
    }
  };
  const auto nap = [] { ::usleep(1000); };
  const auto device = find_or_add_device({"soft0", Profile::kFull, "udp", address});
  require(index, device.has_value(), "no device entry");
  ibv_context* context = api().open_device(*device);
  require(index, context != nullptr, "cannot open a device");
  // Written by the peer: the first half. Ours to send: the second; read back into the third.
  Endpoint self(context, {.buffer_bytes = 3 * kBytes});
  meeting.seats[index].take(self);
  const Seat& peer = meeting.seats[index ^ 1];
  wait_for("the peer", [&] { return peer.taken.load(); }, nap);
  // Two cores have each process run now and then only, and on a busy machine the system may hold one up for ten seconds
  // while it is connected: a peer that is silent for half a minute is alive.
  const ConnectOptions options{.mtu = IBV_MTU_4096, .timeout = 20};
  require(index, self.to_init() == 0 && self.post_recv(7, 0, 0) == 0, "cannot prepare the queue pair");
  require(index, self.to_rtr(peer.qpn, peer.gid, options) == 0 && self.to_rts(options) == 0, "cannot connect");

  std::vector<std::uint8_t> pattern(kBytes);
  fill_pattern(pattern, static_cast<std::uint32_t>(index));
  std::copy(pattern.begin(), pattern.end(), self.buffer.begin() + kBytes);
  const auto post = [&](ibv_wr_opcode opcode, std::uint64_t id, std::size_t offset, std::size_t length) {
    require(index, self.post_to(opcode, id, self.sge(offset, length), peer.address, peer.rkey) == 0, "cannot post");
  };
  post(IBV_WR_RDMA_WRITE, 1, kBytes, kBytes);
  post(IBV_WR_RDMA_READ, 2, 2 * kBytes, kBytes);
  post(IBV_WR_SEND, 3, 0, 0);
  wait_for("completions", [&] { return self.done.size() == 4; }, [&] { self.poll(); });
  for (const ibv_wc& completion : self.done) {
    if (completion.status == IBV_WC_SUCCESS) continue;
    give_up(index,
            fmt::format("request {} failed with status {}", completion.wr_id, static_cast<int>(completion.status)));
  }
  require(index, std::memcmp(&self.buffer[2 * kBytes], pattern.data(), kBytes) == 0, "what was read back differs");
  fill_pattern(pattern, static_cast<std::uint32_t>(index ^ 1));
  require(index, std::memcmp(self.buffer.data(), pattern.data(), kBytes) == 0, "what the peer wrote differs");
  ++meeting.done;
  wait_for("the others", [&] { return meeting.done == kProcesses; }, nap);
}

void run_processes(const std::string& address) {
  void* page = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* meeting = new (page) Meeting;
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      take_part(*meeting, i, address);
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(meeting->done, kProcesses);
  ::munmap(page, sizeof(Meeting));
}

TEST(Processes, SixtyFourOnAddressesOfTheirOwn) { run_processes(""); }

// Of loopback, so that the test needs no rights; nobody else takes an address so high.
TEST(Processes, SixtyFourOnOneSharedAddress) { run_processes("127.78.0." + std::to_string(1 + ::getpid() % 250)); }

}  // namespace
}  // namespace fairlead::soft::test
