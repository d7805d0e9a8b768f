// Two devices of one process over UDP on loopback, through VerbsApi only.
#include "tests/verbs/soft/endpoint.h"

namespace fairlead::soft::test {
namespace {

TEST(UdpEndToEnd, WriteReadAndSend) {
  Endpoint a(open_udp());
  Endpoint b(open_udp());
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

}  // namespace
}  // namespace fairlead::soft::test
