// Management datagrams between two devices that are joined in memory.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "tests/own_address.h"
#include "tests/verbs/cm/captured.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/cm/device_cm.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/api/soft.h"
#include "verbs/soft/datagram/management.h"
#include "verbs/soft/port/udp/group_names.h"

namespace fairlead::soft {
namespace {

struct Recorder final : ManagementHandler {
  void on_mad(const Gid& local, const Gid& remote, std::span<const std::byte, kMadBytes> mad) noexcept override {
    last_local = local;
    last_remote = remote;
    mads.emplace_back(mad.begin(), mad.end());
  }
  void run_timers() noexcept override { ++timers; }
  Gid last_local;
  Gid last_remote;
  std::vector<std::vector<std::byte>> mads;
  int timers = 0;
};

TEST(Qp1, CarriesAMad) {
  test::Simulation pair;
  Recorder recorder;
  Domain& a = impl(pair.a->context).domain();
  Domain& b = impl(pair.b->context).domain();
  b.set_management(&recorder);
  const Gid left = Gid::from_verbs(pair.a->gid());
  const Gid right = Gid::from_verbs(pair.b->gid());
  const cm::MadBytes mad = cm::test::pad(cm::test::kReq);
  {
    const DomainLock lock(a);
    EXPECT_TRUE(management::send(a, left, right, mad));
    EXPECT_FALSE(management::send(a, right, left, mad)) << "this device has no such address";
  }
  pair.run_for(kMillisecond);
  ASSERT_EQ(recorder.mads.size(), 1U);
  EXPECT_EQ(recorder.mads[0], std::vector<std::byte>(mad.begin(), mad.end()));
  EXPECT_EQ(recorder.last_local, right);
  EXPECT_EQ(recorder.last_remote, left);
  b.set_management(nullptr);
}

TEST(Qp1, WithoutAHandlerMadsAreDropped) {
  test::Simulation pair;
  Domain& a = impl(pair.a->context).domain();
  {
    const DomainLock lock(a);
    EXPECT_TRUE(management::send(a, Gid::from_verbs(pair.a->gid()), Gid::from_verbs(pair.b->gid()), cm::MadBytes{}));
  }
  pair.run_for(kMillisecond);
  EXPECT_EQ(pair.b->counter("drop_no_qp"), 1U);
}

TEST(Qp1, TimersOfTheHandlerRun) {
  test::Simulation pair;
  Recorder recorder;
  Domain& a = impl(pair.a->context).domain();
  a.set_management(&recorder);
  {
    const DomainLock lock(a);
    a.set_deadline(pair.clock.now() + kMillisecond);
  }
  pair.run_for(2 * kMillisecond);
  EXPECT_EQ(recorder.timers, 1);
  a.set_management(nullptr);
}

// A device over UDP at an address of this process, with a manager. Several at one address share it, as processes do.
class Node {
 public:
  explicit Node(unsigned host) : cm(impl(open(host))), address(Gid::from_verbs(gid())) {}
  ~Node() {
    {
      const DomainLock lock(cm.domain());
      cm.domain().set_management(nullptr);
    }
    EXPECT_EQ(api::close_device(cm.context()), 0);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  template <typename Holds>
  bool wait_until(Holds&& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      {
        const DomainLock lock(cm.domain());
        if (holds()) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  cm::DeviceCm cm;
  const Gid address;

 private:
  static ibv_context* open(unsigned host) {
    static int count = 0;
    const auto device = find_or_add_device({fmt::format("cm{}", count++), Profile::kFull, "udp",
                                            to_string(Gid::from_ipv4(fairlead::test::own_address(host)))});
    return *open_device(*device);
  }
  ibv_gid gid() {
    ibv_gid own{};
    EXPECT_EQ(api::query_gid(cm.context(), 1, 1, &own), 0);
    return own;
  }
};

struct Party final : cm::User, cm::Listener {
  void on_event(cm::Connection&, const cm::Event& event) noexcept override { events.push_back(event.type); }
  cm::User* on_request(cm::Connection& connection) noexcept override {
    requested = &connection;
    return this;
  }
  std::vector<cm::Event::Type> events;
  cm::Connection* requested = nullptr;
};

TEST(Qp1, OfASharedAddressIsHeardByWhoAsked) {
  using Type = cm::Event::Type;
  constexpr std::uint64_t kService = 0x01061234;
  Node peer(50);
  std::vector<std::unique_ptr<Node>> members;
  for (int i = 0; i < 3; ++i) members.push_back(std::make_unique<Node>(51));
  Party server;
  {
    const DomainLock lock(peer.cm.domain());
    ASSERT_TRUE(peer.cm.manager.listen(kService, Gid{}, server));
  }
  for (const auto& member : members) {
    Party client;
    cm::Connection* active = nullptr;
    {
      const DomainLock lock(member->cm.domain());
      active = &member->cm.manager.open(member->address, peer.address, client);
      cm::Req req;
      req.service_id = kService;
      ASSERT_TRUE(active->connect(req));
    }
    ASSERT_TRUE(peer.wait_until([&] { return server.requested != nullptr && server.requested->accept({}); }));
    ASSERT_TRUE(member->wait_until([&] { return client.events == std::vector{Type::kReply}; }));
    {
      const DomainLock lock(member->cm.domain());
      EXPECT_TRUE(active->establish());
    }
    ASSERT_TRUE(peer.wait_until([&] { return server.events == std::vector{Type::kEstablished}; }));
    {
      const DomainLock lock(peer.cm.domain());
      EXPECT_TRUE(server.requested->disconnect());
    }
    EXPECT_TRUE(
        member->wait_until([&] { return client.events.size() > 1 && client.events[1] == Type::kDisconnected; }));
    EXPECT_TRUE(peer.wait_until([&] { return server.events.size() > 1; }));
    {
      const DomainLock lock(member->cm.domain());
      active->release();
    }
    const DomainLock lock(peer.cm.domain());
    server.requested->release();
    server = {};
  }
  // A service to datagrams.
  Party client;
  cm::Connection* active = nullptr;
  {
    const DomainLock lock(members.back()->cm.domain());
    active = &members.back()->cm.manager.open(members.back()->address, peer.address, client);
    cm::SidrReq req;
    req.service_id = kService;
    ASSERT_TRUE(active->resolve(req));
  }
  ASSERT_TRUE(peer.wait_until([&] { return server.requested != nullptr && server.requested->answer({}); }));
  EXPECT_TRUE(members.back()->wait_until([&] { return client.events == std::vector{Type::kResolved}; }));
  {
    const DomainLock lock(members.back()->cm.domain());
    active->release();
  }
  const DomainLock lock(peer.cm.domain());
  server.requested->release();
}

// Whoever listens for a service at a shared address gets the requests for it.
class SharedListeners : public testing::Test {
 protected:
  static constexpr std::uint64_t kService = 0x01065678;
  static constexpr std::uint32_t kOwnGid = 1;

  void listen(Node& at, std::uint64_t service, Party& party) {
    ASSERT_EQ(at.cm.listen_at(kOwnGid, service), 0);
    const DomainLock lock(at.cm.domain());
    ASSERT_TRUE(at.cm.manager.listen(service, Gid{}, party));
  }
  void unlisten(Node& at, std::uint64_t service, Party& party) {
    at.cm.leave(at.address, service);
    const DomainLock lock(at.cm.domain());
    at.cm.manager.unlisten(service, party);
  }
  // The party, which listens at `server`, is asked, and nobody else.
  void expect_request(std::uint64_t service, Node& server, Party& party, bool datagram = false) {
    Party client;
    cm::Connection* active = nullptr;
    {
      const DomainLock lock(peer.cm.domain());
      active = &peer.cm.manager.open(peer.address, server.address, client);
      cm::Req req;
      cm::SidrReq datagrams;
      req.service_id = datagrams.service_id = service;
      ASSERT_TRUE(datagram ? active->resolve(datagrams) : active->connect(req));
    }
    EXPECT_TRUE(server.wait_until([&] { return party.requested != nullptr; }));
    EXPECT_TRUE(client.events.empty()) << "somebody rejected it";
    {
      const DomainLock lock(peer.cm.domain());
      active->release();
    }
    const DomainLock lock(server.cm.domain());
    if (party.requested != nullptr) party.requested->release();
    party = {};
  }

  Node peer{52};
};

TEST_F(SharedListeners, EachHasItsServices) {
  Node first(53);
  Node second(53);
  Node third(53);
  Party of_first, of_second, of_third;
  listen(first, kService, of_first);
  listen(second, kService + 1, of_second);
  listen(third, kService + 2, of_third);
  expect_request(kService + 2, third, of_third);
  expect_request(kService + 1, second, of_second);
  expect_request(kService, first, of_first);
  expect_request(kService + 1, second, of_second, true);
  unlisten(second, kService + 1, of_second);
  listen(third, kService + 1, of_second);
  expect_request(kService + 1, third, of_second);
  expect_request(kService, first, of_first);
}

TEST_F(SharedListeners, AServiceHasOneWhileThatOneLives) {
  auto first = std::make_unique<Node>(53);
  Node second(53);
  EXPECT_EQ(first->cm.listen_at(kOwnGid, kService), 0);
  EXPECT_EQ(second.cm.listen_at(kOwnGid, kService, LogLevel::kInfo), EADDRINUSE);
  first.reset();  // and what it listened for is forgotten with it
  Party server;
  listen(second, kService, server);
  expect_request(kService, second, server);
}

// Whoever waits for another process to finish joining must not have the domain wait.
TEST_F(SharedListeners, TheDomainIsFreeWhileAListenerWaitsForOthers) {
  Node node(53);
  const auto names = GroupNames::open(node.address);
  ASSERT_TRUE(names);
  const auto domain_is_free = [&node] {
    for (int i = 0; i < 1000; ++i) {
      ::usleep(1000);
      if (!node.cm.domain().try_lock()) continue;  // the watcher's, now and then
      node.cm.domain().unlock();
      return true;
    }
    return false;
  };
  const auto do_while_another_joins = [&](const std::function<void()>& action) {
    std::optional<Result<PrivateFd>> other = names->lock();
    ASSERT_TRUE(*other);
    std::thread listener(action);
    ::usleep(200'000);  // it waits by now
    EXPECT_TRUE(domain_is_free());
    other.reset();
    listener.join();
  };
  do_while_another_joins([&node] { EXPECT_EQ(node.cm.listen_at(kOwnGid, kService), 0); });
  do_while_another_joins([&node] { node.cm.leave(node.address, kService); });
}

}  // namespace
}  // namespace fairlead::soft
