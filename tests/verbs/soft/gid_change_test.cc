// GIDs that come and go while a device is open, over both families: in a network namespace of its own, with real
// addresses.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>

#include "tests/no_threads.h"
#include "tests/out_of_descriptors.h"
#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/observe/refuse.h"
#include "verbs/soft/port/udp/group_names.h"
#include "verbs/soft/port/udp/udp_socket.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft::test {
namespace {

// However few descriptors this process may have.
bool ip(const std::string& words) { return std::system(("ulimit -S -n 100; exec ip " + words + " 2>&1").c_str()) == 0; }

// An interface of its own, without addresses, in a namespace of its own. Empty, or why not.
std::string prepare_host() {
  const uid_t user = ::getuid();
  if (::unshare(user == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) return "no network namespace";
  if (user != 0) return "the namespace is another user's";
  if (!ip("link set lo up")) return "no program 'ip'";
  if (!ip("link add d0 type veth peer name d1")) return "no interfaces";
  ip("link set d0 addrgenmode none");
  ip("link set d1 addrgenmode none");
  ip("link set d1 mtu 9000 up");
  return ip("link set d0 mtu 9000 up") ? "" : "the interface does not come up";
}

std::string gid_text(ibv_context* context, int index) {
  ibv_gid raw{};
  EXPECT_EQ(api().query_gid(context, 1, index, &raw), 0);
  const Gid gid = Gid::from_verbs(raw);
  return gid.is_null() ? "" : to_string(gid);
}

// The index of a GID, which is the system's choice where several come at once; 0 if it does not come. The kernel tells
// of an IPv6 address a moment after it has it.
std::uint8_t index_of(ibv_context* context, const std::string& gid) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  do {
    for (std::uint8_t index = 1; index < kGidTableLength; ++index) {
      if (gid_text(context, index) == gid) return index;
    }
    ::usleep(1000);
  } while (std::chrono::steady_clock::now() < end);
  return 0;
}

// The next asynchronous event, at the latest after a while.
ibv_event_type next_event(ibv_context* context) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  std::thread waiter([&] { EXPECT_EQ(api().get_async_event(context, &event), 0); });
  waiter.join();
  EXPECT_EQ(event.element.port_num, 1);
  api().ack_async_event(&event);
  return event.event_type;
}

void expect_transfer(Endpoint& a, Endpoint& b, std::uint8_t a_index, std::uint8_t b_index) {
  const ConnectOptions from_a{.mtu = IBV_MTU_4096, .gid_index = a_index};
  const ConnectOptions from_b{.mtu = IBV_MTU_4096, .gid_index = b_index};
  ASSERT_EQ(a.to_init() | b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.qp->qp_num, b.gid(b_index), from_a), 0);
  ASSERT_EQ(b.to_rtr(a.qp->qp_num, a.gid(a_index), from_b), 0);
  ASSERT_EQ(a.to_rts(from_a) | b.to_rts(from_b), 0);
  a.done.clear();
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 1'000'000, &b, 0), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (a.done.empty() && std::chrono::steady_clock::now() < end) {
    a.poll();
    b.poll();
  }
  ASSERT_EQ(a.done.size(), 1U);
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.counter("drop_icrc") + a.counter("icrc_explained") + b.counter("drop_icrc"), 0U);
  EXPECT_EQ(a.to_state(IBV_QPS_RESET) | b.to_state(IBV_QPS_RESET), 0);
}

void follow_addresses() {
  Endpoint a(open_udp());
  EXPECT_EQ(gid_text(a.context, 2), "");
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0"));
  EXPECT_EQ(next_event(a.context), IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(gid_text(a.context, 2), "10.1.2.3");
  ASSERT_TRUE(ip("addr add fd00::1/64 dev d0 nodad"));
  EXPECT_EQ(next_event(a.context), IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(gid_text(a.context, 3), "fd00::1");

  // Gone, and another in its place; the others keep theirs.
  ASSERT_TRUE(ip("addr del 10.1.2.3/24 dev d0"));
  EXPECT_EQ(next_event(a.context), IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(gid_text(a.context, 2), "");
  EXPECT_EQ(gid_text(a.context, 3), "fd00::1");
  EXPECT_EQ(a.to_init(), 0);
  EXPECT_NE(a.to_rtr(7, a.gid(1), {.gid_index = 2}), 0);
  ASSERT_TRUE(ip("addr add 10.1.2.4/24 dev d0"));
  EXPECT_EQ(next_event(a.context), IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(gid_text(a.context, 2), "10.1.2.4");
  EXPECT_EQ(a.to_state(IBV_QPS_RESET), 0);
}

ibv_port_state port_state(ibv_context* context) {
  ibv_port_attr port{};
  EXPECT_EQ(api().query_port(context, 1, &port), 0);
  return port.state;
}

// The port is up as long as an interface that is up has the device's address.
void follow_the_interface() {
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0"));
  const auto device = find_or_add_device({"soft1", Profile::kFull, "udp", "10.1.2.3"});
  ASSERT_TRUE(device);
  ibv_context* context = api().open_device(*device);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(port_state(context), IBV_PORT_ACTIVE);
  const auto changes_to = [&](ibv_event_type type, ibv_port_state state) {
    EXPECT_EQ(next_event(context), IBV_EVENT_GID_CHANGE);
    EXPECT_EQ(next_event(context), type);
    EXPECT_EQ(port_state(context), state);
  };
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(ip("link set d0 down"));
    changes_to(IBV_EVENT_PORT_ERR, IBV_PORT_DOWN);
    ASSERT_TRUE(ip("link set d0 up"));
    changes_to(IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE);
  }
  ASSERT_TRUE(ip("addr del 10.1.2.3/24 dev d0"));
  changes_to(IBV_EVENT_PORT_ERR, IBV_PORT_DOWN);
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0"));
  changes_to(IBV_EVENT_PORT_ACTIVE, IBV_PORT_ACTIVE);
  EXPECT_EQ(api().close_device(context), 0);
}

void open_while_the_interface_is_down() {
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0") && ip("link set d0 down"));
  const auto device = find_or_add_device({"soft1", Profile::kFull, "udp", "10.1.2.3"});
  ASSERT_TRUE(device);
  errno = 0;
  EXPECT_EQ(api().open_device(*device), nullptr);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  const auto refused = open_device(*device);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("bring the interface up"), std::string::npos) << refused.error().message();
  ASSERT_TRUE(ip("link set d0 up"));
  ibv_context* context = api().open_device(*device);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(api().close_device(context), 0);
}

// Who cannot look does not take the host for one without addresses, and looks again.
void follow_addresses_without_descriptors() {
  Endpoint a(open_udp());
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0"));
  ASSERT_EQ(index_of(a.context, "10.1.2.3"), 2);
  const std::string own = gid_text(a.context, 1);
  for (const int left : {0, 1}) {  // a list takes two
    const std::string added = fmt::format("10.1.2.{}", 4 + left);
    {
      const fairlead::test::OutOfDescriptors limit(left);
      ASSERT_TRUE(ip("addr add " + added + "/24 dev d0"));
      EXPECT_EQ(gid_text(a.context, 1), own);
      EXPECT_EQ(gid_text(a.context, 2), "10.1.2.3");
      EXPECT_EQ(gid_text(a.context, 3 + left), "");
    }
    EXPECT_EQ(gid_text(a.context, 3 + left), added) << "nothing has happened since";
  }
}

// Two devices of one process: they differ in name, else they would be one.
void transfer_over_new_gids() {
  Endpoint a(open_udp());
  const auto other = find_or_add_device({"soft1", Profile::kFull, "udp", ""});
  ASSERT_TRUE(other);
  Endpoint b(api().open_device(*other));
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0") && ip("addr add fd00::1/64 dev d0 nodad") &&
              ip("addr add fd00::2/64 dev d0 nodad"));
  const std::uint8_t first = index_of(a.context, "fd00::1");  // a query notices too
  const std::uint8_t second = index_of(b.context, "fd00::2");
  ASSERT_TRUE(first > 1 && second > 1);
  expect_transfer(a, b, index_of(a.context, "10.1.2.3"), 1);
  expect_transfer(a, b, first, second);
}

// Two servers at one network address of the host, neither of which was told to have it; and one that was.
void share_the_hosts_address() {
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0") && ip("addr add fd00::1/64 dev d0 nodad"));
  Endpoint a(open_udp());
  Endpoint b(open_udp());
  expect_transfer(a, b, index_of(a.context, "10.1.2.3"), index_of(b.context, "10.1.2.3"));
  expect_transfer(b, a, index_of(b.context, "fd00::1"), index_of(a.context, "fd00::1"));
  EXPECT_NE(a.qp->qp_num >> 16, b.qp->qp_num >> 16);
  const auto given = find_or_add_device({"soft2", Profile::kFull, "udp", "10.1.2.3"});
  ASSERT_TRUE(given);
  ibv_context* context = api().open_device(*given);
  ASSERT_NE(context, nullptr);
  Endpoint c(context);
  EXPECT_EQ(c.qp->qp_num >> 16, 0U);
  expect_transfer(c, a, 1, index_of(a.context, "10.1.2.3"));
  expect_transfer(b, c, index_of(b.context, "10.1.2.3"), 1);

  // QP1 is that of the device that came first.
  const Gid from = Gid::from_ipv4(0x0a010203);
  const UniqueFd socket = open_udp_socket(from, 0, PortUse::kSend);
  const SocketAddress to(from, kRoceUdpPort);
  std::array<std::byte, 280> packet{};
  Bth bth;
  bth.opcode = 0x64;  // UD SEND only
  bth.dest_qpn = 1;
  bth.encode(packet.data());
  packet[37] = std::byte{0x10};  // a request to connect; answers are for who asked
  const auto received = [&] {
    return std::array{a.counter("rcvd_pkts"), b.counter("rcvd_pkts"), c.counter("rcvd_pkts")};
  };
  const auto before = received();
  ASSERT_GT(::sendto(socket.get(), packet.data(), packet.size(), 0, to.get(), to.size()), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (received() == before && std::chrono::steady_clock::now() < end) {
    for (Endpoint* each : {&a, &b, &c}) each->poll();
  }
  EXPECT_EQ(received(), (std::array{before[0] + 1, before[1], before[2]}));
}

// A place at the address needs a thread of its own.
void join_without_threads() {
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0"));
  Endpoint a(open_udp());
  const std::uint8_t index = index_of(a.context, "10.1.2.3");
  ASSERT_EQ(a.to_init(), 0);
  {
    const fairlead::test::NoThreads none;
    EXPECT_EQ(a.to_rtr(7, a.gid(index), {.gid_index = index}), EAGAIN);
    const std::string why = take_refusal();
    EXPECT_NE(why.find("no thread for sharing 10.1.2.3"), std::string::npos) << why;
  }
  EXPECT_EQ(a.to_rtr(7, a.gid(index), {.gid_index = index}), 0);
  EXPECT_EQ(a.to_state(IBV_QPS_RESET), 0);
}

// Calls `join` while another joins the host's address, as far as can be seen, and has a peer write to `busy`, a device
// of the same core, before that one is done.
void write_while_joining(Endpoint& busy, const std::function<bool()>& join) {
  Endpoint peer(open_udp());
  connect(peer, busy);
  const auto names = GroupNames::open(Gid::from_ipv4(0x0a010203));
  ASSERT_TRUE(names);
  std::optional<Result<PrivateFd>> other = names->lock();
  ASSERT_TRUE(*other);
  std::atomic<bool> joined{false};
  bool succeeded = false;
  std::thread joining([&] {
    succeeded = join();
    joined = true;
  });
  ::usleep(200'000);  // it waits by now
  EXPECT_EQ(peer.post(IBV_WR_RDMA_WRITE, 1, 0, 100'000, &busy, 0), 0);
  EXPECT_TRUE(drive(peer, busy, [&] { return !peer.done.empty(); }, std::chrono::seconds(20)));
  EXPECT_FALSE(joined);
  other.reset();
  joining.join();
  EXPECT_TRUE(succeeded);
  ASSERT_EQ(peer.done.size(), 1U);
  EXPECT_EQ(peer.done[0].status, IBV_WC_SUCCESS);
}

void write_while_an_ah_joins() {
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0"));
  Endpoint busy(open_udp());
  ibv_ah_attr to{};
  to.is_global = to.port_num = 1;
  to.grh.dgid = busy.gid();
  to.grh.sgid_index = index_of(busy.context, "10.1.2.3");
  ibv_ah* ah = nullptr;
  write_while_joining(busy, [&] { return (ah = soft::api::create_ah(busy.pd, &to)) != nullptr; });
  EXPECT_EQ(soft::api::destroy_ah(ah), 0);
}

void write_while_a_queue_pair_joins() {
  ASSERT_TRUE(ip("addr add 10.1.2.3/24 dev d0"));
  const auto device = find_or_add_device({"soft1", Profile::kFull, "udp", ""});
  ASSERT_TRUE(device);
  Endpoint busy(api().open_device(*device));
  Endpoint other(api().open_device(*device));
  ASSERT_EQ(other.to_init(), 0);
  write_while_joining(
      busy, [&] { return other.to_rtr(7, busy.gid(), {.gid_index = index_of(busy.context, "10.1.2.3")}) == 0; });
}

void in_namespace(void (*body)()) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string why = prepare_host();
    if (!why.empty()) std::printf("cannot make a host: %s\n", why.c_str());
    if (!why.empty()) ::_exit(77);
    ::alarm(100);
    body();
    std::fflush(stdout);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs root, network namespaces and iproute2";
  EXPECT_EQ(status, 0);
}

TEST(GidChange, TheTableFollowsTheHostAndSaysSo) { in_namespace(&follow_addresses); }

TEST(GidChange, ThePortIsDownWhileNoInterfaceHasItsAddressAndSaysSo) { in_namespace(&follow_the_interface); }

TEST(GidChange, ADeviceOnAnInterfaceThatIsDownSaysWhatToDo) { in_namespace(&open_while_the_interface_is_down); }

TEST(GidChange, IsSeenLaterWhereNoDescriptorIsLeft) { in_namespace(&follow_addresses_without_descriptors); }

TEST(HostsAddress, IsNotJoinedWithoutAThreadAndThenIs) { in_namespace(&join_without_threads); }

TEST(HostsAddress, IsSharedUnasked) { in_namespace(&share_the_hosts_address); }

TEST(HostsAddress, IsJoinedByAnAhBesideTraffic) { in_namespace(&write_while_an_ah_joins); }

TEST(HostsAddress, IsJoinedByAQueuePairBesideTraffic) { in_namespace(&write_while_a_queue_pair_joins); }

TEST(GidChange, NewGidsOfBothFamiliesCarryTraffic) { in_namespace(&transfer_over_new_gids); }

}  // namespace
}  // namespace fairlead::soft::test
