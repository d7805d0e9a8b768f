// softroce's ports in a program that uses DPDK itself: it has started it, has a port of its own, and alarms.
#include <gtest/gtest.h>
#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "tests/port_under_test.h"
#include "tests/verbs/soft/endpoint.h"

namespace fairlead::soft::test {
namespace {

constexpr auto kAnySocket = static_cast<unsigned>(SOCKET_ID_ANY);

constexpr std::uint16_t kBurst = 32;

// What such a program has done before it opens a device of ours.
class Application : public testing::Test {
 protected:
  static void SetUpTestSuite() {  // a process starts DPDK once
    const std::string prefix = "own-eal-test-" + std::to_string(::getpid());
    std::array<std::string, 10> words{"own_eal_test",   "--no-huge", "-m", "256",           "--no-pci",
                                      "--no-telemetry", "--lcores",  "0",  "--file-prefix", prefix};
    std::array<char*, 11> argv{};
    for (std::size_t i = 0; i < words.size(); ++i) argv[i] = words[i].data();
    ASSERT_GE(rte_eal_init(static_cast<int>(words.size()), argv.data()), 0) << rte_strerror(rte_errno);
    ASSERT_EQ(rte_dev_probe("net_null7"), 0);
    ASSERT_EQ(rte_eth_dev_get_port_by_name("net_null7", &port_), 0);
    pool_ = rte_pktmbuf_pool_create("own_pool", 511, 32, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    ASSERT_NE(pool_, nullptr);
    const rte_eth_conf conf{};
    ASSERT_EQ(rte_eth_dev_configure(port_, 1, 1, &conf), 0);
    ASSERT_EQ(rte_eth_rx_queue_setup(port_, 0, 64, kAnySocket, nullptr, pool_), 0);
    ASSERT_EQ(rte_eth_tx_queue_setup(port_, 0, 64, kAnySocket, nullptr), 0);
    ASSERT_EQ(rte_eth_dev_start(port_), 0);
  }
  /// A burst of the program's own port, which makes packets of nothing.
  static void expect_own_port_serves() {
    std::array<rte_mbuf*, kBurst> packets{};
    const std::uint16_t count = rte_eth_rx_burst(port_, 0, packets.data(), kBurst);
    ASSERT_EQ(count, kBurst);
    ASSERT_EQ(rte_eth_tx_burst(port_, 0, packets.data(), count), count);
  }

  static inline std::uint16_t port_ = RTE_MAX_ETHPORTS;
  static inline rte_mempool* pool_ = nullptr;
};

TEST_F(Application, KeepsItsStartItsPortItsAlarmsAndItsThreads) {
  const unsigned lcore = rte_lcore_id();
  std::atomic<int> alarms{0};
  const auto ring = [](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); };
  {
    const fairlead::test::MemifWire wire;
    Endpoint a(open_udp(wire.server()));
    Endpoint b(open_udp(wire.client()));
    connect(a, b, {.mtu = IBV_MTU_4096});
    ASSERT_EQ(rte_eal_alarm_set(1000, ring, &alarms), 0);
    fill_pattern(a.buffer, 1);
    for (std::uint64_t round = 1; round <= 20; ++round) {
      ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, round, 0, 200'000, &b, 0), 0);
      ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == round; }));
      ASSERT_EQ(a.done.back().status, IBV_WC_SUCCESS);
      expect_own_port_serves();
    }
    EXPECT_EQ(std::memcmp(a.buffer.data(), b.buffer.data(), 200'000), 0);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (alarms == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_EQ(alarms, 1);
    EXPECT_EQ(rte_lcore_id(), lcore);
  }
  // Our ports are closed; the program's goes on, and so does its DPDK.
  expect_own_port_serves();
  ASSERT_EQ(rte_eal_alarm_set(1000, ring, &alarms), 0);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (alarms < 2 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_EQ(alarms, 2);
  EXPECT_EQ(rte_eth_dev_count_avail(), 1);
  EXPECT_EQ(rte_mempool_in_use_count(pool_), 0U);
  ASSERT_EQ(rte_eth_dev_stop(port_), 0);
  // No rte_eal_cleanup(): memif's driver never takes its listener from the interrupt thread, which would look at memory
  // that this call unmaps (docs/dpdk.md).
}

/// A descriptor of the program's that DPDK's interrupt thread looks after.
class Bell {
 public:
  explicit Bell(std::function<void()> rung) : rung_(std::move(rung)), fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    handle_ = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
    rte_intr_fd_set(handle_, fd_);
    rte_intr_type_set(handle_, RTE_INTR_HANDLE_EXT);
    EXPECT_EQ(rte_intr_callback_register(handle_, &called, this), 0);
  }
  ~Bell() {
    rte_intr_callback_unregister_sync(handle_, &called, this);
    rte_intr_instance_free(handle_);
    ::close(fd_);
  }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  void ring() const { EXPECT_EQ(::eventfd_write(fd_, 1), 0); }
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  static void called(void* bell) {
    auto& self = *static_cast<Bell*>(bell);
    eventfd_t count = 0;
    ::eventfd_read(self.fd_, &count);
    if (self.rung_) self.rung_();
  }

  const std::function<void()> rung_;
  const int fd_;
  rte_intr_handle* handle_;
};

void await(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

/// The name of a memif server's socket.
std::string socket_of(const std::string& spec) {
  const std::size_t at = spec.find("socket=") + 7;
  return spec.substr(at, spec.find(',', at) - at);
}

/// Whether somebody listens there. Nobody connects: memif's driver does not bear a client that comes and goes at once.
bool somebody_listens(const std::string& name) {
  std::ifstream sockets("/proc/self/net/unix");  // Num RefCount Protocol Flags Type St Inode Path, proc(5)
  for (std::string line; std::getline(sockets, line);) {
    constexpr std::string_view kListens = " 00010000 ";
    if (line.ends_with(" @" + name) && line.find(kListens) != std::string::npos) return true;
  }
  return false;
}

bool is_listener(int fd) {
  int listens = 0;
  socklen_t length = sizeof listens;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0;
}

// The interrupt thread fetches events by number: one of a descriptor that has gone since was taken for a connection to
// memif's listener, which had got its number, and the thread waited in accept() for ever; then every port did for it.
TEST_F(Application, AListenerIsNotTakenForADescriptorThatHasGone) {
  const fairlead::test::MemifWire wire;
  const std::string spec = wire.server();
  std::atomic<bool> held{false}, go{false}, first{false};
  std::vector<int> numbers;
  const Bell gate([&] {
    held = true;
    await(go);
  });
  // Of a batch it is the first, and takes its time: half a second, or until there is a listener.
  const Bell slow([&] {
    first = true;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (std::none_of(numbers.begin(), numbers.end(), is_listener) && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
  });
  std::vector<std::unique_ptr<Bell>> gone;
  for (int i = 0; i < 64; ++i) numbers.push_back(gone.emplace_back(std::make_unique<Bell>(nullptr))->fd());
  gate.ring();
  await(held);
  slow.ring();
  for (const auto& bell : gone) bell->ring();
  go = true;
  await(first);  // it has fetched them all
  gone.clear();

  // Whoever is stuck is helped on, so that this fails instead of waiting for ever.
  std::atomic<bool> opened{false};
  bool helped = false;
  std::thread helper([&] {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!opened && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (opened) return;
    helped = true;
    const std::string name = socket_of(spec);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const UniqueFd client(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    await(opened);
  });
  {
    const Endpoint server(open_udp(spec));
  }
  opened = true;
  helper.join();
  EXPECT_FALSE(helped) << "the interrupt thread waited for somebody to accept";
}

// memif's driver frees what it knows of its socket and leaves it to DPDK's interrupt thread: a client that came again
// woke that thread into free memory, and for ever.
TEST_F(Application, AListenerGoesWithTheLastPortThatUsesIt) {
  const fairlead::test::MemifWire wire, other;
  const std::string first = wire.server(",id=5");
  const std::string device = other.server().substr(0, other.server().find(','));
  const std::string second = device + first.substr(first.find(','), first.find(",id=") - first.find(',')) + ",id=6";
  for (int round = 0; round < 3; ++round) {
    auto a = std::make_unique<Endpoint>(open_udp(first));
    auto b = std::make_unique<Endpoint>(open_udp(second));
    a.reset();
    EXPECT_TRUE(somebody_listens(socket_of(second))) << "one port has it still";
    b.reset();
    EXPECT_FALSE(somebody_listens(socket_of(second))) << round;
  }
}

}  // namespace
}  // namespace fairlead::soft::test
