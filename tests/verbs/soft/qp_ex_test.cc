// The extended posting interface: what ibv_wr_* builds, and that it is all or nothing.
#include <array>
#include <string>

#include "fairlead/log.h"
#include "tests/verbs/soft/simulation.h"

namespace fairlead::soft::test {
namespace {

constexpr std::uint64_t kOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
                               IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ;

class ExtendedQp : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    connect(a, b);
    qp = soft::api::qp_to_qp_ex(a.qp);
    ASSERT_NE(qp, nullptr);
    fill_pattern(a.buffer, 1);
  }
  void TearDown() override { set_log_level(LogLevel::kWarning); }

  [[nodiscard]] std::uint64_t address(const Endpoint& of, std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(of.buffer.data()) + offset;
  }
  void begin(std::uint64_t id, unsigned flags = IBV_SEND_SIGNALED) {
    qp->wr_id = id;
    qp->wr_flags = flags;
  }

  Simulation world{{}, {}, {.max_wr = 4, .max_inline = 64, .send_ops = kOps}};
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  ibv_qp_ex* qp = nullptr;
};

TEST_F(ExtendedQp, OneBatchOfEveryOperation) {
  ASSERT_EQ(b.post_recv(7, 5000, 100), 0);
  ibv_wr_start(qp);
  begin(1);
  ibv_wr_rdma_write(qp, b.mr->rkey, address(b, 1000));
  ibv_wr_set_sge(qp, a.mr->lkey, address(a, 0), 300);
  begin(2, 0);
  ibv_wr_rdma_write_imm(qp, b.mr->rkey, address(b, 2000), htobe32(42));
  const ibv_sge pieces[] = {a.sge(300, 10), a.sge(400, 20)};
  ibv_wr_set_sge_list(qp, 2, pieces);
  begin(3);
  ibv_wr_rdma_read(qp, b.mr->rkey, address(b, 1000));
  ibv_wr_set_sge(qp, a.mr->lkey, address(a, 9000), 300);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ASSERT_TRUE(world.run_until([&] { return a.done.size() == 2 && b.done.size() == 1; }));
  EXPECT_EQ(a.done[0].wr_id, 1U);
  EXPECT_EQ(a.done[0].opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(a.done[1].wr_id, 3U);
  EXPECT_EQ(a.done[1].opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(be32toh(b.done[0].imm_data), 42U);
  EXPECT_TRUE(std::equal(a.buffer.begin(), a.buffer.begin() + 300, b.buffer.begin() + 1000));
  EXPECT_TRUE(std::equal(a.buffer.begin() + 400, a.buffer.begin() + 420, b.buffer.begin() + 2010));
  EXPECT_TRUE(std::equal(a.buffer.begin(), a.buffer.begin() + 300, a.buffer.begin() + 9000));
}

TEST_F(ExtendedQp, InlineDataIsCopiedAtOnce) {
  ASSERT_EQ(b.post_recv(7, 5000, 100), 0);
  std::string first = "Roses ";
  std::string second = "are red";
  std::array<ibv_data_buf, 2> parts{{{first.data(), first.size()}, {second.data(), second.size()}}};
  ibv_wr_start(qp);
  begin(1);
  ibv_wr_send_imm(qp, 5);
  ibv_wr_set_inline_data_list(qp, parts.size(), parts.data());
  first = second = "gone   ";
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ASSERT_TRUE(world.run_until([&] { return b.done.size() == 1; }));
  EXPECT_EQ(std::string(b.buffer.begin() + 5000, b.buffer.begin() + 5013), "Roses are red");
  EXPECT_EQ(b.done[0].imm_data, 5U);
}

TEST_F(ExtendedQp, AnErrorPostsNothingOfTheBatch) {
  ibv_wr_start(qp);
  begin(1);
  ibv_wr_rdma_write(qp, b.mr->rkey, address(b, 0));
  ibv_wr_set_sge(qp, a.mr->lkey, address(a, 0), 8);
  begin(2);
  std::array<char, 65> too_long{};
  ibv_wr_send(qp);
  ibv_wr_set_inline_data(qp, too_long.data(), too_long.size());
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);
  world.run_for(10 * kMillisecond);
  EXPECT_TRUE(a.done.empty());
  EXPECT_EQ(a.post(IBV_WR_RDMA_WRITE, 3, 0, 8, &b, 0), 0);  // the queue is as it was
  EXPECT_TRUE(world.run_until([&] { return a.done.size() == 1; }));
}

TEST_F(ExtendedQp, AFullQueueIsOutOfMemory) {
  ibv_wr_start(qp);
  for (std::uint64_t id = 0; id < 5; ++id) {
    begin(id);
    ibv_wr_rdma_write(qp, b.mr->rkey, address(b, 0));
    ibv_wr_set_sge(qp, a.mr->lkey, address(a, 0), 8);
  }
  EXPECT_EQ(ibv_wr_complete(qp), ENOMEM);
}

TEST_F(ExtendedQp, AbortPostsNothing) {
  ibv_wr_start(qp);
  begin(1);
  ibv_wr_rdma_write(qp, b.mr->rkey, address(b, 0));
  ibv_wr_abort(qp);
  world.run_for(10 * kMillisecond);
  EXPECT_TRUE(a.done.empty());
}

TEST_F(ExtendedQp, UnknownOperationsAreRefused) {
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = a.cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = a.pd;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
  EXPECT_EQ(soft::api::create_qp_ex(a.context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  EXPECT_EQ(soft::api::create_qp_ex(a.context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  init.comp_mask = 0;
  EXPECT_EQ(soft::api::create_qp_ex(a.context, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(PlainQp, HasNoExtendedInterface) {
  Simulation world;
  EXPECT_EQ(soft::api::qp_to_qp_ex(world.a->qp), nullptr);
}

}  // namespace
}  // namespace fairlead::soft::test
