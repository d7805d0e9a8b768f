// Thread domains and parent domains: another name for a protection domain, which lives as long as it is used.
#include "fairlead/log.h"
#include "tests/verbs/soft/simulation.h"

namespace fairlead::soft::test {
namespace {

class ParentDomain : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    ibv_td_init_attr threads{};
    td = soft::api::alloc_td(a.context, &threads);
    ASSERT_NE(td, nullptr);
    ibv_parent_domain_init_attr init{};
    init.pd = a.pd;
    init.td = td;
    parent = soft::api::alloc_parent_domain(a.context, &init);
    ASSERT_NE(parent, nullptr);
  }
  void TearDown() override { set_log_level(LogLevel::kWarning); }

  Simulation world;
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  ibv_td* td = nullptr;
  ibv_pd* parent = nullptr;
};

TEST_F(ParentDomain, SharesTheMemoryOfItsProtectionDomain) {
  EXPECT_EQ(soft::api::destroy_qp(a.qp), 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = a.cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  a.qp = soft::api::create_qp(parent, &init);  // its requests name a region of the domain behind it
  ASSERT_NE(a.qp, nullptr);
  EXPECT_EQ(a.qp->pd, parent);
  connect(a, b);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 100, &b, 0), 0);
  ASSERT_TRUE(world.run_until([&] { return a.done.size() == 1; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(soft::api::dealloc_pd(parent), EBUSY);
  EXPECT_EQ(soft::api::destroy_qp(a.qp), 0);
  a.qp = nullptr;
  EXPECT_EQ(soft::api::dealloc_pd(parent), 0);
  EXPECT_EQ(soft::api::dealloc_td(td), 0);
}

TEST_F(ParentDomain, KeepsWhatItStandsFor) {
  EXPECT_EQ(soft::api::dealloc_td(td), EBUSY);
  EXPECT_EQ(soft::api::destroy_qp(a.qp), 0);
  EXPECT_EQ(soft::api::dereg_mr(a.mr), 0);
  a.qp = nullptr;
  a.mr = nullptr;
  EXPECT_EQ(soft::api::dealloc_pd(a.pd), EBUSY);
  EXPECT_EQ(soft::api::dealloc_pd(parent), 0);
  EXPECT_EQ(soft::api::dealloc_td(td), 0);
}

TEST_F(ParentDomain, WrongUseIsRefused) {
  ibv_parent_domain_init_attr init{};
  EXPECT_EQ(soft::api::alloc_parent_domain(a.context, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  init.pd = parent;
  EXPECT_EQ(soft::api::alloc_parent_domain(a.context, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  init.pd = a.pd;
  init.comp_mask = 1U << 30;
  EXPECT_EQ(soft::api::alloc_parent_domain(a.context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(soft::api::dealloc_pd(parent), 0);
  EXPECT_EQ(soft::api::dealloc_td(td), 0);
}

}  // namespace
}  // namespace fairlead::soft::test
