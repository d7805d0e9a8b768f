// Two devices of one process over UDP on loopback, or over the port under test, through VerbsApi only.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "fairlead/log.h"
#include "tests/own_address.h"
#include "tests/verbs/soft/endpoint.h"

namespace fairlead::soft::test {
namespace {

TEST(UdpEndToEnd, WriteReadAndSend) {
  Endpoint a(open_on_wire());
  Endpoint b(open_on_wire());
  connect(a, b, {.mtu = IBV_MTU_4096});
  fill_pattern(a.buffer, 1);
  constexpr std::size_t kBytes = 1'000'003;
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 7, 5, kBytes, &b, 9), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.done[0].wr_id, 7U);
  EXPECT_EQ(a.done[0].opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(a.buffer.data() + 5, b.buffer.data() + 9, kBytes), 0);

  std::memset(a.buffer.data(), 0, a.buffer.size());
  ASSERT_EQ(a.post(IBV_WR_RDMA_READ, 8, 1, kBytes, &b, 9), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 2; }));
  EXPECT_EQ(a.done[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.done[1].opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(std::memcmp(a.buffer.data() + 1, b.buffer.data() + 9, kBytes), 0);

  ASSERT_EQ(b.post_recv(70, 2'000'000, 100'000), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND_WITH_IMM, 9, 0, 70'001, nullptr, 0, IBV_SEND_SIGNALED, 0x01020304), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 3 && b.done.size() == 1; }));
  EXPECT_EQ(a.done[2].opcode, IBV_WC_SEND);
  EXPECT_EQ(b.done[0].opcode, IBV_WC_RECV);
  EXPECT_EQ(b.done[0].wr_id, 70U);
  EXPECT_EQ(b.done[0].byte_len, 70'001U);
  EXPECT_EQ(b.done[0].wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(b.done[0].imm_data, 0x01020304U);
  EXPECT_EQ(b.done[0].qp_num, b.qp->qp_num);
  EXPECT_EQ(b.done[0].src_qp, a.qp->qp_num);
  EXPECT_EQ(std::memcmp(a.buffer.data(), b.buffer.data() + 2'000'000, 70'001), 0);
}

TEST(UdpEndToEnd, CountsTheWritesThatNoCompletionTellsOf) {
  Endpoint a(open_on_wire());
  Endpoint b(open_on_wire());
  connect(a, b);
  const std::uint64_t before = api().activity(b.context).placed;
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_EQ(b.post_recv(i, 0, 8), 0);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, i, 0, 3000, &b, 0), 0);  // three packets
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE_WITH_IMM, 3, 0, 8, &b, 0), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND, 4, 0, 8, nullptr, 0), 0);
  ASSERT_EQ(a.post(IBV_WR_RDMA_READ, 5, 0, 8, &b, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 6 && b.done.size() == 2; }));
  EXPECT_EQ(api().activity(b.context).placed - before, 3U);
}

// Polls one end alone; the other is left to its watcher.
bool drive_one(Endpoint& end, const std::function<bool()>& finished) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!finished()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    end.poll();
  }
  return true;
}

TEST(UdpEndToEnd, ATargetThatNeverPollsIsServedByItsWatcher) {
  Endpoint a(open_on_wire());
  Endpoint b(open_on_wire());
  connect(a, b, {.mtu = IBV_MTU_4096});
  fill_pattern(a.buffer, 1);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 3'000'000, &b, 0), 0);
  ASSERT_EQ(a.post(IBV_WR_RDMA_READ, 2, 3'000'000, 1'000'000, &b, 0), 0);
  ASSERT_TRUE(drive_one(a, [&] { return a.done.size() == 2; }));
  EXPECT_EQ(a.done[1].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(a.buffer.data(), a.buffer.data() + 3'000'000, 1'000'000), 0);
}

// However much of the room that an acknowledgement makes another queue pair could take in one packet.
TEST(UdpEndToEnd, WhoWaitsForRoomGetsItBeforeThoseWhoHadTheirs) {
  constexpr std::size_t kWrites = 64, kBytes = 4 << 20;
  constexpr std::uint64_t kSmall = 1000;
  Endpoint a(open_on_wire());
  Endpoint b(open_on_wire());
  connect(a, b, {.mtu = IBV_MTU_4096});
  ibv_qp* const large[] = {a.qp, b.qp};
  a.qp = a.make_qp({});
  b.qp = b.make_qp({});
  connect(a, b, {.mtu = IBV_MTU_4096});
  ibv_qp* const small[] = {std::exchange(a.qp, large[0]), std::exchange(b.qp, large[1])};
  for (std::size_t i = 0; i < kWrites; ++i) ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, i, 0, kBytes, &b, 0), 0);
  std::size_t large_ended = 0;
  for (std::size_t round = 0; round < 4; ++round) {
    const std::size_t before = a.done.size();
    a.qp = small[0];
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, kSmall, 0, 8, &b, 0), 0);
    a.qp = large[0];
    const auto small_ended = [&] {
      return std::ranges::count(a.done, kSmall, &ibv_wc::wr_id) > static_cast<std::ptrdiff_t>(round);
    };
    ASSERT_TRUE(drive(a, b, small_ended));
    large_ended += a.done.size() - before - 1;
  }
  EXPECT_LE(large_ended, kWrites / 4);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == kWrites + 4; }));
  EXPECT_EQ(api().destroy_qp(small[0]), 0);
  EXPECT_EQ(api().destroy_qp(small[1]), 0);
}

TEST(UdpEndToEnd, WhoSleepsOnTheChannelIsWoken) {
  Endpoint a(open_on_wire(), {.channel = true});
  Endpoint b(open_on_wire(), {.channel = true});
  connect(a, b);
  constexpr std::uint64_t kRounds = 50;
  // Each end answers what it receives; neither polls but after an event.
  const auto play = [](Endpoint& end, bool begins) {
    std::uint64_t received = 0;
    // Before anything can complete: what completed before the arming raises no event.
    ASSERT_EQ(ibv_req_notify_cq(end.cq, 0), 0);
    for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(end.post_recv(i, 0, 8), 0);
    if (begins) {
      ASSERT_EQ(end.post(IBV_WR_SEND, 0, 100, 8, nullptr, 0, 0), 0);
    }
    while (received < kRounds) {
      ibv_cq* cq = nullptr;
      void* user = nullptr;
      ASSERT_EQ(api().get_cq_event(end.channel, &cq, &user), 0);
      api().ack_cq_events(cq, 1);
      ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
      ibv_wc completion{};
      while (ibv_poll_cq(cq, 1, &completion) == 1) {
        ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
        ++received;
        ASSERT_EQ(end.post_recv(received, 0, 8), 0);
        if (begins && received == kRounds) break;
        ASSERT_EQ(end.post(IBV_WR_SEND, 0, 100, 8, nullptr, 0, 0), 0);
      }
    }
  };
  std::thread other([&] { play(b, false); });
  play(a, true);
  other.join();
}

// At an address that no other process takes, has taken, or still sends to.
ibv_context* open_apart(std::string_view faults) {
  if (fairlead::test::over_memif()) return open_on_wire(faults);
  const auto device = find_or_add_device({"apart", Profile::kFull, fairlead::test::port_under_test(faults),
                                          to_string(Gid::from_ipv4(fairlead::test::own_address(60)))});
  EXPECT_TRUE(device) << device.status().to_string();
  return api().open_device(*device);
}

TEST(UdpEndToEnd, APortThatFallsSilentIsReported) {
  Endpoint a(open_apart(",silent_after=200"));  // of packets of whomever
  Endpoint b(open_on_wire());
  connect(a, b, {.timeout = 16, .retry_cnt = 2});  // a second and a half, more than a busy machine takes away
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 20'000, &b, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 2, 0, 1'000'000, &b, 0), 0);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 3, 0, 1'000'000, &b, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 3; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.done[1].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(a.done[2].status, IBV_WC_WR_FLUSH_ERR);
}

TEST(UdpEndToEnd, ANetworkThatLosesAndReordersDeliversAll) {
  Endpoint a(open_on_wire(",drop=0.01,reorder=0.01,duplicate=0.01,seed=3"));
  Endpoint b(open_on_wire(",drop=0.01,corrupt=0.002,delay_us=20,seed=4"));
  connect(a, b, {.mtu = IBV_MTU_4096, .timeout = 17});
  fill_pattern(a.buffer, 1);
  for (std::uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, id, id << 20, 1 << 20, &b, id << 20), 0);
  }
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 4; }));
  EXPECT_EQ(a.buffer, b.buffer);
  std::fill(a.buffer.begin(), a.buffer.end(), 0);
  for (std::uint64_t id = 0; id < 4; ++id) {
    ASSERT_EQ(a.post(IBV_WR_RDMA_READ, id, id << 20, 1 << 20, &b, id << 20), 0);
  }
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 8; }));
  EXPECT_EQ(a.buffer, b.buffer);
  for (const ibv_wc& completion : a.done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
}

// After dereg_mr the owner may do with the memory what it likes, whatever is still on its way.
TEST(UdpEndToEnd, DeregistrationUnderTrafficStopsIt) {
  Endpoint a(open_on_wire());
  Endpoint b(open_on_wire());
  connect(a, b, {.mtu = IBV_MTU_4096});
  std::fill(a.buffer.begin(), a.buffer.end(), std::uint8_t{1});
  for (std::uint64_t id = 0; id < 100; ++id) {
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, id, 0, 4 << 20, &b, 0), 0);
  }
  ASSERT_TRUE(drive_one(a, [&] { return a.done.size() >= 2; }));
  const std::uint32_t key = b.mr->rkey;
  ASSERT_EQ(api().dereg_mr(std::exchange(b.mr, nullptr)), 0);
  std::fill(b.buffer.begin(), b.buffer.end(), std::uint8_t{7});
  // Where this was slow the others are all done.
  ASSERT_EQ(a.post_to(IBV_WR_RDMA_WRITE, 100, a.sge(0, 4 << 20), reinterpret_cast<std::uint64_t>(b.buffer.data()), key),
            0);
  ASSERT_TRUE(drive_one(a, [&] { return a.done.size() == 101; }));
  EXPECT_TRUE(std::all_of(b.buffer.begin(), b.buffer.end(), [](std::uint8_t byte) { return byte == 7; }));
  const auto culprit = std::find_if(a.done.begin(), a.done.end(), [](const ibv_wc& c) { return c.status != 0; });
  ASSERT_NE(culprit, a.done.end());
  EXPECT_EQ(culprit->status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(std::all_of(culprit + 1, a.done.end(), [](const ibv_wc& c) { return c.status == IBV_WC_WR_FLUSH_ERR; }));
}

// Several threads share one device, each with a queue pair and a completion queue of its own, while others register.
TEST(UdpEndToEnd, ThreadsShareADevice) {
  ibv_context* const first = open_on_wire();
  ibv_context* contexts[2] = {first, api().open_device(first->device)};
  struct Side {
    ibv_pd* pd;
    ibv_cq* cq;
    ibv_qp* qp;
    ibv_mr* mr;
    std::vector<std::uint8_t> buffer;
  };
  constexpr int kThreads = 3;
  constexpr std::size_t kBytes = 50'000;
  const auto work = [&](int thread) {
    Side sides[2];
    for (int i = 0; i < 2; ++i) {
      Side& side = sides[i];
      side.buffer.resize(kBytes);
      side.pd = api().alloc_pd(contexts[i]);
      side.cq = api().create_cq(contexts[i], 64, nullptr, nullptr, 0);
      side.mr = api().reg_mr(side.pd, side.buffer.data(), kBytes, 7);
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = side.cq;
      init.cap = {16, 16, 1, 1, 0};
      init.qp_type = IBV_QPT_RC;
      side.qp = api().create_qp(side.pd, &init);
      ASSERT_NE(side.qp, nullptr);
    }
    for (int i = 0; i < 2; ++i) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_INIT;
      attr.port_num = 1;
      attr.qp_access_flags = 7;
      ASSERT_EQ(
          api().modify_qp(sides[i].qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
      attr.qp_state = IBV_QPS_RTR;
      attr.path_mtu = IBV_MTU_1024;
      attr.dest_qp_num = sides[1 - i].qp->qp_num;
      attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
      attr.min_rnr_timer = 1;
      attr.ah_attr.is_global = 1;
      attr.ah_attr.port_num = 1;
      attr.ah_attr.grh.sgid_index = 1;
      ASSERT_EQ(api().query_gid(contexts[1 - i], 1, 1, &attr.ah_attr.grh.dgid), 0);
      ASSERT_EQ(api().modify_qp(sides[i].qp, &attr,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
                0);
      attr.qp_state = IBV_QPS_RTS;
      attr.timeout = 17;
      attr.retry_cnt = attr.rnr_retry = 7;
      ASSERT_EQ(api().modify_qp(sides[i].qp, &attr,
                                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                    IBV_QP_MAX_QP_RD_ATOMIC),
                0);
    }
    for (int round = 0; round < 40; ++round) {
      fill_pattern(sides[0].buffer, static_cast<std::uint32_t>(thread * 1000 + round));
      ibv_sge segment{reinterpret_cast<std::uint64_t>(sides[0].buffer.data()), kBytes, sides[0].mr->lkey};
      ibv_send_wr wr{};
      wr.opcode = IBV_WR_RDMA_WRITE;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.sg_list = &segment;
      wr.num_sge = 1;
      wr.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(sides[1].buffer.data());
      wr.wr.rdma.rkey = sides[1].mr->rkey;
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_send(sides[0].qp, &wr, &bad), 0);
      ibv_wc completion{};
      while (ibv_poll_cq(sides[0].cq, 1, &completion) == 0) {
      }
      ASSERT_EQ(completion.status, IBV_WC_SUCCESS);
      ASSERT_EQ(sides[0].buffer, sides[1].buffer);
      ibv_mr* extra = api().reg_mr(sides[0].pd, sides[0].buffer.data(), 10, 0);
      ASSERT_EQ(api().dereg_mr(extra), 0);
    }
    for (Side& side : sides) {
      EXPECT_EQ(api().destroy_qp(side.qp), 0);
      EXPECT_EQ(api().dereg_mr(side.mr), 0);
      EXPECT_EQ(api().destroy_cq(side.cq), 0);
      EXPECT_EQ(api().dealloc_pd(side.pd), 0);
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  for (ibv_context* context : contexts) EXPECT_EQ(api().close_device(context), 0);
}

std::mutex g_log_mutex;
std::string g_log;

// As on a kernel device: programs leave objects behind, perftest does.
TEST(UdpAddresses, AClosedDeviceKeepsTheObjectsThatAreLeft) {
  ibv_context* device = open_udp();
  ibv_pd* pd = api().alloc_pd(device);
  ibv_cq* cq = api().create_cq(device, 16, nullptr, nullptr, 0);
  ASSERT_TRUE(pd != nullptr && cq != nullptr);
  EXPECT_EQ(api().close_device(device), 0);
  ibv_wc completion{};
  EXPECT_EQ(ibv_poll_cq(cq, 1, &completion), 0);
  EXPECT_EQ(api().destroy_cq(cq), 0);
  EXPECT_EQ(api().dealloc_pd(pd), 0);
}

TEST(UdpAddresses, OneThatIsTakenIsRefusedNamingItsHolder) {
  Endpoint a(open_udp());
  const std::string taken = to_string(Gid::from_verbs(a.gid()));
  const auto device = find_or_add_device({"soft1", Profile::kFull, "udp", taken});
  ASSERT_TRUE(device);
  set_log_sink([](LogLevel, std::string_view line) {
    const std::lock_guard lock(g_log_mutex);
    g_log.append(line);
  });
  errno = 0;
  EXPECT_EQ(api().open_device(*device), nullptr);
  EXPECT_EQ(errno, EADDRINUSE);
  set_log_sink(nullptr);
  const std::lock_guard lock(g_log_mutex);
  EXPECT_NE(g_log.find(taken + ":4791"), std::string::npos) << g_log;
  EXPECT_NE(g_log.find("process " + std::to_string(::getpid())), std::string::npos) << g_log;
  EXPECT_NE(g_log.find("FAIRLEAD_SOFT_ADDRESS"), std::string::npos) << g_log;
}

// Programs that open a device twice give either end the GID that they read from their own context.
TEST(UdpAddresses, ContextsOfOneDeviceShareItsGids) {
  Endpoint a(open_on_wire());
  Endpoint b(api().open_device(a.context->device));
  EXPECT_EQ(Gid::from_verbs(a.gid()), Gid::from_verbs(b.gid()));
  EXPECT_NE(a.qp->qp_num, b.qp->qp_num);
  EXPECT_NE(a.mr->rkey, b.mr->rkey);
  connect(a, b);
  fill_pattern(a.buffer, 5);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, a.buffer.size(), &b, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return !a.done.empty(); }));
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.buffer, b.buffer);
  // Memory stays apart all the same: a key of b's is none of a's.
  ASSERT_EQ(a.post(IBV_WR_RDMA_READ, 2, 0, 8, &a, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 2; }));
  EXPECT_EQ(a.done[1].status, IBV_WC_REM_ACCESS_ERR);
}

TEST(UdpAddresses, EveryDeviceHasItsOwnLoopbackGid) {
  Endpoint a(open_udp());
  Endpoint b(open_udp());
  const Gid first = Gid::from_verbs(a.gid());
  const Gid second = Gid::from_verbs(b.gid());
  EXPECT_TRUE(first.is_ipv4() && second.is_ipv4());
  EXPECT_EQ(first.ipv4() >> 24, 127U);
  EXPECT_NE(first, second);
  EXPECT_EQ(a.gid(0).raw[0], 0xfe);
  EXPECT_NE(std::memcmp(a.gid(0).raw, b.gid(0).raw, 16), 0);  // made from the GUID, which is the entry's
  ibv_gid_entry entry{};
  ASSERT_EQ(api().query_gid_ex(a.context, 1, 1, &entry), 0);
  EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_NE(entry.ndev_ifindex, 0U);
  EXPECT_EQ(api().query_gid_ex(a.context, 1, 15, &entry), ENODATA);
  EXPECT_EQ(api().query_gid_ex(a.context, 1, 16, &entry), EINVAL);
  ibv_port_attr port{};
  ASSERT_EQ(api().query_port(a.context, 1, &port), 0);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(api().query_port(a.context, 2, &port), EINVAL);
}

TEST(UdpAddresses, AnotherAddressOfTheHostIsBoundWhenItIsFirstUsed) {
  Endpoint a(open_udp());
  Endpoint b(open_udp());
  ibv_gid_entry entry{};
  if (api().query_gid_ex(a.context, 1, 2, &entry) != 0) GTEST_SKIP() << "this host has no address beside loopback";
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ConnectOptions from_host{.mtu = IBV_MTU_256, .gid_index = 2};
  const int error = a.to_rtr(b.qp->qp_num, b.gid(), from_host);
  if (error == EADDRINUSE) GTEST_SKIP() << "another process holds port 4791 of this host's address";
  ASSERT_EQ(error, 0);
  ASSERT_EQ(b.to_rtr(a.qp->qp_num, entry.gid, {.mtu = IBV_MTU_256}), 0);
  ASSERT_EQ(a.to_rts(from_host), 0);
  ASSERT_EQ(b.to_rts({}), 0);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 10'000, &b, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
}

TEST(UdpConfiguration, MistakesAreNamed) {
  for (const std::string text :
       {"dpdk", "udp,", "udp,drop", "udp,drop=2", "udp,drop=-1", "udp,drop=nan", "udp,loss=0.1", "udp,seed=x",
        "udp,silent_after=-1", "udp,silent_ms=x", "udp drop=1", "", "udp,delay_us=1e3"}) {
    const auto device = find_or_add_device({"soft0", Profile::kFull, text, ""});
    ASSERT_FALSE(device) << text;
    EXPECT_EQ(device.error().code(), Code::kInvalidArgument);
    const std::string wrong = "'" + text.substr(text.rfind(',') + 1) + "'";
    EXPECT_NE(device.error().message().find(wrong), std::string::npos) << device.error().message();
  }
  EXPECT_FALSE(parse_profile("fast"));
  EXPECT_TRUE(parse_profile("pvrdma"));
  const auto first = find_or_add_device({"soft9", Profile::kFull, "udp,drop=0.5", ""});
  const auto again = find_or_add_device({"soft9", Profile::kFull, "udp,drop=0.5", ""});
  ASSERT_TRUE(first && again);
  EXPECT_EQ(*first, *again);
  EXPECT_STREQ(api().get_device_name(*first), "soft9");
}

}  // namespace
}  // namespace fairlead::soft::test
