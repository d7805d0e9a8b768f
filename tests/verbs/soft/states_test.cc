// Queue pair states: attributes by type, draining, asynchronous events.
#include <poll.h>

#include "fairlead/log.h"
#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/qp/qp_states.h"

namespace fairlead::soft::test {
namespace {

std::string refusal(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  std::string why;
  const bool legal = legal_transition(type, from, to, mask | IBV_QP_STATE, why);
  EXPECT_EQ(legal, why.empty());
  return why;
}

/// The next asynchronous event, acknowledged; IBV_EVENT_DEVICE_FATAL when there is none.
ibv_event_type next_event(Endpoint& end) {
  pollfd ready{end.context->async_fd, POLLIN, 0};
  if (::poll(&ready, 1, 0) != 1) return IBV_EVENT_DEVICE_FATAL;
  ibv_async_event event{};
  EXPECT_EQ(api().get_async_event(end.context, &event), 0);
  api().ack_async_event(&event);
  return event.event_type;
}

TEST(QpStates, EachTypeNeedsItsOwnAttributes) {
  constexpr int kPort = IBV_QP_PORT | IBV_QP_PKEY_INDEX;
  EXPECT_EQ(refusal(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, kPort | IBV_QP_ACCESS_FLAGS), "");
  EXPECT_EQ(refusal(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kPort | IBV_QP_QKEY), "");
  EXPECT_EQ(refusal(IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, kPort), "RESET to INIT needs IBV_QP_QKEY");
  EXPECT_EQ(refusal(IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, kPort | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY),
            "RESET to INIT does not take IBV_QP_QKEY for this type of queue pair");
  EXPECT_EQ(refusal(IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0), "");
  EXPECT_EQ(refusal(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN), "");
  EXPECT_EQ(refusal(IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT),
            "RTR to RTS does not take IBV_QP_TIMEOUT for this type of queue pair");
  EXPECT_EQ(refusal(IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0), "");
  EXPECT_EQ(refusal(IBV_QPT_RC, IBV_QPS_SQE, IBV_QPS_RTS, 0), "no transition from SQE to RTS");
  EXPECT_EQ(refusal(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_ERR, IBV_QP_QKEY),
            "RTS to ERR does not take IBV_QP_QKEY for this type of queue pair");
}

TEST(QpStates, TheFirstPacketEstablishesTheConnection) {
  Simulation world;
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(b.to_init(), 0);
  ASSERT_EQ(a.to_rtr(b.qp->qp_num, b.gid(), {}), 0);
  ASSERT_EQ(b.to_rtr(a.qp->qp_num, a.gid(), {}), 0);
  ASSERT_EQ(a.to_rts({}), 0);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 5000, &b, 0), 0);
  ASSERT_TRUE(world.run_until([&] { return a.done.size() == 1; }));
  EXPECT_EQ(next_event(b), IBV_EVENT_COMM_EST);
  EXPECT_EQ(next_event(b), IBV_EVENT_DEVICE_FATAL);  // once
  EXPECT_EQ(next_event(a), IBV_EVENT_DEVICE_FATAL);  // it was in RTS
}

TEST(QpStates, DrainingFinishesWhatWasBegunAndTellsIt) {
  RawPeer peer;
  Endpoint& a = *peer.device;
  ASSERT_EQ(a.post(IBV_WR_SEND, 1, 0, 100, nullptr, 0), 0);
  ASSERT_EQ(peer.receive().size(), 1U);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(api().modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND, 2, 0, 100, nullptr, 0), 0);
  EXPECT_TRUE(peer.receive().empty());
  ibv_qp_init_attr init{};
  ASSERT_EQ(api().query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.sq_draining, 1);
  EXPECT_EQ(next_event(a), IBV_EVENT_DEVICE_FATAL);
  peer.send({.opcode = Opcode::kAcknowledge, .psn = peer.psn});
  EXPECT_EQ(a.done.size(), 1U);
  EXPECT_EQ(next_event(a), IBV_EVENT_SQ_DRAINED);
  ASSERT_EQ(api().query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.sq_draining, 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_SQD);
  ASSERT_EQ(a.to_state(IBV_QPS_RTS), 0);
  EXPECT_EQ(peer.receive().size(), 1U);
}

/// A WRITE and a READ are on their way when the queue pair goes to SQD and gets a new path, to the same peer.
void move_in_sqd(RawPeer& peer) {
  Endpoint& a = *peer.device;
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 100, &a, 0), 0);
  ASSERT_EQ(a.post(IBV_WR_RDMA_READ, 2, 0, 100, &a, 0), 0);
  ASSERT_EQ(peer.receive().size(), 2U);
  ASSERT_EQ(a.to_state(IBV_QPS_SQD), 0);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(api().query_qp(a.qp, &attr, IBV_QP_AV, &init), 0);
  ASSERT_EQ(api().modify_qp(a.qp, &attr, IBV_QP_AV), 0);
}

TEST(QpStates, ANewPathCarriesWhatIsNotAcknowledged) {
  RawPeer peer;
  move_in_sqd(peer);
  const auto again = peer.receive();
  ASSERT_EQ(again.size(), 2U);
  EXPECT_EQ(again[0].opcode, Opcode::kWriteOnly);
  EXPECT_EQ(again[0].psn, peer.psn);
  EXPECT_EQ(again[1].opcode, Opcode::kReadRequest);
  EXPECT_EQ(again[1].psn, peer.psn + 1);
  peer.send({.opcode = Opcode::kReadResponseOnly,
             .psn = peer.psn + 1,
             .payload = RawPeer::payload(100, 1),
             .aeth = {0x1f, 2}});
  ASSERT_EQ(peer.device->done.size(), 2U);
  EXPECT_EQ(peer.device->done[1].status, IBV_WC_SUCCESS);
}

TEST(QpStates, ANewPathWhereNobodyAnswersEndsTheRetries) {
  RawPeer peer({}, {.timeout = 14, .retry_cnt = 1});  // 67 ms
  move_in_sqd(peer);
  for (int i = 0; i < 1000 && peer.device->done.empty(); ++i) peer.receive_after(kMillisecond);
  ASSERT_FALSE(peer.device->done.empty());
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_RETRY_EXC_ERR);
}

TEST(QpStates, TheErrorOfTheResponderIsAnEvent) {
  RawPeer peer;
  peer.send({.opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = {0, 1, 4}});
  peer.expect_answer(Syndrome::kNakRemoteAccess, peer.psn);
  EXPECT_EQ(next_event(*peer.device), IBV_EVENT_QP_ACCESS_ERR);
}

TEST(QpStates, PathMigrationIsRefused) {
  set_log_level(LogLevel::kOff);
  RawPeer peer;
  ibv_qp_attr attr{};
  EXPECT_EQ(api().modify_qp(peer.device->qp, &attr, IBV_QP_ALT_PATH), EOPNOTSUPP);
  attr.path_mig_state = IBV_MIG_MIGRATED;
  EXPECT_EQ(api().modify_qp(peer.device->qp, &attr, IBV_QP_PATH_MIG_STATE), 0);
  attr.path_mig_state = IBV_MIG_REARM;
  EXPECT_EQ(api().modify_qp(peer.device->qp, &attr, IBV_QP_PATH_MIG_STATE), EOPNOTSUPP);
  set_log_level(LogLevel::kWarning);
}

}  // namespace
}  // namespace fairlead::soft::test
