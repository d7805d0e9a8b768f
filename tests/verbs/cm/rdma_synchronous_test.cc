// Identifiers without an event channel, whose calls wait.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "tests/out_of_descriptors.h"
#include "tests/verbs/cm/rdma_fixture.h"

namespace fairlead::cm {
namespace {

using test::address;
using test::raw;
using test::RdmaApi;

TEST_F(RdmaApi, SynchronousEndpoints) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = RAI_PASSIVE;
  sockaddr_in at = address(1);
  const std::string node = ::inet_ntoa(at.sin_addr);
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(api::getaddrinfo(node.c_str(), "7006", &hints, &info), 0);
  ibv_qp_init_attr attr{};
  attr.cap = {4, 4, 1, 1, 0};
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(api::create_ep(&listener, info, nullptr, &attr), 0);
  api::freeaddrinfo(info);
  ASSERT_EQ(api::listen(listener, 0), 0);

  std::atomic<int> client_result{-1};
  std::thread client_thread([&] {
    rdma_addrinfo wanted{};
    wanted.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* found = nullptr;
    ibv_qp_init_attr init{};
    init.cap = {4, 4, 1, 1, 0};
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(api::getaddrinfo(node.c_str(), "7006", &wanted, &found), 0);
    EXPECT_EQ(api::create_ep(&id, found, nullptr, &init), 0);
    api::freeaddrinfo(found);
    EXPECT_EQ(id->send_cq->cq_context, id) << "rdma_get_send_comp() compares them";
    EXPECT_EQ(id->recv_cq->cq_context, id);
    client_result = api::connect(id, nullptr);
    EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(api::disconnect(id), 0);
    api::destroy_ep(id);
  });
  rdma_cm_id* server = nullptr;
  ASSERT_EQ(api::get_request(listener, &server), 0);
  EXPECT_NE(server->qp, nullptr);
  api::destroy_ep(listener);  // may end before what it accepted
  EXPECT_EQ(api::accept(server, nullptr), 0);
  client_thread.join();
  EXPECT_EQ(client_result, 0);
  api::destroy_ep(server);
}

// It would have stayed in the listener's channel, which may end before it.
TEST_F(RdmaApi, ARequestThatGetsNoChannelIsRefused) {
  constexpr std::uint16_t kPort = 7041;
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(api::create_id(nullptr, &listener, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in at = address(1, kPort);
  ASSERT_EQ(api::bind_addr(listener, raw(at)), 0);
  ASSERT_EQ(api::listen(listener, 0), 0);
  rdma_cm_id* client = resolve(2, 1, kPort);
  ASSERT_EQ(make_qp(client), 0);
  ASSERT_EQ(api::connect(client, nullptr), 0);
  pollfd asked{listener->channel->fd, POLLIN, 0};
  ASSERT_EQ(::poll(&asked, 1, 20'000), 1);
  {
    const fairlead::test::OutOfDescriptors none;
    rdma_cm_id* server = nullptr;
    EXPECT_EQ(api::get_request(listener, &server), -1);
    EXPECT_EQ(errno, EMFILE);
  }
  rdma_cm_event* event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event->status, 28);
  api::ack_cm_event(event);
  end(client);
  EXPECT_EQ(api::destroy_id(listener), 0) << "which waits until every event is acknowledged";
}

}  // namespace
}  // namespace fairlead::cm
