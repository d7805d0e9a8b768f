// Ports over DPDK in processes of their own, which come in any order, have no privileges, and are killed.
//
// The test's own process opens none: it forks, and DPDK starts in the children.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "base/unique_fd.h"
#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/port/dpdk/dpdk_module.h"

namespace fairlead::soft::test {
namespace {

using std::chrono::milliseconds;

// What an end tells the other, in memory that both share.
struct Card {
  std::atomic<std::uint32_t> qpn;
  ibv_gid gid;
  std::uint64_t address;
  std::uint32_t rkey;
};

constexpr unsigned kLanes = 2;

struct Table {
  Card lanes[kLanes][2];
  std::atomic<std::uint64_t> rounds[kLanes];  // that the first end has finished
  std::atomic<bool> stop;
};

constexpr int kNoModule = 77;

template <typename Condition>
bool wait_for(const Condition& condition, milliseconds limit = milliseconds(20'000)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

class DpdkProcesses : public testing::Test {
 protected:
  DpdkProcesses()
      : table(*new(::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Table) {}
  ~DpdkProcesses() override {
    for (const pid_t child : children_) ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0);
    ::munmap(&table, sizeof(Table));
  }

  void SetUp() override {
    const int status = finish(start([] { return open_dpdk_device("net_null0", 256) ? 0 : kNoModule; }));
    if (without_module(status)) GTEST_SKIP() << "the module was not built, or DPDK does not start";
  }

  pid_t start(const std::function<int()>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::alarm(100);
      std::exit(work());
    }
    children_.push_back(child);
    return child;
  }
  /// How it ended, as waitpid has it.
  int finish(pid_t child) {
    int status = -1;
    ::waitpid(child, &status, 0);
    std::erase(children_, child);
    return status;
  }
  /// By DPDK's driver of memif, or by our own.
  [[nodiscard]] std::string packet_io(int which, bool own = false) const {
    return fmt::format("{},role={},socket=fairlead-processes-{},ip=10.2.0.{}/24", own ? "memif" : "dpdk:net_memif0",
                       which == 0 ? "server" : "client", parent_, which + 1);
  }
  static ibv_context* open(const std::string& packet_io, unsigned lane = 0) {
    const auto device = find_or_add_device({"dpdk0", Profile::kFull, packet_io, "", lane});
    ibv_context* context = device ? api().open_device(*device) : nullptr;
    if (context == nullptr) std::exit(errno == EIO ? kNoModule : 1);
    return context;
  }

  /// One end: connects to the other, then writes to it and reads it back until told to stop. 0, or what went wrong.
  int play(int which, const std::string& io, unsigned lane = 0) {
    Endpoint self(open(io, lane), {.buffer_bytes = 1 << 20});
    const ConnectOptions options{.mtu = IBV_MTU_4096, .timeout = 18};  // the other may only begin
    Card& mine = table.lanes[lane][which];
    const Card& other = table.lanes[lane][1 - which];
    mine.gid = self.gid();
    mine.address = reinterpret_cast<std::uint64_t>(self.buffer.data());
    mine.rkey = self.mr->rkey;
    mine.qpn.store(self.qp->qp_num);
    if (!wait_for([&] { return other.qpn.load() != 0; })) return 2;
    if (self.to_init() != 0 || self.to_rtr(other.qpn.load(), other.gid, options) != 0 || self.to_rts(options) != 0) {
      return 3;
    }
    if (which == 1) {  // a target, served by its watcher
      while (!table.stop.load()) std::this_thread::sleep_for(milliseconds(1));
      return 0;
    }
    constexpr std::uint32_t kBytes = 200'000;
    for (std::uint64_t round = 0; !table.stop.load(); ++round) {
      fill_pattern(self.buffer, static_cast<std::uint32_t>(round));
      for (const bool read : {false, true}) {
        ibv_sge segment = self.sge(read ? kBytes : 0, kBytes);
        ibv_send_wr wr{}, *bad = nullptr;
        wr.opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &segment;
        wr.num_sge = 1;
        wr.wr.rdma.remote_addr = other.address;
        wr.wr.rdma.rkey = other.rkey;
        if (ibv_post_send(self.qp, &wr, &bad) != 0) return 4;
      }
      while (self.done.size() < 2 && !table.stop.load()) self.poll();
      for (const ibv_wc& completion : self.done) {
        if (completion.status == IBV_WC_RETRY_EXC_ERR) return 5;
        if (completion.status != IBV_WC_SUCCESS) return 6;
      }
      if (self.done.size() == 2 && std::memcmp(self.buffer.data(), self.buffer.data() + kBytes, kBytes) != 0) return 7;
      self.done.clear();
      table.rounds[lane].store(round + 1);
    }
    return 0;
  }
  /// The same with a thread for each of two lanes.
  int play_lanes(int which) {
    const std::string io = fmt::format("{},queues={}", packet_io(which), kLanes);
    int second = 0;
    std::thread thread([&] { second = play(which, io, 1); });
    const int first = play(which, io, 0);
    thread.join();
    return first != 0 ? first : second;
  }
  void begin_again() {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      for (Card& card : table.lanes[lane]) card.qpn.store(0);
      table.rounds[lane].store(0);
    }
    table.stop.store(false);
  }
  /// Either end is killed at any moment. The other neither crashes nor hangs: it fails its requests once its retries
  /// are spent, and works with the next peer.
  void expect_to_outlive(int kills, unsigned lanes, const std::function<int(int)>& work) {
    std::mt19937 random(7);
    for (int kill = 0; kill < kills; ++kill) {
      SCOPED_TRACE(kill);
      begin_again();
      const int victim = kill % 2;
      const pid_t ends[2] = {start([&] { return work(0); }), start([&] { return work(1); })};
      const auto moving = [&] {
        return std::all_of(table.rounds, table.rounds + lanes, [](const auto& rounds) { return rounds.load() >= 2; });
      };
      if (!wait_for(moving, milliseconds(20'000))) {
        table.stop.store(true);
        for (const pid_t end : ends) EXPECT_EQ(finish(end), 0);
        FAIL() << "they did not come together";
      }
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
      ::kill(ends[victim], SIGKILL);
      finish(ends[victim]);
      std::this_thread::sleep_for(milliseconds(150));
      table.stop.store(true);
      const int status = finish(ends[1 - victim]);
      EXPECT_TRUE(WIFEXITED(status)) << strsignal(WTERMSIG(status));
      EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 5) << WEXITSTATUS(status);
    }
  }
  [[nodiscard]] static int wanted_kills() {
    const char* wanted = std::getenv("FAIRLEAD_DPDK_KILLS");
    return wanted != nullptr ? std::atoi(wanted) : 10;
  }
  bool without_module(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == kNoModule; }

  Table& table;

 private:
  const pid_t parent_ = ::getpid();
  std::vector<pid_t> children_;
};

#define EXPECT_ENDED_WELL(child)                                                                 \
  do {                                                                                           \
    const int status = finish(child);                                                            \
    if (without_module(status)) GTEST_SKIP() << "the module was not built, or its drivers miss"; \
    EXPECT_EQ(status, 0) << (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "");            \
  } while (false)

TEST_F(DpdkProcesses, MoveDataInEitherOrderOfComing) {
  for (const int first : {0, 1}) {
    begin_again();
    const pid_t a = start([&] { return play(first, packet_io(first)); });
    wait_for([&] { return table.lanes[0][first].qpn.load() != 0; }, milliseconds(3000));
    const pid_t b = start([&] { return play(1 - first, packet_io(1 - first)); });
    EXPECT_TRUE(wait_for([&] { return table.rounds[0].load() >= 20; }, milliseconds(20'000)));
    table.stop.store(true);
    EXPECT_ENDED_WELL(a);
    EXPECT_ENDED_WELL(b);
  }
}

// It greets those who came meanwhile, some of whom have gone: DPDK's interrupt thread must not end it for that.
TEST_F(DpdkProcesses, AServerThatStoodStillOutlivesClientsThatHungUp) {
  Card& card = table.lanes[0][0];
  const pid_t server = start([&] {
    ibv_context* const context = open(packet_io(0));
    card.qpn.store(1);
    while (!table.stop.load()) std::this_thread::sleep_for(milliseconds(1));
    return api().close_device(context);
  });
  ASSERT_TRUE(wait_for([&] { return card.qpn.load() != 0; }, milliseconds(20'000)));
  ::kill(server, SIGSTOP);
  const pid_t client = start([&] {
    for (int i = 0; i < 2; ++i) api().close_device(open(packet_io(1, i == 1)));  // a third would wait to be accepted
    card.qpn.store(2);
    while (!table.stop.load()) std::this_thread::sleep_for(milliseconds(1));
    return 0;
  });
  EXPECT_TRUE(wait_for([&] { return card.qpn.load() == 2; }, milliseconds(20'000)));
  ::kill(server, SIGCONT);
  std::this_thread::sleep_for(milliseconds(300));
  table.stop.store(true);
  EXPECT_ENDED_WELL(server);
  EXPECT_ENDED_WELL(client);
}

TEST_F(DpdkProcesses, MeetOurOwnMemifInEitherRole) {
  for (const int own : {0, 1}) {
    for (const int first : {0, 1}) {
      SCOPED_TRACE(fmt::format("our own is the {}, the {} comes first", own == 0 ? "server" : "client",
                               first == 0 ? "server" : "client"));
      begin_again();
      const pid_t a = start([&] { return play(first, packet_io(first, first == own)); });
      wait_for([&] { return table.lanes[0][first].qpn.load() != 0; }, milliseconds(3000));
      const pid_t b = start([&] { return play(1 - first, packet_io(1 - first, 1 - first == own)); });
      EXPECT_TRUE(wait_for([&] { return table.rounds[0].load() >= 20; }, milliseconds(20'000)));
      table.stop.store(true);
      EXPECT_ENDED_WELL(a);
      EXPECT_ENDED_WELL(b);
    }
  }
}

TEST_F(DpdkProcesses, OurOwnMemifOutlivesThePeerThatIsKilled) {
  for (const int own : {0, 1}) {
    expect_to_outlive(4, 1, [&, own](int which) { return play(which, packet_io(which, which == own)); });
  }
}

TEST_F(DpdkProcesses, NeedNoPrivileges) {
  const auto as_nobody = [&](int which) {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return 9;
    ::unsetenv("XDG_RUNTIME_DIR");
    return play(which, packet_io(which));
  };
  const pid_t a = start([&] { return as_nobody(0); });
  const pid_t b = start([&] { return as_nobody(1); });
  EXPECT_TRUE(wait_for([&] { return table.rounds[0].load() >= 20; }, milliseconds(20'000)));
  table.stop.store(true);
  EXPECT_ENDED_WELL(a);
  EXPECT_ENDED_WELL(b);
}

TEST_F(DpdkProcesses, OutliveThePeerThatIsKilled) {
  expect_to_outlive(wanted_kills(), 1, [this](int which) { return play(which, packet_io(which)); });
}

TEST_F(DpdkProcesses, OutliveThePeerThatIsKilledWithAThreadForEachLane) {
  expect_to_outlive(wanted_kills(), kLanes, [this](int which) { return play_lanes(which); });
}

// An interface of the kernel's with this address; -1 where that is not allowed.
int set_up_interface(const char* name, const char* address) {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, name, sizeof(request.ifr_name) - 1);
  auto& in = reinterpret_cast<sockaddr_in&>(request.ifr_addr);
  in.sin_family = AF_INET;
  ::inet_pton(AF_INET, address, &in.sin_addr);
  if (::ioctl(fd.get(), SIOCSIFADDR, &request) != 0) return -1;
  ::inet_pton(AF_INET, "255.255.255.0", &in.sin_addr);
  if (::ioctl(fd.get(), SIOCSIFNETMASK, &request) != 0) return -1;
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  return ::ioctl(fd.get(), SIOCSIFFLAGS, &request);
}

// One device behind a tap interface, the other on a socket of the kernel: its ARP, its IP, its checksums.
TEST_F(DpdkProcesses, SpeakToTheKernelsNetworkStack) {
  constexpr int kNoNamespace = 78;
  const int status = finish(start([] {
    const bool root = ::geteuid() == 0;
    if (::unshare(root ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) return kNoNamespace;
    if (::access("/dev/net/tun", R_OK | W_OK) != 0) return kNoNamespace;
    Endpoint a(open("dpdk:net_tap0,iface=fltest0,ip=10.5.0.2/24"));
    if (set_up_interface("lo", "127.0.0.1") != 0 || set_up_interface("fltest0", "10.5.0.1") != 0) return kNoNamespace;
    const auto device = find_or_add_device({"kernel0", Profile::kFull, "udp", "10.5.0.1"});
    ibv_context* context = device ? api().open_device(*device) : nullptr;
    if (context == nullptr) return 2;
    Endpoint b(context);
    connect(a, b, {.mtu = IBV_MTU_1024, .timeout = 17});
    fill_pattern(a.buffer, 1);
    constexpr std::size_t kBytes = 300'000;
    if (a.post(IBV_WR_RDMA_WRITE, 1, 0, kBytes, &b, 0) != 0) return 3;
    if (a.post(IBV_WR_RDMA_READ, 2, 1'000'000, kBytes, &b, 0) != 0) return 3;
    if (!drive(a, b, [&] { return a.done.size() == 2; })) return 4;
    if (b.post(IBV_WR_RDMA_WRITE, 3, 0, kBytes, &a, 2'000'000) != 0) return 3;
    if (!drive(a, b, [&] { return b.done.size() == 1; })) return 4;
    for (const ibv_wc& completion : a.done) {
      if (completion.status != IBV_WC_SUCCESS) return 5;
    }
    for (const std::size_t at : {std::size_t{1'000'000}, std::size_t{2'000'000}}) {
      if (std::memcmp(a.buffer.data(), a.buffer.data() + at, kBytes) != 0) return 6;
    }
    return a.counter("drop_icrc") == 0 ? 0 : 7;
  }));
  if (without_module(status)) GTEST_SKIP() << "the module was not built, or its drivers miss";
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespace) GTEST_SKIP() << "no network namespace or no tap here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace fairlead::soft::test
