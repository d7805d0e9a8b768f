// Processes that share one address: who gets which packet, and what is left of a member that is killed.
#include "verbs/soft/port/udp/shared_address.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "tests/out_of_descriptors.h"
#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/port/udp/udp_socket.h"
#include "verbs/soft/wire/icrc.h"

namespace fairlead::soft::test {
namespace {

// An address of this test's own, so that tests that run beside it do not meet it. The same in forked children.
const std::string& address() {
  static const std::string kAddress = "127.77.0." + std::to_string(1 + ::getpid() % 250);
  return kAddress;
}

// A device of another name each time: contexts of one device of one process are one member.
ibv_context* open_shared() {
  static int count = 0;
  const auto device = find_or_add_device({"soft" + std::to_string(count++), Profile::kFull, "udp", address()});
  EXPECT_TRUE(device);
  ibv_context* context = api().open_device(*device);
  EXPECT_NE(context, nullptr);
  return context;
}

unsigned member_of(const Endpoint& end) { return end.qp->qp_num >> 16; }

// One write and its completion.
ibv_wc_status write(Endpoint& from, Endpoint& to) {
  from.done.clear();
  EXPECT_EQ(from.post(IBV_WR_RDMA_WRITE, 1, 0, 100'000, &to, 0), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (from.done.empty() && std::chrono::steady_clock::now() < end) {
    from.poll();
    to.poll();
  }
  return from.done.empty() ? IBV_WC_GENERAL_ERR : from.done[0].status;
}

// Numbers of this test's own too: other tests' devices have theirs by the same directory, if they do not name another.
class OwnDirectory : public testing::Environment {
 public:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("fairlead_places_" + std::to_string(::getpid()));
    ::setenv("FAIRLEAD_SOFT_DIRECTORY", path_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

 private:
  std::string path_;
};
[[maybe_unused]] const auto* const kOwnDirectory = testing::AddGlobalTestEnvironment(new OwnDirectory);

// A process that is a member until it is killed.
class Member {
 public:
  Member() {
    static_cast<void>(address());
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    process_ = ::fork();
    if (process_ == 0) {
      Endpoint end(open_shared());
      const std::uint32_t qpn = end.qp->qp_num;
      [[maybe_unused]] const ssize_t written = ::write(pipe[1], &qpn, sizeof(qpn));
      ::pause();
      ::_exit(0);
    }
    EXPECT_EQ(::read(pipe[0], &qpn, sizeof(qpn)), static_cast<ssize_t>(sizeof(qpn)));
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  ~Member() { end(); }
  void end() {
    if (process_ < 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  [[nodiscard]] unsigned member() const { return qpn >> 16; }
  std::uint32_t qpn = 0;

 private:
  pid_t process_ = -1;
};

TEST(SharedAddress, MembersHaveOneGidAndQpnsOfTheirOwn) {
  Endpoint a(open_shared());
  Endpoint b(open_shared());
  Endpoint c(open_shared());
  EXPECT_EQ(Gid::from_verbs(a.gid()), Gid::from_verbs(c.gid()));
  EXPECT_EQ(member_of(a), 0U);
  EXPECT_EQ(member_of(b), 1U);
  EXPECT_EQ(member_of(c), 2U);
  connect(a, c);
  EXPECT_EQ(write(a, c), IBV_WC_SUCCESS);
  EXPECT_EQ(write(c, a), IBV_WC_SUCCESS);
  EXPECT_EQ(b.counter("rcvd_pkts"), 0U);
}

TEST(SharedAddress, AMembersEndMovesNobodysPackets) {
  Endpoint first(open_shared());
  auto second = std::make_unique<Member>();
  auto third = std::make_unique<Endpoint>(open_shared());
  Endpoint fourth(open_shared());
  EXPECT_EQ(second->member(), 1U);
  EXPECT_EQ(member_of(fourth), 3U);
  connect(first, fourth);
  EXPECT_EQ(write(first, fourth), IBV_WC_SUCCESS);
  second->end();  // killed
  EXPECT_EQ(write(first, fourth), IBV_WC_SUCCESS);
  EXPECT_EQ(write(fourth, first), IBV_WC_SUCCESS);
  third.reset();  // closed
  EXPECT_EQ(write(first, fourth), IBV_WC_SUCCESS);
  EXPECT_EQ(write(fourth, first), IBV_WC_SUCCESS);

  // Who joins takes the lowest place that is free, and with it the socket that the dead left.
  Endpoint newcomer(open_shared());
  Endpoint other(open_shared());
  EXPECT_EQ(member_of(newcomer), 1U);
  EXPECT_EQ(member_of(other), 2U);
  connect(newcomer, other);
  EXPECT_EQ(write(newcomer, other), IBV_WC_SUCCESS);
  EXPECT_EQ(write(first, fourth), IBV_WC_SUCCESS);
}

TEST(SharedAddress, TheHighestMembersEndFreesItsPlace) {
  Endpoint first(open_shared());
  for (int round = 0; round < 20; ++round) {
    Member second;
    Member third;
    ASSERT_EQ(second.member(), 1U);
    ASSERT_EQ(third.member(), 2U);
    second.end();
    third.end();
    Endpoint a(open_shared());
    Endpoint b(open_shared());
    ASSERT_EQ(member_of(a), 1U);
    connect(a, b);
    ASSERT_EQ(write(a, b), IBV_WC_SUCCESS);
  }
}

// Longer than those who join wait for an answer.
TEST(SharedAddress, IsJoinedLongAfterItWasFounded) {
  Endpoint first(open_shared());
  ::usleep(2'200'000);
  Endpoint second(open_shared());
  EXPECT_EQ(member_of(second), 1U);
  connect(first, second);
  EXPECT_EQ(write(first, second), IBV_WC_SUCCESS);
}

// The founder's death must not take the group with it.
TEST(SharedAddress, TheFounderMayDieToo) {
  auto founder = std::make_unique<Member>();
  Endpoint a(open_shared());
  Endpoint b(open_shared());
  connect(a, b);
  founder->end();
  EXPECT_EQ(write(a, b), IBV_WC_SUCCESS);
  EXPECT_EQ(write(b, a), IBV_WC_SUCCESS);
  Member again;
  EXPECT_EQ(again.member(), 0U);
}

// A peer that speaks plain RoCE v2 and does not know that the queue pair's process is gone.
TEST(SharedAddress, PacketsForTheDeadMeetSilence) {
  Endpoint first(open_shared());
  auto second = std::make_unique<Member>();
  Endpoint third(open_shared());
  auto last = std::make_unique<Member>();
  const std::uint32_t gone[] = {second->qpn, last->qpn, 0xabcdef, first.qp->qp_num ^ 1, 1, 0};
  second->end();
  last->end();

  Gid source;
  auto socket = bind_free_loopback(source);
  ASSERT_TRUE(socket);
  for (const std::uint32_t qpn : gone) {
    std::array<std::byte, Bth::kBytes + kIcrcBytes> packet{};
    Bth bth;
    bth.opcode = 0x04;  // RC SEND only
    bth.dest_qpn = qpn;
    bth.ack_request = true;
    bth.encode(packet.data());
    const Gid to = Gid::from_verbs(first.gid());
    const UdpFrame frame{source, to, kRoceUdpPort, kRoceUdpPort, 0, packet.size()};
    store_icrc(packet.data() + Bth::kBytes, icrc(frame, std::span(packet).first(Bth::kBytes)));
    const SocketAddress where(to, kRoceUdpPort);
    ASSERT_EQ(::sendto(socket->get(), packet.data(), packet.size(), 0, where.get(), where.size()),
              static_cast<ssize_t>(packet.size()));
  }
  for (int i = 0; i < 100; ++i) {
    first.poll();
    third.poll();
    ::usleep(1000);
  }
  // Whoever had this address before may have peers that still send here.
  std::byte answer;
  SocketAddress from;
  socklen_t size = sizeof(sockaddr_in6);
  while (::recvfrom(socket->get(), &answer, 1, MSG_DONTWAIT, from.get(), &size) != -1) {
    EXPECT_NE(from.gid(), Gid::from_verbs(first.gid())) << "somebody answered for the dead";
    size = sizeof(sockaddr_in6);
  }
}

// Does it with ever more descriptors, until there are enough. How often it was refused: at once, and for what it was.
int refusals_for_descriptors(const std::function<Status()>& action) {
  for (int left = 0; left < 20; ++left) {
    const Status status = [&] {
      const fairlead::test::OutOfDescriptors limit(left);
      return action();
    }();
    if (status.ok()) return left;
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << left << ": " << status.message();
    EXPECT_NE(status.message().find("ulimit -n"), std::string::npos) << left << ": " << status.message();
    EXPECT_EQ(status.message().find("choose another port"), std::string::npos) << left << ": " << status.message();
  }
  ADD_FAILURE() << "still refused";
  return 0;
}

TEST(SharedAddress, SaysWhereDescriptorsAreWanting) {
  constexpr std::uint32_t kService = 0x01061234;
  const auto at = parse_address(address());
  ASSERT_TRUE(at);
  const Member founder;  // of another process: one without descriptors answers nobody
  EXPECT_GE(refusals_for_descriptors([&] { return SharedAddress::join(*at, 1).status(); }), 4);
  const auto second = SharedAddress::join(*at, 1);
  ASSERT_TRUE(second && *second);
  EXPECT_GE(refusals_for_descriptors([&] { return (*second)->take_requests(kService); }), 2);

  // Who leaves a service does so without descriptors, too.
  const auto third = SharedAddress::join(*at, 2);
  ASSERT_TRUE(third && *third);
  EXPECT_EQ((*third)->take_requests(kService).code(), Code::kAlreadyExists);
  {
    const fairlead::test::OutOfDescriptors limit;
    (*second)->leave_requests(kService);
  }
  const Status taken = (*third)->take_requests(kService);
  EXPECT_TRUE(taken.ok()) << taken.message();
}

TEST(SharedAddress, AForkedChildKeepsNothingAlive) {
  auto parent = std::make_unique<Endpoint>(open_shared());
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_EQ(member_of(*parent), 0U);
  parent.reset();
  {
    Endpoint next(open_shared());
    EXPECT_EQ(member_of(next), 0U);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace fairlead::soft::test
