// What the two ends agree on: how many READs may be under way, and the path MTU.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "tests/verbs/cm/rdma_fixture.h"
#include "verbs/cm/id.h"
#include "verbs/cm/ip_header.h"
#include "verbs/soft/domain/domain.h"

namespace fairlead::cm {
namespace {

constexpr std::uint16_t kPort = 7051;

class RdmaDepth : public test::RdmaApi {
 protected:
  void SetUp() override {
    RdmaApi::SetUp();
    listener = listen_at(1, kPort);
    client = resolve(2, 1, kPort);
    ASSERT_EQ(make_qp(client), 0);
  }
  void TearDown() override {
    end(client);
    if (server != nullptr) end(server);
    end(listener);
    RdmaApi::TearDown();
  }
  void take_request() {
    rdma_cm_event* event = next();
    ASSERT_NE(event, nullptr);
    ASSERT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    server = event->id;
    api::ack_cm_event(event);
    ASSERT_EQ(make_qp(server), 0);
  }
  void accept(rdma_conn_param* answer) {
    ASSERT_NO_FATAL_FAILURE(take_request());
    ASSERT_EQ(api::accept(server, answer), 0);
    EXPECT_EQ(next_type(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(next_type(), RDMA_CM_EVENT_ESTABLISHED);
  }
  // Asks with what rdma_connect() never would.
  void ask(Req req) {
    Id& asker = impl(client);
    DeviceCm& device = *asker.where.device;
    ASSERT_EQ(device.bind_port(asker.where.gid_index), 0);
    const IpEndpoint from = asker.source();
    const IpEndpoint to = asker.destination();
    req.service_id = service_id(RDMA_PS_TCP, kPort);
    req.local_qpn = client->qp->qp_num;
    IpHeader{false, from.port, from.address, to.address}.encode(req.private_data.data());
    const soft::DomainLock lock(device.domain());
    asker.connection = &device.manager.open(from.address, to.address, asker);
    ASSERT_TRUE(asker.connection->connect(req));
  }
  // Of READs that it asks, and that it answers.
  static void expect_depths(rdma_cm_id* id, int asks, int answers) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(soft::api::query_qp(id->qp, &attr, 0, &init), 0);
    EXPECT_EQ(attr.max_rd_atomic, asks);
    EXPECT_EQ(attr.max_dest_rd_atomic, answers);
  }

  rdma_cm_id* listener = nullptr;
  rdma_cm_id* client = nullptr;
  rdma_cm_id* server = nullptr;
};

// Or the second READ would end the connection.
TEST_F(RdmaDepth, NoMoreIsAskedThanThePeerAnswers) {
  rdma_conn_param ask = param("");
  ASSERT_EQ(ask.initiator_depth, 5);
  ASSERT_EQ(api::connect(client, &ask), 0);
  rdma_conn_param answer = param("");
  answer.responder_resources = 1;
  answer.initiator_depth = 2;
  ASSERT_NO_FATAL_FAILURE(accept(&answer));
  expect_depths(client, 1, 2);
  expect_depths(server, 2, 1);

  constexpr std::size_t kReads = 5;
  constexpr std::uint32_t kBytes = 4096;
  std::vector<char> theirs(kReads * kBytes, 'x');
  std::vector<char> ours(theirs.size(), ' ');
  ibv_mr* source = soft::api::reg_mr(server->pd, theirs.data(), theirs.size(), IBV_ACCESS_REMOTE_READ);
  ibv_mr* target = soft::api::reg_mr(client->pd, ours.data(), ours.size(), IBV_ACCESS_LOCAL_WRITE);
  std::array<ibv_sge, kReads> places{};
  std::array<ibv_send_wr, kReads> reads{};
  for (std::size_t i = 0; i < kReads; ++i) {
    places[i] = {reinterpret_cast<std::uint64_t>(ours.data() + i * kBytes), kBytes, target->lkey};
    reads[i].next = i + 1 < kReads ? &reads[i + 1] : nullptr;
    reads[i].sg_list = &places[i];
    reads[i].num_sge = 1;
    reads[i].opcode = IBV_WR_RDMA_READ;
    reads[i].wr.rdma = {reinterpret_cast<std::uint64_t>(theirs.data() + i * kBytes), source->rkey};
  }
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(soft::api::post_send(client->qp, reads.data(), &bad), 0);
  for (std::size_t i = 0; i < kReads; ++i) {
    EXPECT_EQ(test::wait_for_completion(client->send_cq).status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(ours, theirs);
  EXPECT_EQ(soft::api::dereg_mr(source), 0);
  EXPECT_EQ(soft::api::dereg_mr(target), 0);
}

TEST_F(RdmaDepth, AsManyAsYouCanIsWhatThePeerAsks) {
  rdma_conn_param ask = param("");
  ASSERT_EQ(ask.responder_resources, 3);
  ASSERT_EQ(api::connect(client, &ask), 0);
  rdma_conn_param answer = param("");
  answer.responder_resources = RDMA_MAX_RESP_RES;
  answer.initiator_depth = RDMA_MAX_INIT_DEPTH;
  ASSERT_NO_FATAL_FAILURE(accept(&answer));
  expect_depths(server, 3, 5);
  expect_depths(client, 5, 3);
}

// Of a device that can more than ours, to a program that leaves it to us.
TEST_F(RdmaDepth, ARequestForMoreThanTheDeviceCanIsCut) {
  Req req;
  req.responder_resources = req.initiator_depth = 200;
  req.path_mtu = IBV_MTU_1024;
  ASSERT_NO_FATAL_FAILURE(ask(req));
  ASSERT_NO_FATAL_FAILURE(accept(nullptr));
  expect_depths(server, soft::kMaxReads, soft::kMaxReads);
  expect_depths(client, soft::kMaxReads, soft::kMaxReads);
}

TEST_F(RdmaDepth, APathMtuThatIsTooLargeIsWhatThePeerHears) {
  Req req;
  req.path_mtu = IBV_MTU_4096 + 1;
  ASSERT_NO_FATAL_FAILURE(ask(req));
  ASSERT_NO_FATAL_FAILURE(take_request());
  errno = 0;
  EXPECT_EQ(api::accept(server, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_cm_event* const event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event->id, client);
  EXPECT_EQ(event->status, 26) << "invalid path MTU, IBTA table 112";
  api::ack_cm_event(event);
}

}  // namespace
}  // namespace fairlead::cm
