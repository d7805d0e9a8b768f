// What a network and a peer may do wrong: the specified answer, and nothing else changes. Of the process's own limits
// and of memory that goes away: fork_test.cc, fault_memory_test.cc.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <random>

#include "base/unique_fd.h"
#include "fairlead/log.h"
#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/observe/refuse.h"

namespace fairlead::soft::test {
namespace {

bool all_zero(const Endpoint& end) { return are_all(end.buffer, std::byte{0}); }

/// Runs `body` in a process of its own, so that what it does to the process is gone afterwards.
void in_a_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    set_log_level(LogLevel::kOff);
    body();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(BadBytes, ToThePortAreDroppedAndTheDeviceGoesOn) {
  Endpoint a(open_udp());
  Endpoint b(open_udp());
  connect(a, b, {.mtu = IBV_MTU_4096});
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(kRoceUdpPort);
  to.sin_addr.s_addr = htonl(Gid::from_verbs(b.gid()).ipv4());
  std::mt19937 random(5);
  constexpr std::size_t kLongest = 9000;
  std::vector<std::uint8_t> bytes(kLongest + 64);
  for (int i = 0; i < 5000; ++i) {
    std::size_t length = random() % (i % 10 == 0 ? kLongest : 100);
    for (std::size_t k = 0; k < length; ++k) bytes[k] = static_cast<std::uint8_t>(random());
    if (i % 2 == 0) {  // as long as a packet and addressed to the queue pair
      length = 64 + length / 4 * 4;
      bytes[0] = static_cast<std::uint8_t>(random() % 24);
      bytes[1] = 0;
      for (int k = 0; k < 3; ++k)
        bytes[5 + static_cast<std::size_t>(k)] = static_cast<std::uint8_t>(b.qp->qp_num >> (16 - 8 * k));
    }
    ::sendto(socket.get(), bytes.data(), length, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
    if (i % 50 == 0) b.poll();
  }
  for (int i = 0; i < 1000; ++i) b.poll();
  EXPECT_GT(b.counter("drop_malformed"), 100U);
  EXPECT_GT(b.counter("drop_wrong_source") + b.counter("drop_pkey") + b.counter("drop_icrc"), 100U);
  EXPECT_TRUE(all_zero(b));
  fill_pattern(a.buffer, 1);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 100'000, &b, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a.buffer.data(), b.buffer.data(), 100'000), 0);
}

TEST(BadPsn, AheadIsASequenceErrorAndBehindADuplicateButFarAwayItIsNeither) {
  RawPeer peer;
  const auto write = [&](Psn psn) {
    return Forged{
        .opcode = Opcode::kWriteOnly, .psn = psn, .payload = RawPeer::payload(64, 1), .reth = peer.target(0, 64)};
  };
  peer.send(write(peer.psn + 0xffff));
  peer.expect_answer(Syndrome::kNakSequence, peer.psn);
  peer.send(write(peer.psn - 0xffff));
  peer.expect_answer(Syndrome::kAck, peer.psn - 1);
  for (const std::uint32_t ahead : {0x10000U, 0x7ffffeU, 0x800002U, 0xff0000U}) peer.send(write(peer.psn + ahead));
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_EQ(peer.device->counter("drop_bogus"), 4U);
  EXPECT_TRUE(all_zero(*peer.device));
  peer.send(write(peer.psn));
  peer.expect_answer(Syndrome::kAck, peer.psn);
  EXPECT_FALSE(all_zero(*peer.device));
}

// IBTA 9.7.4.1.6: 2^31 bytes are the most that a request may ask for, so it is the region that is too short.
TEST(BadLength, OfTwoToThe31IsLegalAndOutOfBounds) {
  for (const Opcode opcode : {Opcode::kWriteFirst, Opcode::kReadRequest}) {
    for (const std::uint32_t length : {0x80000000U, 0x80000001U, 0xffffffffU}) {
      RawPeer peer;
      Forged packet{.opcode = opcode, .psn = peer.psn, .reth = peer.target(0, length)};
      if (opcode == Opcode::kWriteFirst) packet.payload = RawPeer::payload(1024, 1);
      peer.send(packet);
      peer.expect_answer(length == 0x80000000U ? Syndrome::kNakRemoteAccess : Syndrome::kNakInvalidRequest, peer.psn);
      EXPECT_TRUE(all_zero(*peer.device));
    }
  }
}

TEST(BadLength, NothingAtAllIsFineWithEveryOperationAndAnyAddress) {
  Simulation world;
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  connect(a, b);
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(b.post_recv(id, 0, 0), 0);
  const std::uint32_t key = b.mr->rkey;
  b.mr->rkey ^= 1;  // what the requests name; of nothing, it does not matter
  std::uint64_t id = 0;
  for (const ibv_wr_opcode opcode :
       {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ}) {
    ASSERT_EQ(a.post(opcode, id++, 0, 0, &b, 1U << 30), 0);
  }
  b.mr->rkey = key;
  ASSERT_TRUE(world.run_until([&] { return a.done.size() == 5 && b.done.size() == 3; }));
  for (const ibv_wc& completion : a.done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS) << completion.wr_id;
  for (const ibv_wc& completion : b.done) {
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.byte_len, 0U);
  }
  EXPECT_TRUE(all_zero(a) && all_zero(b));
}

TEST(BadMtu, EndsThatDisagreeFailTheRequestAndWriteNothing) {
  for (const bool larger : {false, true}) {
    Simulation world;
    Endpoint& a = *world.a;
    Endpoint& b = *world.b;
    ASSERT_EQ(a.to_init(), 0);
    ASSERT_EQ(b.to_init(), 0);
    const ConnectOptions of_a{.mtu = larger ? IBV_MTU_2048 : IBV_MTU_512};
    const ConnectOptions of_b{.mtu = IBV_MTU_1024};
    ASSERT_EQ(a.to_rtr(b.qp->qp_num, b.gid(), of_a), 0);
    ASSERT_EQ(b.to_rtr(a.qp->qp_num, a.gid(), of_b), 0);
    ASSERT_EQ(a.to_rts(of_a), 0);
    ASSERT_EQ(b.to_rts(of_b), 0);
    fill_pattern(a.buffer, 1);
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 5000, &b, 0), 0);
    ASSERT_TRUE(world.run_until([&] { return a.done.size() == 1; }));
    EXPECT_EQ(a.done[0].status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_TRUE(all_zero(b));
    EXPECT_EQ(b.state(), IBV_QPS_ERR);
  }
}

TEST(BadLimits, WithoutDescriptorsThereIsNoCompletionChannelButTheRestWorks) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer makes a pipe to look at a thrown object";
#endif
  in_a_child([] {
    Endpoint a(open_udp());
    Endpoint b(open_udp());
    const int lowest = ::dup(0);
    ::close(lowest);
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = static_cast<rlim_t>(lowest);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    errno = 0;
    EXPECT_EQ(api().create_comp_channel(a.context), nullptr);
    EXPECT_EQ(errno, EMFILE);
    EXPECT_NE(take_refusal().find("ulimit -n"), std::string::npos);
    connect(a, b);  // without sockets of their own, queue pairs send from the device's
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 100'000, &b, 0), 0);
    ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
    EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  });
}

}  // namespace
}  // namespace fairlead::soft::test
