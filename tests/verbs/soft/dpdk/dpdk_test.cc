// Ports over DPDK: two ends of a memif in one process, and what is refused.
//
// The process must be its own: DPDK is started in it once, by the first port that any test opens.
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include "base/unique_fd.h"
#include "tests/port_under_test.h"
#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/port/dpdk/dpdk_module.h"
#include "verbs/soft/port/port_spec.h"

namespace fairlead::soft::test {
namespace {

using Wire = fairlead::test::MemifWire;

// Opens nothing where the module was not built.
class Dpdk : public testing::Test {
 protected:
  void SetUp() override {
    const auto device = open_dpdk_device("net_null0", 256);
    if (!device && device.error().message().find("there is no libfairlead-dpdk.so") != std::string::npos) {
      GTEST_SKIP() << device.error().message();
    }
    ASSERT_TRUE(device) << device.status().to_string();
  }
  /// Why the port cannot be opened.
  static std::string refusal(const std::string& packet_io) {
    const auto spec = parse_port_spec(packet_io);
    if (!spec) return spec.error().message();
    const SteadyClock clock;
    const auto port = open_frame_ports(*spec, clock);
    return port ? "it was opened" : port.error().message();
  }
};

void expect_write_and_read(Endpoint& a, Endpoint& b, std::size_t bytes = 1'000'003) {
  a.done.clear();
  fill_pattern(a.buffer, 1);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 7, 5, bytes, &b, 9), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
  ASSERT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a.buffer.data() + 5, b.buffer.data() + 9, bytes), 0);
  std::memset(a.buffer.data(), 0, a.buffer.size());
  ASSERT_EQ(a.post(IBV_WR_RDMA_READ, 8, 1, bytes, &b, 9), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 2; }));
  ASSERT_EQ(a.done[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a.buffer.data() + 1, b.buffer.data() + 9, bytes), 0);
}

TEST(DpdkModule, WhereThereIsNoneTheRemedyIsNamed) {
  ::setenv("FAIRLEAD_MODULES", "/nowhere:/nowhere/else", 1);
  const auto device = open_dpdk_device("net_null7", 256);
  ::unsetenv("FAIRLEAD_MODULES");
  if (device) GTEST_SKIP() << "a test before this one has loaded the module, which stays";
  EXPECT_THAT(device.error().message(),
              testing::HasSubstr("there is no libfairlead-dpdk.so in /nowhere, /nowhere/else"));
  EXPECT_THAT(device.error().message(), testing::HasSubstr("libdpdk-dev"));
}

TEST_F(Dpdk, WriteReadAndSend) {
  const Wire wire;
  Endpoint a(open_udp(wire.server()));
  Endpoint b(open_udp(wire.client()));
  connect(a, b, {.mtu = IBV_MTU_4096});
  expect_write_and_read(a, b);
  ASSERT_EQ(b.post_recv(70, 2'000'000, 100'000), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND, 9, 0, 70'001, nullptr, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 3 && b.done.size() == 1; }));
  EXPECT_EQ(b.done[0].byte_len, 70'001U);
  EXPECT_EQ(a.counter("send_err"), 0U);
  EXPECT_EQ(b.counter("icrc_explained"), 0U);
}

TEST_F(Dpdk, OverIpv6) {
  const Wire wire;
  Endpoint a(open_udp(wire.server(",ip=2001:db8::1/64")));
  Endpoint b(open_udp(wire.client(",ip=2001:db8::2/64")));
  connect(a, b, {.mtu = IBV_MTU_4096});
  expect_write_and_read(a, b);
}

// The address of each end, then the one that its station's Ethernet address makes.
TEST_F(Dpdk, OverRoceV1) {
  for (const auto& [mine, theirs] : {std::pair(2, 2), std::pair(0, 0), std::pair(2, 0)}) {
    SCOPED_TRACE(fmt::format("GID {} to {}", mine, theirs));
    const Wire wire;
    Endpoint a(open_udp(wire.server(",drop=0.01,reorder=0.01,seed=3")));
    Endpoint b(open_udp(wire.client()));
    ibv_gid_entry entry{};
    ASSERT_EQ(api().query_gid_ex(a.context, 1, static_cast<std::uint32_t>(mine), &entry), 0);
    EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V1));
    const ConnectOptions to_b{.mtu = IBV_MTU_4096, .timeout = 17, .gid_index = static_cast<std::uint8_t>(mine)};
    const ConnectOptions to_a{.mtu = IBV_MTU_4096, .timeout = 17, .gid_index = static_cast<std::uint8_t>(theirs)};
    ASSERT_EQ(a.to_init(), 0);
    ASSERT_EQ(b.to_init(), 0);
    ASSERT_EQ(a.to_rtr(b.qp->qp_num, b.gid(theirs), to_b), 0);
    ASSERT_EQ(b.to_rtr(a.qp->qp_num, a.gid(mine), to_a), 0);
    ASSERT_EQ(a.to_rts(to_b), 0);
    ASSERT_EQ(b.to_rts(to_a), 0);
    expect_write_and_read(a, b);
    EXPECT_EQ(b.counter("drop_icrc"), 0U);
  }
}

TEST_F(Dpdk, ABadNetworkLosesNothing) {
  const Wire wire;
  Endpoint a(open_udp(wire.server(",drop=0.01,reorder=0.01,duplicate=0.01,seed=3")));
  Endpoint b(open_udp(wire.client(",drop=0.01,corrupt=0.002,delay_us=20,seed=4")));
  connect(a, b, {.mtu = IBV_MTU_4096, .timeout = 17});
  expect_write_and_read(a, b, 4'000'000);
}

TEST_F(Dpdk, PayloadIsSentFromWhereItLies) {
  const Wire wire;
  Endpoint a(open_udp(wire.server(",transmit=zero-copy")));
  Endpoint b(open_udp(wire.client(",transmit=zero-copy")));
  connect(a, b, {.mtu = IBV_MTU_4096});
  expect_write_and_read(a, b);
  expect_write_and_read(b, a, 4097);
  EXPECT_EQ(b.counter("drop_icrc"), 0U);
  EXPECT_EQ(a.counter("send_err"), 0U);
}

TEST_F(Dpdk, PayloadIsSentFromWhereItLiesOverABadNetwork) {
  const Wire wire;
  Endpoint a(open_udp(wire.server(",transmit=zero-copy,drop=0.01,reorder=0.01,seed=3")));
  Endpoint b(open_udp(wire.client(",transmit=zero-copy,drop=0.01,seed=4")));
  connect(a, b, {.mtu = IBV_MTU_4096, .timeout = 17});
  expect_write_and_read(a, b, 4'000'000);
}

TEST_F(Dpdk, PayloadIsSentFromWhereItLiesOverVhost) {
  const std::string path = fmt::format("/tmp/fairlead-test-{}-vhost", ::getpid());
  {
    Endpoint a(open_udp(fmt::format("dpdk:net_vhost940,iface={},transmit=zero-copy", path)));
    const std::string peer = fmt::format("dpdk:net_virtio_user940,path={},queue_size=1024", path);
    EXPECT_THAT(refusal(peer + ",transmit=zero-copy"), testing::HasSubstr("out of DPDK's own memory only"));
    Endpoint b(open_udp(peer));
    connect(a, b, {.mtu = IBV_MTU_4096, .timeout = 18});
    expect_write_and_read(a, b);
    EXPECT_EQ(b.counter("drop_icrc"), 0U);
  }
  ::unlink(path.c_str());
}

TEST_F(Dpdk, ATargetThatNeverPollsIsServedByItsWatcher) {
  const Wire wire;
  Endpoint a(open_udp(wire.server()));
  Endpoint b(open_udp(wire.client()));
  connect(a, b, {.mtu = IBV_MTU_4096});
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 3'000'000, &b, 0), 0);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (a.done.empty() && std::chrono::steady_clock::now() < limit) a.poll();
  ASSERT_EQ(a.done.size(), 1U);
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
}

TEST_F(Dpdk, WhoSleepsOnTheChannelIsWoken) {
  const Wire wire;
  Endpoint a(open_udp(wire.server()), {.channel = true});
  Endpoint b(open_udp(wire.client()));
  connect(a, b);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that the watcher naps long
  for (std::uint64_t round = 0; round < 20; ++round) {
    ASSERT_EQ(a.post_recv(round, 0, 8), 0);
    ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
    ASSERT_EQ(b.post(IBV_WR_SEND, round, 100, 8, nullptr, 0, 0), 0);
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    ASSERT_EQ(api().get_cq_event(a.channel, &cq, &user), 0);
    api().ack_cq_events(cq, 1);
    ibv_wc completion{};
    ASSERT_EQ(ibv_poll_cq(cq, 1, &completion), 1);
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }
}

TEST_F(Dpdk, BothEndsMayBeOneDevice) {
  const Wire wire;
  const std::string packet_io = wire.server();
  const auto device = find_or_add_device({"loop", Profile::kFull, packet_io, ""});
  ASSERT_TRUE(device);
  Endpoint a(api().open_device(*device));
  Endpoint b(api().open_device(*device));
  connect(a, b, {.mtu = IBV_MTU_4096});
  expect_write_and_read(a, b);
}

TEST_F(Dpdk, TransfersResumeWhenThePeersPortIsThereAgain) {
  const Wire wire;
  Endpoint a(open_udp(wire.server(",ip=10.1.0.1/24")));
  auto b = std::make_unique<Endpoint>(open_udp(wire.client(",ip=10.1.0.2/24")));
  connect(a, *b, {.mtu = IBV_MTU_4096, .timeout = 18});
  expect_write_and_read(a, *b);
  b.reset();
  Endpoint other(open_udp(Wire().server()));  // meanwhile the process opens others
  b = std::make_unique<Endpoint>(open_udp(wire.client(",ip=10.1.0.2/24")));
  ASSERT_EQ(a.to_state(IBV_QPS_RESET), 0);
  connect(a, *b, {.mtu = IBV_MTU_4096, .timeout = 18});
  expect_write_and_read(a, *b);
}

// A program that ends once it has its message owes the sender an acknowledgement. Without one the sender gives up, once
// it has had every chance to look.
TEST_F(Dpdk, WhatWasSentLastArrivesThoughThePortIsClosedAtOnce) {
  for (int round = 0; round < 10; ++round) {
    const Wire wire;
    Endpoint a(open_udp(wire.server()));
    std::optional<Endpoint> b(std::in_place, open_udp(wire.client()));
    connect(a, *b, {.mtu = IBV_MTU_4096, .timeout = 18, .retry_cnt = 1});
    ASSERT_EQ(b->post_recv(1, 0, 8), 0);
    ASSERT_EQ(a.post(IBV_WR_SEND, 1, 0, 8, nullptr, 0), 0);
    while (b->done.empty()) b->poll();  // a does not look meanwhile, and then every other millisecond
    std::thread sender([&a] {
      while (a.done.empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        a.poll();
      }
    });
    b.reset();
    sender.join();
    ASSERT_EQ(a.done[0].status, IBV_WC_SUCCESS) << round;
  }
}

TEST_F(Dpdk, TheCallersThreadStaysAsItWas) {
  cpu_set_t before, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  const Wire wire;
  Endpoint a(open_udp(wire.server()));
  ASSERT_EQ(::sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST_F(Dpdk, WhatCannotBeIsRefusedWithItsRemedy) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal("dpdk:net_pigeon0"), HasSubstr("apt-get install librte-net-pigeon23"));
  EXPECT_THAT(refusal("dpdk:net_ring0"), HasSubstr("use net_memif"));
  EXPECT_THAT(refusal("dpdk:net_memif900,role=conductor"), HasSubstr("Unknown role: conductor"));
  EXPECT_THAT(refusal("dpdk:net_memif901,bsize=128"), HasSubstr("raise its MTU or buffer size (bsize"));
  EXPECT_THAT(refusal("dpdk:net_af_packet900"), HasSubstr("net_af_packet900 needs iface=INTERFACE"));
  EXPECT_THAT(refusal("dpdk:net_af_packet900,iface=nowhere7"), HasSubstr("no network interface 'nowhere7'"));
  EXPECT_THAT(refusal("dpdk:0000:ff:1f.0"), HasSubstr("open the PCI device first"));
  EXPECT_THAT(refusal("dpdk:memif"), HasSubstr("bench --local"));
  const std::string remedy = "leave out transmit=zero-copy";
  EXPECT_THAT(refusal("dpdk:net_null901,transmit=zero-copy"), HasSubstr("no scattered transmit); " + remedy));
  EXPECT_THAT(refusal("dpdk:net_null902,transmit=smoke"), HasSubstr("transmit takes copy or zero-copy"));
  const Wire wire;
  const Endpoint holder(open_udp(wire.server()));
  EXPECT_THAT(refusal(wire.server()), HasSubstr("is in use in this process"));
}

TEST_F(Dpdk, SocketsThatCannotServeAreRefusedBeforeTheDriverIsAsked) {
  using testing::HasSubstr;
  const std::string folder = testing::TempDir();
  const std::string file = fmt::format("{}fairlead-socket-{}", folder, ::getpid());
  const auto memif = [&](std::string_view role, const std::string& socket) {
    return refusal(fmt::format("dpdk:net_memif902,role={},socket-abstract=no,socket={}", role, socket));
  };
  EXPECT_THAT(memif("server", "/nowhere/s"), HasSubstr("no folder /nowhere for the socket /nowhere/s; make it"));
  EXPECT_THAT(memif("client", "/etc/passwd"), HasSubstr("/etc/passwd is there and is no socket; name another"));
  EXPECT_THAT(memif("server", folder + std::string(200, 'x')), HasSubstr("at most 107 are possible"));
  EXPECT_THAT(refusal("dpdk:net_vhost902"), HasSubstr("net_vhost902 needs iface=SOCKET"));
  EXPECT_THAT(refusal("dpdk:net_virtio_user902,path=" + file), HasSubstr("start the other end first"));
  {
    const UniqueFd held(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    file.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(held.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(held.get(), 4), 0);
    EXPECT_THAT(memif("server", file), HasSubstr("is another process's; name another"));
  }
  EXPECT_THAT(memif("server", file), HasSubstr("was left behind by a process that was killed; remove it: rm " + file));
  std::remove(file.c_str());
  const Wire wire;
  const Endpoint server(open_udp(wire.server()));
  std::string twice = wire.server();
  twice.replace(twice.find("net_memif"), twice.find(',') - twice.find("net_memif"), "net_memif903");
  EXPECT_THAT(refusal(twice), HasSubstr("socket=NAME has one server"));
}

TEST_F(Dpdk, TheReasonIsInTheErrorOfOpening) {
  const auto device = find_or_add_device({"bad", Profile::kFull, "dpdk:net_pigeon0", ""});
  ASSERT_TRUE(device);
  const auto opened = open_device(*device);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message(), testing::HasSubstr("apt-get install librte-net-pigeon23"));
}

// Where there are huge pages, DPDK takes more of them instead.
bool uses_huge_pages() {
  return std::system("grep -q hugetlbfs /proc/mounts && ! grep -q 'HugePages_Total: *0$' /proc/meminfo") == 0;
}

TEST_F(Dpdk, MoreBuffersThanThereIsMemoryAreRefused) {
  if (uses_huge_pages()) GTEST_SKIP() << "there are huge pages";
  std::vector<std::unique_ptr<FrameDevice>> devices;
  Status status;
  for (int i = 0; i < 3 && status.ok(); ++i) {
    auto device = open_dpdk_device(fmt::format("net_memif{},role=server,socket=large{},bsize=60000", 910 + i, i), 256);
    status = device.status();
    if (device) devices.push_back(std::move(device->front()));
  }
  EXPECT_THAT(status.message(), testing::HasSubstr("memory=MEGABYTES"));
  devices.clear();
  // What the refused port had taken is there again.
  const Wire wire;
  Endpoint a(open_udp(wire.server()));
}

}  // namespace
}  // namespace fairlead::soft::test
