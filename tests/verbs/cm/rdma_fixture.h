// What the tests of the rdma_* calls share: two devices of this process, over UDP on loopback, and one event channel.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/own_address.h"
#include "verbs/cm/rdma_api.h"
#include "verbs/soft/api/api.h"

namespace fairlead::cm::test {

inline sockaddr_in address(unsigned host, std::uint16_t port = 0) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(fairlead::test::own_address(host));
  return at;
}
inline sockaddr* raw(sockaddr_in& at) { return reinterpret_cast<sockaddr*>(&at); }

inline constexpr int kTimeoutMs = 2000;

class RdmaApi : public testing::Test {
 protected:
  void SetUp() override {
    channel = api::create_event_channel();
    ASSERT_NE(channel, nullptr);
  }
  void TearDown() override { api::destroy_event_channel(channel); }

  rdma_cm_id* make_id() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(api::create_id(channel, &id, this, RDMA_PS_TCP), 0);
    return id;
  }
  // Fails instead of waiting for ever.
  rdma_cm_event* next(rdma_event_channel* from = nullptr) {
    if (from == nullptr) from = channel;
    pollfd ready{from->fd, POLLIN, 0};
    rdma_cm_event* event = nullptr;
    if (::poll(&ready, 1, 20'000) != 1) {
      ADD_FAILURE() << "no event came";
    } else {
      EXPECT_EQ(api::get_cm_event(from, &event), 0);
    }
    return event;
  }
  // The event, acknowledged; -1 for none.
  int next_type() {
    rdma_cm_event* event = next();
    if (event == nullptr) return -1;
    const int type = event->event;
    api::ack_cm_event(event);
    return type;
  }
  static int make_qp(rdma_cm_id* id) {
    ibv_qp_init_attr attr{};
    attr.cap = {16, 16, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    return api::create_qp(id, nullptr, &attr);
  }
  rdma_cm_id* listen_at(unsigned host, std::uint16_t port, int backlog = 8) {
    rdma_cm_id* id = make_id();
    sockaddr_in at = address(host, port);
    EXPECT_EQ(api::bind_addr(id, raw(at)), 0);
    EXPECT_EQ(api::listen(id, backlog), 0);
    return id;
  }
  rdma_cm_id* resolve(unsigned from, unsigned to, std::uint16_t port) {
    rdma_cm_id* id = make_id();
    sockaddr_in source = address(from);
    sockaddr_in target = address(to, port);
    EXPECT_EQ(api::resolve_addr(id, raw(source), raw(target), kTimeoutMs), 0);
    EXPECT_EQ(next_type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(api::resolve_route(id, kTimeoutMs), 0);
    EXPECT_EQ(next_type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
  }
  static rdma_conn_param param(const std::string& words) {
    rdma_conn_param value{};
    value.private_data = words.data();
    value.private_data_len = static_cast<std::uint8_t>(words.size());
    value.responder_resources = 3;
    value.initiator_depth = 5;
    value.retry_count = value.rnr_retry_count = 7;
    return value;
  }
  static std::string words(const rdma_conn_param& from, std::size_t count) {
    return {static_cast<const char*>(from.private_data), count};
  }
  static void end(rdma_cm_id* id) {
    api::destroy_qp(id);
    EXPECT_EQ(api::destroy_id(id), 0);
  }

  rdma_event_channel* channel = nullptr;
};

inline ibv_wc wait_for_completion(ibv_cq* cq) {
  ibv_wc completion{};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (soft::api::poll_cq(cq, 1, &completion) == 0) {
    if (std::chrono::steady_clock::now() > until) {
      ADD_FAILURE() << "no completion came";
      break;
    }
  }
  return completion;
}

}  // namespace fairlead::cm::test
