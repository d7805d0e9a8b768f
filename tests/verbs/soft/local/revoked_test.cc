// An answer to a READ that refers to memory, and stands in the ring when the memory is no longer the peer's to read:
// what the program writes there from then on does not reach the peer.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/own_address.h"
#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/port/local/local_port.h"
#include "verbs/soft/port/udp/udp_ports.h"
#include "verbs/soft/port/udp/udp_socket.h"

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kBytes = 64 << 10;
constexpr std::uint8_t kOld = 1, kNew = 2;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;

/// A device that moves when it is polled, and only then.
class LocalRevoked : public testing::Test {
 protected:
  LocalRevoked() : reader_(make_device(), {.buffer_bytes = kBytes}), owner_(make_device(), options()) {}
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(connect(reader_, owner_, {.mtu = IBV_MTU_4096, .timeout = 8, .retry_cnt = 3}));
    // Until each has seen that it can read the other's memory.
    for (int i = 0; i < 1000 && owner_.counter("sent_by_reference") == 0; ++i) {
      ask(owner_.mr->rkey);
      for (const std::size_t all = reader_.done.size() + 1; reader_.done.size() < all;) poll_both();
    }
    ASSERT_GT(owner_.counter("sent_by_reference"), 0U);
    reader_.done.clear();
    std::ranges::fill(reader_.buffer, std::uint8_t{0});
  }
  void ask(std::uint32_t rkey) {
    ibv_sge segment = reader_.sge(0, kBytes);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    wr.wr.rdma = {reinterpret_cast<std::uint64_t>(owner_.buffer.data()), rkey};
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(reader_.qp, &wr, &bad), 0);
  }
  /// The answer stands, then it is revoked, then the memory has another use. Gives how the READ ended.
  ibv_wc_status read_while(std::uint32_t rkey, const std::function<void()>& revoke) {
    std::ranges::fill(owner_.buffer, kOld);
    ask(rkey);
    reader_.poll();
    const std::uint64_t before = owner_.counter("sent_by_reference");
    while (owner_.counter("sent_by_reference") == before) poll(owner_);
    revoke();
    std::ranges::fill(owner_.buffer, kNew);
    for (int i = 0; i < 10'000 && reader_.done.empty(); ++i) poll_both();
    EXPECT_EQ(std::ranges::count(reader_.buffer, kNew), 0) << "what was written later";
    return reader_.done.empty() ? IBV_WC_GENERAL_ERR : reader_.done.front().status;
  }
  void poll(Endpoint& end) {
    clock_.advance(kMillisecond / 10);
    if (end.qp != nullptr) end.poll();
  }
  void poll_both() {
    poll(reader_);
    poll(owner_);
  }
  /// What the queue pair of the owner does by itself, to its end.
  void carry_out(ibv_send_wr wr) {
    wr.wr_id = 9;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(owner_.qp, &wr, &bad), 0);
    while (owner_.done.empty()) poll(owner_);
    EXPECT_EQ(owner_.done.back().status, IBV_WC_SUCCESS);
    owner_.done.clear();
  }
  std::uint32_t bind(ibv_mw* window, std::uint32_t rkey) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {.mw = window,
                  .rkey = rkey,
                  .bind_info = {owner_.mr, reinterpret_cast<std::uint64_t>(owner_.buffer.data()), kBytes,
                                IBV_ACCESS_REMOTE_READ}};
    carry_out(wr);
    return rkey;
  }

  ManualClock clock_;
  ibv_device entry_{};
  Endpoint reader_, owner_;

 private:
  static EndpointOptions options() { return {.buffer_bytes = kBytes, .access = kAccess}; }
  Device* make_device() {
    static unsigned host = 200;
    const Gid at = Gid::from_ipv4(fairlead::test::own_address(++host));
    auto socket = bind_roce_port(at, PortUse::kReceive);
    EXPECT_TRUE(socket) << socket.error().message();
    auto port = local::LocalPort::around(std::make_unique<UdpPort>(interface_of(at), std::move(*socket)),
                                         local::Party{at}, {.least_referred = 4096});
    return new Device(entry_, Profile::kFull, clock_, std::move(port));
  }
};

TEST_F(LocalRevoked, WhatStandsIsHadWhereNothingIsRevoked) {
  std::ranges::fill(owner_.buffer, kOld);
  ask(owner_.mr->rkey);
  while (reader_.done.empty()) poll_both();
  EXPECT_EQ(reader_.done.front().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::ranges::count(reader_.buffer, kOld), static_cast<std::ptrdiff_t>(kBytes));
}

TEST_F(LocalRevoked, ByTheEndOfTheQueuePair) {
  const auto end = [this] { EXPECT_EQ(api().destroy_qp(std::exchange(owner_.qp, nullptr)), 0); };
  EXPECT_EQ(read_while(owner_.mr->rkey, end), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(LocalRevoked, ByItsError) {
  const auto end = [this] { EXPECT_EQ(owner_.to_state(IBV_QPS_ERR), 0); };
  EXPECT_NE(read_while(owner_.mr->rkey, end), IBV_WC_SUCCESS);
}

TEST_F(LocalRevoked, ByItsReset) {
  const auto end = [this] { EXPECT_EQ(owner_.to_state(IBV_QPS_RESET), 0); };
  EXPECT_EQ(read_while(owner_.mr->rkey, end), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(LocalRevoked, WithTheRegion) {
  const auto end = [this] { EXPECT_EQ(api().dereg_mr(std::exchange(owner_.mr, nullptr)), 0); };
  EXPECT_EQ(read_while(owner_.mr->rkey, end), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(LocalRevoked, WithWhatTheRegionGrants) {
  const auto end = [this] {
    EXPECT_EQ(api::rereg_mr(owner_.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  };
  EXPECT_EQ(read_while(owner_.mr->rkey, end), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(LocalRevoked, WithAWindow) {
  ibv_mw* const window = api::alloc_mw(owner_.pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  const std::uint32_t rkey = bind(window, ibv_inc_rkey(window->rkey));
  const auto end = [&] {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.invalidate_rkey = rkey;
    carry_out(wr);
  };
  EXPECT_EQ(read_while(rkey, end), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(api::dealloc_mw(window), 0);
}

TEST_F(LocalRevoked, WithAWindowThatIsNoMore) {
  ibv_mw* const window = api::alloc_mw(owner_.pd, IBV_MW_TYPE_1);
  ASSERT_NE(window, nullptr);
  const std::uint32_t rkey = bind(window, ibv_inc_rkey(window->rkey));
  EXPECT_EQ(read_while(rkey, [&] { EXPECT_EQ(api::dealloc_mw(window), 0); }), IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace fairlead::soft::test
