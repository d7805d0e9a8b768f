// The rdma_* calls between two devices of this process, over UDP on loopback.
#include "verbs/cm/rdma_api.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "fairlead/log.h"
#include "tests/verbs/cm/rdma_fixture.h"
#include "verbs/cm/channel.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/wire/gid.h"

// The manager keeps its devices, and so the threads that watch them, until the process ends.
extern "C" const char* __tsan_default_options() {
  return "report_thread_leaks=0";
}  // NOLINT(bugprone-reserved-identifier)

namespace fairlead::cm {
namespace {

using test::address;
using test::kTimeoutMs;
using test::raw;
using test::RdmaApi;
using test::wait_for_completion;

TEST_F(RdmaApi, ConnectSendDisconnect) {
  rdma_cm_id* listener = listen_at(1, 7001);
  rdma_cm_id* client = resolve(2, 1, 7001);
  ASSERT_EQ(make_qp(client), 0);
  const std::string hello = "hello";
  rdma_conn_param ask = param(hello);
  ASSERT_EQ(api::connect(client, &ask), 0);

  rdma_cm_event* event = next();
  ASSERT_NE(event, nullptr);
  ASSERT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(event->listen_id, listener);
  rdma_cm_id* server = event->id;
  EXPECT_EQ(server->context, this) << "a request inherits the listener's context";
  EXPECT_EQ(words(event->param.conn, hello.size()), hello);
  EXPECT_EQ(event->param.conn.private_data_len, 56);
  EXPECT_EQ(event->param.conn.responder_resources, 5) << "what the peer asks is answered here";
  EXPECT_EQ(event->param.conn.initiator_depth, 3);
  EXPECT_EQ(event->param.conn.qp_num, client->qp->qp_num);
  EXPECT_EQ(api::get_src_port(server), htons(7001));
  EXPECT_EQ(api::get_dst_port(server), api::get_src_port(client));
  sockaddr_in expected = address(2);
  EXPECT_EQ(server->route.addr.dst_sin.sin_addr.s_addr, expected.sin_addr.s_addr);
  api::ack_cm_event(event);

  ASSERT_EQ(make_qp(server), 0);
  std::string inbox(16, ' ');
  ibv_mr* region = soft::api::reg_mr(server->pd, inbox.data(), inbox.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_sge place{reinterpret_cast<std::uint64_t>(inbox.data()), 16, region->lkey};
  ibv_recv_wr receive{};
  receive.sg_list = &place;
  receive.num_sge = 1;
  ibv_recv_wr* bad_receive = nullptr;
  ASSERT_EQ(soft::api::post_recv(server->qp, &receive, &bad_receive), 0);
  const std::string welcome = "welcome";
  rdma_conn_param answer = param(welcome);
  ASSERT_EQ(api::accept(server, &answer), 0);

  for (int i = 0; i < 2; ++i) {
    event = next();
    ASSERT_NE(event, nullptr);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
    if (event->id == client) {
      EXPECT_EQ(words(event->param.conn, welcome.size()), welcome);
    } else {
      EXPECT_EQ(event->param.conn.private_data, nullptr) << "a message without any";
      EXPECT_EQ(event->param.conn.private_data_len, 0);
    }
    api::ack_cm_event(event);
  }
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(soft::api::query_qp(client->qp, &attr, 0, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.dest_qp_num, server->qp->qp_num);

  std::string outbox = "over the wire...";
  ibv_mr* source = soft::api::reg_mr(client->pd, outbox.data(), outbox.size(), 0);
  ibv_sge what{reinterpret_cast<std::uint64_t>(outbox.data()), 16, source->lkey};
  ibv_send_wr send{};
  send.sg_list = &what;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  ibv_send_wr* bad_send = nullptr;
  ASSERT_EQ(soft::api::post_send(client->qp, &send, &bad_send), 0);
  EXPECT_EQ(wait_for_completion(server->recv_cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(inbox, outbox);
  EXPECT_EQ(wait_for_completion(client->send_cq).status, IBV_WC_SUCCESS);

  ASSERT_EQ(api::disconnect(client), 0);
  EXPECT_EQ(next_type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(next_type(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(api::disconnect(server), 0);
  EXPECT_EQ(soft::api::dereg_mr(region), 0);
  EXPECT_EQ(soft::api::dereg_mr(source), 0);
  end(client);
  end(server);
  end(listener);
}

TEST_F(RdmaApi, RejectedByTheProgram) {
  rdma_cm_id* listener = listen_at(1, 7002);
  rdma_cm_id* client = resolve(2, 1, 7002);
  ASSERT_EQ(make_qp(client), 0);
  rdma_conn_param ask = param("");
  ASSERT_EQ(api::connect(client, &ask), 0);
  rdma_cm_event* event = next();
  ASSERT_NE(event, nullptr);
  rdma_cm_id* server = event->id;
  api::ack_cm_event(event);
  ASSERT_EQ(api::reject(server, "no", 2), 0);
  event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event->status, 28);
  EXPECT_EQ(words(event->param.conn, 2), "no");
  api::ack_cm_event(event);
  EXPECT_NE(api::accept(server, &ask), 0);
  end(server);
  end(client);
  end(listener);
}

TEST_F(RdmaApi, NobodyListens) {
  rdma_cm_id* other = listen_at(1, 7003);
  rdma_cm_id* client = resolve(2, 1, 7004);
  ASSERT_EQ(make_qp(client), 0);
  ASSERT_EQ(api::connect(client, nullptr), 0);
  rdma_cm_event* event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event->status, 8);
  api::ack_cm_event(event);
  end(client);
  end(other);
}

TEST_F(RdmaApi, PendingRequestsOfAListenerThatEndsAreRejected) {
  rdma_cm_id* listener = listen_at(1, 7005);
  rdma_cm_id* client = resolve(2, 1, 7005);
  ASSERT_EQ(make_qp(client), 0);
  ASSERT_EQ(api::connect(client, nullptr), 0);
  pollfd ready{channel->fd, POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 20'000), 1);
  ASSERT_EQ(api::destroy_id(listener), 0);
  EXPECT_EQ(next_type(), RDMA_CM_EVENT_REJECTED);
  end(client);
}

// The child's copy of the identifier goes, and with it the copy of its event.
TEST_F(RdmaApi, AForkedChildThatEndsItsCopiesLeavesTheParentItsEvents) {
  rdma_cm_id* id = make_id();
  sockaddr_in source = address(2);
  sockaddr_in target = address(1, 7019);
  ASSERT_EQ(api::resolve_addr(id, raw(source), raw(target), kTimeoutMs), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(api::destroy_id(id));
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  pollfd ready{channel->fd, POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 1000), 1);
  EXPECT_EQ(next_type(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(api::resolve_route(id, kTimeoutMs), 0);
  EXPECT_EQ(next_type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(api::destroy_id(id), 0);
}

TEST_F(RdmaApi, AForkedChildGetsNoEventsAndDoesNotWaitForThoseOfTheParent) {
  rdma_cm_id* id = make_id();
  sockaddr_in source = address(2);
  sockaddr_in target = address(1, 7020);
  ASSERT_EQ(api::resolve_addr(id, raw(source), raw(target), kTimeoutMs), 0);
  rdma_cm_event* taken = next();
  ASSERT_NE(taken, nullptr);
  std::unique_lock elsewhere(events_mutex());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    rdma_cm_event* event = nullptr;
    if (api::get_cm_event(channel, &event) == 0 || errno != ENODEV) ::_exit(1);
    if (api::destroy_id(id) != 0) ::_exit(2);
    api::destroy_event_channel(channel);
    ::_exit(0);
  }
  elsewhere.unlock();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  api::ack_cm_event(taken);
  EXPECT_EQ(api::destroy_id(id), 0);
}

TEST_F(RdmaApi, NonBlockingChannel) {
  ASSERT_EQ(::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(api::get_cm_event(channel, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// As rping's client does: its event thread waits while main destroys what it was connected by. An event that comes and
// is withdrawn in that moment wakes the thread, which must neither look at what is gone nor return with an error.
TEST_F(RdmaApi, AThreadWaitsOnInAChannelThatIsDestroyed) {
  static std::atomic<int> returned{0};  // its threads outlive the test
  constexpr int kRounds = 20;
  for (int i = 0; i < kRounds; ++i) {
    auto* ending = static_cast<Channel*>(api::create_event_channel());
    ASSERT_NE(ending, nullptr);
    std::thread([ending] {
      rdma_cm_event* event = nullptr;
      api::get_cm_event(ending, &event);
      ++returned;
    }).detach();
    const auto waits = [ending] {
      const std::lock_guard lock(events_mutex());
      return ending->waited_in();
    };
    while (!waits()) std::this_thread::yield();
    EventRecord record;
    {
      const std::lock_guard lock(events_mutex());
      ending->push(record);
      std::ignore = ending->extract([](const EventRecord&) { return true; });
    }
    api::destroy_event_channel(ending);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(returned, 0);
}

TEST_F(RdmaApi, EventsMoveWithTheirIdentifier) {
  rdma_cm_id* id = make_id();
  sockaddr_in source = address(2);
  sockaddr_in target = address(1, 7007);
  ASSERT_EQ(api::resolve_addr(id, raw(source), raw(target), kTimeoutMs), 0);
  rdma_event_channel* other = api::create_event_channel();
  ASSERT_EQ(api::migrate_id(id, other), 0);
  EXPECT_EQ(id->channel, other);
  pollfd old{channel->fd, POLLIN, 0};
  EXPECT_EQ(::poll(&old, 1, 0), 0) << "the old channel has nothing left";
  rdma_cm_event* event = next(other);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  api::ack_cm_event(event);
  EXPECT_EQ(api::destroy_id(id), 0);
  api::destroy_event_channel(other);
}

// While requests arrive, the listener goes from channel to channel, each of which ends once it is left. The identifier
// of a request could get the channel that was just left, and its events went to what was freed.
TEST_F(RdmaApi, RequestsMoveWithTheirListener) {
  constexpr unsigned kConnections = 50;
  constexpr std::uint16_t kPort = 7031;
  rdma_cm_id* listener = listen_at(1, kPort);
  rdma_event_channel* current = nullptr;
  const auto move_on = [&] {
    rdma_event_channel* const fresh = api::create_event_channel();
    EXPECT_EQ(api::migrate_id(listener, fresh), 0);
    api::destroy_event_channel(std::exchange(current, fresh));
  };
  move_on();  // the fixture's channel is the clients'
  std::thread clients([&] {
    for (unsigned i = 0; i < kConnections && !HasFailure(); ++i) {
      rdma_cm_id* client = resolve(2, 1, kPort);
      rdma_conn_param ask{};
      ask.qp_num = 100 + i;
      EXPECT_EQ(api::connect(client, &ask), 0);
      EXPECT_EQ(next_type(), RDMA_CM_EVENT_CONNECT_RESPONSE);
      EXPECT_EQ(api::establish(client), 0);
      EXPECT_EQ(next_type(), RDMA_CM_EVENT_DISCONNECTED);
      EXPECT_EQ(api::destroy_id(client), 0);
    }
  });
  for (unsigned served = 0; served < kConnections && !HasFailure();) {
    move_on();
    pollfd ready{current->fd, POLLIN, 0};
    if (::poll(&ready, 1, 0) != 1) continue;
    rdma_cm_event* request = next(current);
    if (request == nullptr) break;
    EXPECT_EQ(request->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    rdma_cm_id* child = request->id;
    EXPECT_EQ(child->channel, current);
    api::ack_cm_event(request);
    if (child->channel != current) break;
    rdma_conn_param answer{};
    answer.qp_num = 1000 + served;
    EXPECT_EQ(api::accept(child, &answer), 0);
    rdma_cm_event* established = next(current);
    if (established == nullptr) break;
    EXPECT_EQ(established->event, RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(established->id, child);
    api::ack_cm_event(established);
    EXPECT_EQ(api::destroy_id(child), 0);
    ++served;
  }
  clients.join();
  EXPECT_EQ(api::destroy_id(listener), 0);
  api::destroy_event_channel(current);
}

TEST_F(RdmaApi, DestroyWaitsForAcknowledgement) {
  rdma_cm_id* id = make_id();
  sockaddr_in source = address(2);
  sockaddr_in target = address(1, 7008);
  ASSERT_EQ(api::resolve_addr(id, raw(source), raw(target), kTimeoutMs), 0);
  rdma_cm_event* event = next();
  std::atomic<bool> destroyed{false};
  std::thread thread([&] {
    api::destroy_id(id);
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(destroyed);
  api::ack_cm_event(event);
  thread.join();
}

TEST_F(RdmaApi, WhatCannotBeIsRefused) {
  rdma_cm_id* id = make_id();
  sockaddr_in strange{};
  strange.sin_family = AF_INET;
  strange.sin_addr.s_addr = htonl(0xc6336401);  // 198.51.100.1, for documentation
  EXPECT_EQ(api::bind_addr(id, raw(strange)), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  EXPECT_EQ(make_qp(id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(api::connect(id, nullptr), -1);
  EXPECT_EQ(api::accept(id, nullptr), -1);
  EXPECT_EQ(api::disconnect(id), -1);
  EXPECT_EQ(api::join_multicast(id, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(api::destroy_id(id), 0);

  rdma_cm_id* client = resolve(2, 1, 7009);
  ASSERT_EQ(make_qp(client), 0);
  const std::string long_words(57, 'x');
  rdma_conn_param ask = param(long_words);
  EXPECT_EQ(api::connect(client, &ask), -1);
  EXPECT_EQ(errno, EINVAL);
  end(client);
}

TEST_F(RdmaApi, APortHasOneListener) {
  rdma_cm_id* first = listen_at(1, 7010);
  rdma_cm_id* second = make_id();
  sockaddr_in at = address(1, 7010);
  EXPECT_EQ(api::bind_addr(second, raw(at)), 0);
  EXPECT_EQ(api::listen(second, 1), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  end(second);
  end(first);
}

// A listener at "any" of a family.
int listen_at_any(rdma_cm_id* id, int family, bool only, std::uint16_t port) {
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  // The port is at the same place in both families.
  reinterpret_cast<sockaddr_in&>(any).sin_port = htons(port);
  int flag = only ? 1 : 0;
  EXPECT_EQ(api::set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &flag, sizeof(flag)), 0);
  EXPECT_EQ(api::bind_addr(id, reinterpret_cast<sockaddr*>(&any)), 0);
  return api::listen(id, 4);
}

TEST_F(RdmaApi, BothFamiliesListenAtOnePort) {
  rdma_cm_id* v4 = make_id();
  rdma_cm_id* v6 = make_id();
  rdma_cm_id* both = make_id();
  EXPECT_EQ(listen_at_any(v4, AF_INET, true, 7012), 0);
  EXPECT_EQ(listen_at_any(v6, AF_INET6, true, 7012), 0) << "as programs do that listen at 0.0.0.0 and at ::";
  EXPECT_EQ(v6->route.addr.src_addr.sa_family, AF_INET6);
  EXPECT_EQ(listen_at_any(both, AF_INET6, false, 7012), -1) << ":: alone means both";
  EXPECT_EQ(errno, EADDRINUSE);
  end(v4);
  end(v6);
  EXPECT_EQ(api::listen(both, 4), 0);
  end(both);
}

TEST_F(RdmaApi, AListenerAtIpv6OnlyHearsNoIpv4) {
  rdma_cm_id* first = listen_at(1, 7013);  // there is a device at that address
  rdma_cm_id* v6 = make_id();
  ASSERT_EQ(listen_at_any(v6, AF_INET6, true, 7014), 0);
  rdma_cm_id* client = resolve(2, 1, 7014);
  ASSERT_EQ(make_qp(client), 0);
  ASSERT_EQ(api::connect(client, nullptr), 0);
  rdma_cm_event* event = next();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  api::ack_cm_event(event);
  end(client);
  end(v6);
  end(first);
}

// rsockets and others bring one completion queue for both directions.
TEST_F(RdmaApi, OneCompletionQueueForBothDirectionsEndsOnce) {
  rdma_cm_id* id = resolve(2, 1, 7015);
  id->recv_cq_channel = id->send_cq_channel = soft::api::create_comp_channel(id->verbs);
  id->recv_cq = id->send_cq = soft::api::create_cq(id->verbs, 8, id, id->recv_cq_channel, 0);
  ibv_qp_init_attr attr{};
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = id->send_cq;
  attr.recv_cq = id->recv_cq;
  ASSERT_EQ(api::create_qp(id, nullptr, &attr), 0);
  api::destroy_qp(id);
  EXPECT_EQ(id->send_cq, nullptr);
  EXPECT_EQ(id->recv_cq, nullptr);
  EXPECT_EQ(id->send_cq_channel, nullptr);
  EXPECT_EQ(id->recv_cq_channel, nullptr);
  EXPECT_EQ(api::destroy_id(id), 0);
}

// A UDP socket stands for the device of another process.
class AddressOfAnother : public RdmaApi {
 protected:
  void hold(unsigned host) {
    sockaddr_in at = address(host, 4791);
    socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::bind(socket, raw(at), sizeof(at)), 0);
  }
  void TearDown() override {
    ::close(socket);
    RdmaApi::TearDown();
  }
  int socket = -1;
};

TEST_F(AddressOfAnother, MayBeConnectedFromButNotListenedAt) {
  hold(40);
  rdma_cm_id* listener = listen_at(1, 7016);
  rdma_cm_id* client = resolve(40, 1, 7016);
  ASSERT_NE(client->verbs, nullptr);
  ASSERT_EQ(make_qp(client), 0);
  ASSERT_EQ(api::connect(client, nullptr), 0);
  rdma_cm_event* event = next();
  ASSERT_NE(event, nullptr);
  ASSERT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* server = event->id;
  api::ack_cm_event(event);
  ASSERT_EQ(make_qp(server), 0);
  ASSERT_EQ(api::accept(server, nullptr), 0);
  EXPECT_EQ(next_type(), RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(next_type(), RDMA_CM_EVENT_ESTABLISHED);

  rdma_cm_id* second = make_id();
  sockaddr_in at = address(40, 7017);
  EXPECT_EQ(api::bind_addr(second, raw(at)), 0);
  EXPECT_EQ(api::listen(second, 1), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  end(second);
  end(client);
  end(server);
  end(listener);
}

std::atomic<int> lines_at_warning{0};

// An address of the host that another process's device has is left to it.
TEST_F(RdmaApi, AListenerAtEveryAddressComplainsOfNone) {
  rdma_cm_id* first = make_id();
  sockaddr_in source = address(2);
  ASSERT_EQ(api::bind_addr(first, raw(source)), 0);
  // Whatever addresses the host has, if it has any, are held.
  std::vector<int> sockets;
  for (int i = 1; i < 16; ++i) {
    ibv_gid gid{};
    if (soft::api::query_gid(first->verbs, 1, i, &gid) != 0) continue;
    const auto at = soft::Gid::from_verbs(gid);
    if (!at.is_ipv4() || at.ipv4() >> 24 == 127) continue;
    sockaddr_in host{};
    host.sin_family = AF_INET;
    host.sin_port = htons(4791);
    host.sin_addr.s_addr = htonl(at.ipv4());
    const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    static_cast<void>(::bind(socket, raw(host), sizeof(host)));  // or another program holds it
    sockets.push_back(socket);
  }
  lines_at_warning = 0;
  set_log_sink([](LogLevel level, std::string_view) {
    if (level >= LogLevel::kWarning) ++lines_at_warning;
  });
  rdma_cm_id* listener = make_id();
  EXPECT_EQ(listen_at_any(listener, AF_INET, false, 7018), 0);
  set_log_sink(nullptr);
  EXPECT_EQ(lines_at_warning, 0);
  for (const int socket : sockets) ::close(socket);
  end(listener);
  end(first);
  if (sockets.empty()) GTEST_SKIP() << "the host has no address but loopback's";
}

TEST_F(RdmaApi, AFullBacklogMakesTheNextOneWait) {
  rdma_cm_id* listener = listen_at(1, 7011, 1);
  rdma_cm_id* clients[2] = {resolve(2, 1, 7011), resolve(3, 1, 7011)};
  for (rdma_cm_id* client : clients) {
    ASSERT_EQ(make_qp(client), 0);
    ASSERT_EQ(api::connect(client, nullptr), 0);
  }
  // The second one's request comes again once the first is taken, before or after the first client hears.
  int requests = 0;
  int rejections = 0;
  while (requests + rejections < 4) {
    rdma_cm_event* event = next();
    ASSERT_NE(event, nullptr);
    const rdma_cm_event_type type = event->event;
    rdma_cm_id* id = event->id;
    api::ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      ++requests;
      EXPECT_EQ(api::reject(id, nullptr, 0), 0);
      end(id);
    } else {
      ASSERT_EQ(type, RDMA_CM_EVENT_REJECTED);
      ++rejections;
    }
  }
  EXPECT_EQ(requests, 2);
  for (rdma_cm_id* client : clients) end(client);
  end(listener);
}

TEST(RdmaEvents, HaveNames) {
  EXPECT_STREQ(api::event_str(RDMA_CM_EVENT_ADDR_RESOLVED), "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_STREQ(api::event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
}

}  // namespace
}  // namespace fairlead::cm
