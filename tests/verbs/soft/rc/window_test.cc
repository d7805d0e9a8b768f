// Memory windows and invalidation: what a bound key grants, to whom, and that it ends when it is taken back.
#include "fairlead/log.h"
#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/memory/mr_table.h"

namespace fairlead::soft::test {
namespace {

constexpr int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
constexpr EndpointOptions kOptions{.buffer_bytes = 64 << 10, .access = kBindable};

ibv_mw_bind_info part_of(const Endpoint& end, std::size_t offset, std::size_t length, unsigned access) {
  return {end.mr, reinterpret_cast<std::uint64_t>(end.buffer.data()) + offset, length, access};
}

int post(Endpoint& end, ibv_send_wr& wr) {
  wr.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(end.qp, &wr, &bad);
}
int post_bind(Endpoint& end, ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info& info) {
  ibv_send_wr wr{};
  wr.wr_id = 500;
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = window;
  wr.bind_mw.rkey = rkey;
  wr.bind_mw.bind_info = info;
  return post(end, wr);
}
int post_invalidate(Endpoint& end, ibv_wr_opcode opcode, std::uint32_t rkey) {
  ibv_send_wr wr{};
  wr.wr_id = 600;
  wr.opcode = opcode;
  wr.invalidate_rkey = rkey;
  return post(end, wr);
}
int post_write(Endpoint& from, std::uint32_t rkey, std::uint64_t address, std::size_t length) {
  ibv_sge segment = from.sge(0, length);
  ibv_send_wr wr{};
  wr.wr_id = 700;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = &segment;
  wr.num_sge = 1;
  wr.wr.rdma = {address, rkey};
  return post(from, wr);
}

/// Two connected ends; b has a window.
class Windows : public testing::Test {
 protected:
  void SetUp() override {
    connect(*world.a, *world.b);
    fill_pattern(world.a->buffer, 1);
  }
  void TearDown() override {
    if (window != nullptr) {
      EXPECT_EQ(api::dealloc_mw(window), 0);
    }
  }
  /// The status of what `end` posted last.
  ibv_wc_status next_status(Endpoint& end) {
    const std::size_t before = end.done.size();
    EXPECT_TRUE(world.run_until([&] { return end.done.size() > before; }));
    return end.done.empty() ? IBV_WC_GENERAL_ERR : end.done[before].status;
  }
  ibv_wc_status bind(std::uint32_t rkey, const ibv_mw_bind_info& info) {
    EXPECT_EQ(post_bind(*world.b, window, rkey, info), 0);
    return next_status(*world.b);
  }
  ibv_wc_status write(std::uint32_t rkey, std::uint64_t address, std::size_t length) {
    EXPECT_EQ(post_write(*world.a, rkey, address, length), 0);
    return next_status(*world.a);
  }
  [[nodiscard]] std::uint64_t at(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(world.b->buffer.data()) + offset;
  }

  Simulation world{{}, {}, kOptions};
  ibv_mw* window = nullptr;
};

TEST_F(Windows, OfType2GrantTheBoundRangeAndNoByteMore) {
  for (const auto& [offset, length, expected] : {std::tuple{0, 4096, IBV_WC_SUCCESS},
                                                 {4095, 1, IBV_WC_SUCCESS},
                                                 {4096, 1, IBV_WC_REM_ACCESS_ERR},
                                                 {-1, 1, IBV_WC_REM_ACCESS_ERR},
                                                 {0, 4097, IBV_WC_REM_ACCESS_ERR}}) {
    Simulation fresh({}, {}, kOptions);
    connect(*fresh.a, *fresh.b);
    ibv_mw* bound = api::alloc_mw(fresh.b->pd, IBV_MW_TYPE_2);
    ASSERT_NE(bound, nullptr);
    const std::uint32_t rkey = ibv_inc_rkey(bound->rkey);
    ASSERT_EQ(post_bind(*fresh.b, bound, rkey, part_of(*fresh.b, 8192, 4096, IBV_ACCESS_REMOTE_WRITE)), 0);
    ASSERT_TRUE(fresh.run_until([&] { return !fresh.b->done.empty(); }));
    EXPECT_EQ(fresh.b->done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(fresh.b->done[0].opcode, IBV_WC_BIND_MW);
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(fresh.b->buffer.data()) + 8192;
    ASSERT_EQ(post_write(*fresh.a, rkey, address + static_cast<std::uint64_t>(std::int64_t{offset}),
                         static_cast<std::size_t>(length)),
              0);
    ASSERT_TRUE(fresh.run_until([&] { return !fresh.a->done.empty(); }));
    EXPECT_EQ(fresh.a->done[0].status, expected) << offset << "+" << length;
    EXPECT_EQ(api::dealloc_mw(bound), 0);
  }
}

TEST_F(Windows, GrantOnlyTheAccessTheyWereBoundWith) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(bind(rkey, part_of(*world.b, 0, 4096, IBV_ACCESS_REMOTE_READ)), IBV_WC_SUCCESS);
  EXPECT_EQ(write(rkey, at(0), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, ZeroBasedOnesCountFromTheirBeginning) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(bind(rkey, part_of(*world.b, 1000, 100, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED)), IBV_WC_SUCCESS);
  ASSERT_EQ(write(rkey, 92, 8), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(world.b->buffer.data() + 1092, world.a->buffer.data(), 8), 0);
  EXPECT_EQ(write(rkey, 93, 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, AreNoLocalKeys) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(bind(rkey, part_of(*world.b, 0, 4096, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)), IBV_WC_SUCCESS);
  ibv_sge segment{at(0), 8, rkey};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &segment;
  wr.num_sge = 1;
  ASSERT_EQ(post(*world.b, wr), 0);
  EXPECT_EQ(next_status(*world.b), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Windows, LocalInvalidationEndsTheGrantAndAllowsANewOne) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  const std::uint32_t first = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(bind(first, part_of(*world.b, 0, 4096, IBV_ACCESS_REMOTE_WRITE)), IBV_WC_SUCCESS);
  ASSERT_EQ(write(first, at(0), 8), IBV_WC_SUCCESS);
  ASSERT_EQ(post_invalidate(*world.b, IBV_WR_LOCAL_INV, first), 0);
  ASSERT_EQ(next_status(*world.b), IBV_WC_SUCCESS);
  EXPECT_EQ(world.b->done.back().opcode, IBV_WC_LOCAL_INV);
  const std::uint32_t second = ibv_inc_rkey(first);
  ASSERT_EQ(bind(second, part_of(*world.b, 4096, 4096, IBV_ACCESS_REMOTE_WRITE)), IBV_WC_SUCCESS);
  ASSERT_EQ(write(second, at(4096), 8), IBV_WC_SUCCESS);
  EXPECT_EQ(write(first, at(0), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, ThePeerCanInvalidateWithASend) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(bind(rkey, part_of(*world.b, 0, 4096, IBV_ACCESS_REMOTE_WRITE)), IBV_WC_SUCCESS);
  ASSERT_EQ(world.b->post_recv(9, 8192, 100), 0);
  ASSERT_EQ(post_invalidate(*world.a, IBV_WR_SEND_WITH_INV, rkey), 0);
  ASSERT_EQ(next_status(*world.b), IBV_WC_SUCCESS);
  const ibv_wc& received = world.b->done.back();
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
  EXPECT_EQ(received.invalidated_rkey, rkey);
  ASSERT_TRUE(world.run_until([&] { return world.a->done.size() == 1; }));
  EXPECT_EQ(write(rkey, at(0), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, WhatIsNoWindowOfTheQueuePairIsNotInvalidated) {
  ASSERT_EQ(world.b->post_recv(9, 8192, 100), 0);
  ASSERT_EQ(post_invalidate(*world.a, IBV_WR_SEND_WITH_INV, world.b->mr->rkey), 0);
  EXPECT_EQ(next_status(*world.a), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(world.b->done[0].wr_id, 9U);
  EXPECT_NE(world.b->done[0].status, IBV_WC_SUCCESS);
}

TEST_F(Windows, AnotherQueuePairOfTheDomainMayNotUseOneOfType2) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(bind(rkey, part_of(*world.b, 0, 4096, IBV_ACCESS_REMOTE_WRITE)), IBV_WC_SUCCESS);
  const MrTable& keys = impl(world.b->context).domain().regions;
  EXPECT_NE(keys.find(world.b->pd, rkey, at(0), 8, IBV_ACCESS_REMOTE_WRITE, world.b->qp->qp_num), nullptr);
  EXPECT_EQ(keys.find(world.b->pd, rkey, at(0), 8, IBV_ACCESS_REMOTE_WRITE, world.b->qp->qp_num + 1), nullptr);
}

TEST_F(Windows, RulesOfBindingAreEnforced) {
  struct Case {
    const char* what;
    std::function<void(std::uint32_t& rkey, ibv_mw_bind_info& info)> change;
  };
  for (const Case& each : {
           Case{"beyond the region", [](std::uint32_t&, ibv_mw_bind_info& info) { info.length = (64 << 10) + 1; }},
           Case{"before the region", [](std::uint32_t&, ibv_mw_bind_info& info) { info.addr -= 1; }},
           Case{"of nothing", [](std::uint32_t&, ibv_mw_bind_info& info) { info.length = 0; }},
           Case{"under the same key", [](std::uint32_t& rkey, ibv_mw_bind_info&) { --rkey; }},
           Case{"under another's key", [](std::uint32_t& rkey, ibv_mw_bind_info&) { rkey ^= 0x100; }},
           Case{"with unknown access",
                [](std::uint32_t&, ibv_mw_bind_info& info) { info.mw_access_flags |= 1U << 16; }},
           Case{"to no region", [](std::uint32_t&, ibv_mw_bind_info& info) { info.mr = nullptr; }},
       }) {
    Simulation fresh({}, {}, kOptions);
    connect(*fresh.a, *fresh.b);
    ibv_mw* unbound = api::alloc_mw(fresh.b->pd, IBV_MW_TYPE_2);
    std::uint32_t rkey = ibv_inc_rkey(unbound->rkey);
    if ((rkey & 0xff) == 0) rkey = ibv_inc_rkey(rkey);
    ibv_mw_bind_info info = part_of(*fresh.b, 0, 4096, IBV_ACCESS_REMOTE_WRITE);
    if (std::string_view(each.what) == "under the same key") rkey = unbound->rkey + 1;
    each.change(rkey, info);
    ASSERT_EQ(post_bind(*fresh.b, unbound, rkey, info), 0);
    ASSERT_TRUE(fresh.run_until([&] { return !fresh.b->done.empty(); }));
    EXPECT_EQ(fresh.b->done[0].status, IBV_WC_MW_BIND_ERR) << each.what;
    EXPECT_EQ(fresh.b->state(), IBV_QPS_ERR) << each.what;
    EXPECT_EQ(api::dealloc_mw(unbound), 0);
  }
}

TEST_F(Windows, ARegionThatDoesNotAllowThemIsNotBoundTo) {
  ibv_mr* plain = api::reg_mr(world.b->pd, world.b->buffer.data(), 4096, IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* read_only = api::reg_mr(world.b->pd, world.b->buffer.data(), 4096, IBV_ACCESS_MW_BIND);
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  ibv_mw_bind_info info = part_of(*world.b, 0, 4096, IBV_ACCESS_REMOTE_READ);
  info.mr = read_only;
  EXPECT_EQ(bind(ibv_inc_rkey(window->rkey), info), IBV_WC_SUCCESS);
  ASSERT_EQ(post_invalidate(*world.b, IBV_WR_LOCAL_INV, ibv_inc_rkey(window->rkey)), 0);
  ASSERT_EQ(next_status(*world.b), IBV_WC_SUCCESS);
  info.mr = plain;
  EXPECT_EQ(bind(ibv_inc_rkey(ibv_inc_rkey(window->rkey)), info), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(api::dereg_mr(plain), 0);
  EXPECT_EQ(api::dereg_mr(read_only), 0);
}

TEST_F(Windows, OneOfType2IsNotBoundTwice) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(bind(rkey, part_of(*world.b, 0, 4096, IBV_ACCESS_REMOTE_WRITE)), IBV_WC_SUCCESS);
  EXPECT_EQ(bind(ibv_inc_rkey(rkey), part_of(*world.b, 0, 8, IBV_ACCESS_REMOTE_WRITE)), IBV_WC_MW_BIND_ERR);
}

TEST_F(Windows, OfType1AreBoundAgainAndAgain) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_1);
  std::uint32_t last = window->rkey;
  for (std::size_t i = 0; i < 3; ++i) {
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = part_of(*world.b, 4096 * i, 4096, IBV_ACCESS_REMOTE_WRITE);
    ASSERT_EQ(ibv_bind_mw(world.b->qp, window, &bind), 0);
    EXPECT_NE(window->rkey, last);
    last = window->rkey;
    ASSERT_EQ(next_status(*world.b), IBV_WC_SUCCESS);
    ASSERT_EQ(write(last, at(4096 * i), 4096), IBV_WC_SUCCESS);
  }
  ibv_mw_bind nothing{};
  nothing.send_flags = IBV_SEND_SIGNALED;
  nothing.bind_info = part_of(*world.b, 0, 0, 0);
  ASSERT_EQ(ibv_bind_mw(world.b->qp, window, &nothing), 0);
  ASSERT_EQ(next_status(*world.b), IBV_WC_SUCCESS);
  EXPECT_EQ(write(window->rkey, at(0), 8), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, HoldTheirRegionUntilTheyAreEnded) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  ASSERT_EQ(bind(ibv_inc_rkey(window->rkey), part_of(*world.b, 0, 4096, IBV_ACCESS_REMOTE_WRITE)), IBV_WC_SUCCESS);
  EXPECT_EQ(api::dereg_mr(world.b->mr), EBUSY);
  EXPECT_EQ(api::rereg_mr(world.b->mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(api::dealloc_mw(window), 0);
  window = nullptr;
  // The rest is Endpoint's: its region can be deregistered now.
}

TEST_F(Windows, EndWithTheirQueuePair) {
  window = api::alloc_mw(world.b->pd, IBV_MW_TYPE_2);
  ASSERT_EQ(bind(ibv_inc_rkey(window->rkey), part_of(*world.b, 0, 4096, IBV_ACCESS_REMOTE_WRITE)), IBV_WC_SUCCESS);
  ASSERT_EQ(api::destroy_qp(world.b->qp), 0);
  world.b->qp = nullptr;
  EXPECT_EQ(api::dereg_mr(world.b->mr), 0);
  world.b->mr = nullptr;
}

// Of the 24 bits that the consumer of a window does not choose, 12 must be left that tell it from all others.
TEST_F(Windows, AreSoFewThatTheirKeysAreHardToGuess) {
  ibv_device_attr attr{};
  ASSERT_EQ(api().query_device(world.b->context, &attr), 0);
  ASSERT_LE(attr.max_mw, 1 << 12);
  std::vector<ibv_mw*> windows;
  for (int i = 0; i < attr.max_mw; ++i) {
    windows.push_back(api::alloc_mw(world.b->pd, i % 2 == 0 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2));
    ASSERT_NE(windows.back(), nullptr) << i;
  }
  set_log_level(LogLevel::kOff);
  EXPECT_EQ(api::alloc_mw(world.b->pd, IBV_MW_TYPE_2), nullptr);
  set_log_level(LogLevel::kWarning);
  EXPECT_EQ(errno, ENOMEM);
  ibv_mr* region = api::reg_mr(world.b->pd, world.b->buffer.data(), 4096, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(region, nullptr) << "regions are not windows";
  EXPECT_EQ(api::dereg_mr(region), 0);
  for (ibv_mw* each : windows) EXPECT_EQ(api::dealloc_mw(each), 0);
}

// A request that waits behind others may find its region gone.
TEST_F(Windows, BindingToARegionThatEndedMeanwhileFails) {
  RawPeer peer(kOptions);
  ibv_mr* region = api::reg_mr(peer.device->pd, peer.device->buffer.data(), 4096, kBindable);
  ibv_mw* own = api::alloc_mw(peer.device->pd, IBV_MW_TYPE_2);
  ASSERT_EQ(peer.device->post(IBV_WR_RDMA_READ, 1, 0, 8, peer.device.get(), 0), 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_FENCE;
  wr.bind_mw.mw = own;
  wr.bind_mw.rkey = ibv_inc_rkey(own->rkey);
  wr.bind_mw.bind_info = {region, reinterpret_cast<std::uint64_t>(peer.device->buffer.data()), 4096,
                          IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(post(*peer.device, wr), 0);
  ASSERT_EQ(api::dereg_mr(region), 0);
  peer.send({.opcode = Opcode::kReadResponseOnly, .psn = peer.psn, .payload = RawPeer::payload(8, 1)});
  peer.device->poll();
  ASSERT_EQ(peer.device->done.size(), 2U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(peer.device->done[1].status, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(api::dealloc_mw(own), 0);
}

// Local operations complete in their place among what is sent, also when that must be sent again.
TEST_F(Windows, BindAndInvalidateKeepTheirPlaceOverABadNetwork) {
  Simulation bad({.drop = 0.2, .seed = 3}, {.drop = 0.2, .seed = 4}, kOptions);
  connect(*bad.a, *bad.b, {.min_rnr_timer = 1});
  ibv_mw* own = api::alloc_mw(bad.a->pd, IBV_MW_TYPE_2);
  std::uint32_t rkey = own->rkey;
  constexpr std::uint64_t kRounds = 20;
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    ASSERT_EQ(bad.b->post_recv(i, 0, 3000), 0);
    rkey = ibv_inc_rkey(rkey);
    ASSERT_EQ(post_bind(*bad.a, own, rkey, part_of(*bad.a, 0, 4096, IBV_ACCESS_REMOTE_READ)), 0);
    ASSERT_EQ(bad.a->post(IBV_WR_SEND, 1, 0, 3000, nullptr, 0), 0);
    ASSERT_EQ(post_invalidate(*bad.a, IBV_WR_LOCAL_INV, rkey), 0);
  }
  ASSERT_TRUE(bad.run_until([&] { return bad.a->done.size() == 3 * kRounds; }));
  for (std::size_t i = 0; i < bad.a->done.size(); ++i) {
    EXPECT_EQ(bad.a->done[i].status, IBV_WC_SUCCESS);
    EXPECT_EQ(bad.a->done[i].opcode, i % 3 == 0 ? IBV_WC_BIND_MW : i % 3 == 1 ? IBV_WC_SEND : IBV_WC_LOCAL_INV);
  }
  EXPECT_EQ(api::dealloc_mw(own), 0);
}

}  // namespace
}  // namespace fairlead::soft::test
