// Two managers on a wire that loses what it is told to, and a clock that only the test moves.
#include "verbs/cm/manager.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <string>

namespace fairlead::cm {
namespace {

const Gid kLeft = Gid::from_ipv4(0x0a000001);
const Gid kRight = Gid::from_ipv4(0x0a000002);
constexpr std::uint64_t kService = 0x01061234;

struct Wire {
  struct Frame {
    Gid from, to;
    MadBytes mad;
  };
  Nanos now = kSecond;
  std::deque<Frame> frames;
  std::function<bool(const Message&)> loses = [](const Message&) { return false; };
  std::string trace;
};

const char* name(const Message& message) {
  static constexpr const char* kNames[] = {"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"};
  return kNames[message.index()];
}

// One end: it notes what it is told and takes what comes.
struct End final : Link, User, Listener {
  End(Wire& on, const Gid& at, std::uint64_t guid) : wire(on), gid(at), manager(*this, guid, guid) {}
  virtual ~End() = default;

  void send(const Gid& from, const Gid& to, const MadBytes& mad) noexcept override {
    const auto parsed = parse(mad);
    const bool lost = wire.loses(parsed->message);
    wire.trace += std::string(gid == kLeft ? ">" : "<") + name(parsed->message) + (lost ? "! " : " ");
    if (!lost) wire.frames.push_back({from, to, mad});
  }
  [[nodiscard]] Nanos now() const noexcept override { return wire.now; }
  void set_deadline(Nanos at) noexcept override {
    if (deadline == 0 || at < deadline) deadline = at;
  }
  void on_event(Connection&, const Event& event) noexcept override { events.push_back({event.type, event.status}); }
  User* on_request(Connection& connection) noexcept override {
    requested = &connection;
    return takes ? this : nullptr;
  }

  Wire& wire;
  const Gid gid;
  Nanos deadline = 0;
  std::vector<std::pair<Event::Type, int>> events;
  Connection* requested = nullptr;
  bool takes = true;
  Manager manager;
};

using Type = Event::Type;
using Events = std::vector<std::pair<Type, int>>;

class Cm : public testing::Test {
 protected:
  // Delivers what is under way; then, with `limit`, moves the clock from deadline to deadline.
  void run(Nanos limit = 0) {
    const Nanos end = wire.now + limit;
    while (true) {
      while (!wire.frames.empty()) {
        const Wire::Frame frame = wire.frames.front();
        wire.frames.pop_front();
        (frame.to == kLeft ? left : right).manager.on_mad(frame.to, frame.from, frame.mad);
      }
      Nanos next = 0;
      for (const End* at : {&left, &right}) {
        if (at->deadline != 0 && (next == 0 || at->deadline < next)) next = at->deadline;
      }
      if (next == 0 || next > end) break;
      wire.now = std::max(wire.now, next);
      for (End* at : {&left, &right}) {
        if (at->deadline == 0 || at->deadline > wire.now) continue;
        at->deadline = 0;
        at->manager.run_timers();
      }
    }
    wire.now = std::max(wire.now, end);
  }

  Connection& request() {
    Req req;
    req.service_id = kService;
    req.local_qpn = 0x11;
    req.primary.local_ack_timeout = 17;
    Connection& connection = left.manager.open(kLeft, kRight, left);
    EXPECT_TRUE(connection.connect(req));
    return connection;
  }
  Connection& resolve(std::uint64_t service) {
    SidrReq req;
    req.service_id = service;
    Connection& connection = left.manager.open(kLeft, kRight, left);
    EXPECT_TRUE(connection.resolve(req));
    return connection;
  }
  static bool accept(Connection& passive) {
    Rep rep;
    rep.local_qpn = 0x22;
    return passive.accept(rep);
  }
  Connection& establish() {
    Connection& active = request();
    run();
    EXPECT_TRUE(accept(*right.requested));
    run();
    EXPECT_TRUE(active.establish());
    run();
    return active;
  }
  // Loses the first `count` messages of a type.
  template <typename T>
  void lose(unsigned count) {
    wire.loses = [count](const Message& message) mutable {
      if (!std::holds_alternative<T>(message) || count == 0) return false;
      --count;
      return true;
    };
  }

  Wire wire;
  End left{wire, kLeft, 100};
  End right{wire, kRight, 200};
  void SetUp() override { ASSERT_TRUE(right.manager.listen(kService, Gid{}, right)); }
};

TEST_F(Cm, ConnectAndDisconnect) {
  Connection& active = establish();
  EXPECT_EQ(left.events, (Events{{Type::kReply, 0}}));
  EXPECT_EQ(right.events, (Events{{Type::kEstablished, 0}}));
  EXPECT_EQ(active.rep().local_qpn, 0x22U);
  EXPECT_EQ(right.requested->req().local_qpn, 0x11U);
  EXPECT_TRUE(active.disconnect());
  run(10 * kSecond);
  EXPECT_EQ(wire.trace, ">REQ <REP >RTU >DREQ <DREP ");
  EXPECT_EQ(left.events, (Events{{Type::kReply, 0}, {Type::kDisconnected, 0}, {Type::kTimewaitExit, 0}}));
  EXPECT_EQ(right.events, (Events{{Type::kEstablished, 0}, {Type::kDisconnected, 0}, {Type::kTimewaitExit, 0}}));
}

TEST_F(Cm, LostReqIsSentAgain) {
  lose<Req>(3);
  request();
  run(10 * kSecond);
  ASSERT_NE(right.requested, nullptr);
  EXPECT_EQ(wire.trace.substr(0, 20), ">REQ! >REQ! >REQ! >R");
}

TEST_F(Cm, SlowApplicationIsExcusedByMra) {
  Connection& active = request();
  run(40 * kSecond);
  EXPECT_EQ(wire.trace, ">REQ >REQ <MRA ");
  EXPECT_TRUE(left.events.empty());
  EXPECT_TRUE(accept(*right.requested));
  run();
  EXPECT_EQ(active.state(), Connection::State::kRepReceived);
}

TEST_F(Cm, LostRepIsSentAgain) {
  Connection& active = request();
  run();
  lose<Rep>(2);
  EXPECT_TRUE(accept(*right.requested));
  run(10 * kSecond);
  ASSERT_EQ(left.events, (Events{{Type::kReply, 0}}));
  EXPECT_TRUE(active.establish());
  run();
  EXPECT_EQ(right.events, (Events{{Type::kEstablished, 0}}));
}

TEST_F(Cm, LostRtuIsSentAgainWhenTheRepReturns) {
  lose<Rtu>(2);
  establish();
  EXPECT_TRUE(right.events.empty());
  run(10 * kSecond);
  EXPECT_EQ(right.events, (Events{{Type::kEstablished, 0}}));
  EXPECT_EQ(wire.trace, ">REQ <REP >RTU! <REP >RTU! <REP >RTU ");
}

TEST_F(Cm, TrafficEstablishesWhereTheRtuIsLost) {
  lose<Rtu>(100);
  establish();
  EXPECT_TRUE(right.requested->establish());
  EXPECT_EQ(right.events, (Events{{Type::kEstablished, 0}}));
  run(60 * kSecond);
  EXPECT_EQ(right.events.size(), 1U);
}

TEST_F(Cm, NobodyListens) {
  right.manager.unlisten(kService, right);
  run(20 * kSecond);
  request();
  run();
  EXPECT_TRUE(left.events.empty()) << "it asks again for a while";
  EXPECT_EQ(wire.trace, ">REQ <REJ ");
  run(3 * kSecond);
  EXPECT_EQ(left.events, (Events{{Type::kRejected, 8}}));
}

TEST_F(Cm, ListenerThatComesLate) {
  right.manager.unlisten(kService, right);
  run(20 * kSecond);
  request();
  run(kSecond);
  ASSERT_TRUE(right.manager.listen(kService, Gid{}, right));
  run(kSecond);
  ASSERT_NE(right.requested, nullptr);
  EXPECT_TRUE(accept(*right.requested));
  run();
  EXPECT_EQ(left.events, (Events{{Type::kReply, 0}}));
}

TEST_F(Cm, ListenerThatReturnsGetsWhoAskedMeanwhile) {
  right.manager.unlisten(kService, right);
  request();
  run();
  EXPECT_EQ(right.requested, nullptr);
  ASSERT_TRUE(right.manager.listen(kService, Gid{}, right));
  ASSERT_NE(right.requested, nullptr);
  EXPECT_TRUE(accept(*right.requested));
  run();
  EXPECT_EQ(left.events, (Events{{Type::kReply, 0}}));
}

TEST_F(Cm, ListenerThatDoesNotReturn) {
  right.manager.unlisten(kService, right);
  request();
  run(4 * kSecond);
  EXPECT_EQ(left.events, (Events{{Type::kRejected, 8}}));
}

TEST_F(Cm, ListenerAtAnotherAddress) {
  right.manager.unlisten(kService, right);
  run(20 * kSecond);
  ASSERT_TRUE(right.manager.listen(kService, Gid::from_ipv4(0x0a000009), right));
  EXPECT_FALSE(right.manager.listen(kService, Gid{}, right));
  request();
  run(5 * kSecond);
  EXPECT_EQ(left.events, (Events{{Type::kRejected, 8}}));
}

TEST_F(Cm, ConsumerRejectsWithPrivateData) {
  request();
  run();
  const std::array<std::byte, 3> why{std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_TRUE(right.requested->reject(RejectReason::kConsumer, why));
  run();
  EXPECT_EQ(left.events, (Events{{Type::kRejected, 28}}));
}

TEST_F(Cm, NobodyAnswers) {
  lose<Req>(1000);
  request();
  run(60 * kSecond);
  EXPECT_EQ(left.events, (Events{{Type::kUnreachable, -ETIMEDOUT}}));
  // The first, fifteen more, and the news that it is over.
  EXPECT_EQ(wire.trace.size(), 16 * std::string(">REQ! ").size() + std::string(">REJ ").size());
}

TEST_F(Cm, NoRoomMeansAskAgain) {
  right.takes = false;
  request();
  run();
  EXPECT_TRUE(left.events.empty());
  right.takes = true;
  run(2 * kSecond);
  EXPECT_TRUE(accept(*right.requested));
  run();
  EXPECT_EQ(left.events, (Events{{Type::kReply, 0}}));
}

TEST_F(Cm, LostDreqAndDrep) {
  Connection& active = establish();
  lose<Drep>(2);
  EXPECT_TRUE(active.disconnect());
  run(60 * kSecond);
  EXPECT_EQ(left.events.at(1), (std::pair{Type::kDisconnected, 0}));
  EXPECT_EQ(right.events.at(1), (std::pair{Type::kDisconnected, 0}));
  EXPECT_EQ(right.events.size(), 3U);
}

TEST_F(Cm, BothDisconnectAtOnce) {
  Connection& active = establish();
  EXPECT_TRUE(active.disconnect());
  EXPECT_TRUE(right.requested->disconnect());
  run(60 * kSecond);
  EXPECT_EQ(left.events, (Events{{Type::kReply, 0}, {Type::kDisconnected, 0}, {Type::kTimewaitExit, 0}}));
  EXPECT_EQ(right.events, (Events{{Type::kEstablished, 0}, {Type::kDisconnected, 0}, {Type::kTimewaitExit, 0}}));
}

TEST_F(Cm, KilledPeerIsGivenUp) {
  Connection& active = establish();
  wire.loses = [](const Message& message) { return std::holds_alternative<Dreq>(message); };
  EXPECT_TRUE(active.disconnect());
  run(120 * kSecond);
  EXPECT_EQ(left.events.at(1), (std::pair{Type::kDisconnected, -ETIMEDOUT}));
}

TEST_F(Cm, ForgottenConnectionIsStale) {
  Connection& old = establish();
  // The peer starts again with the same queue pair, as if it had been reset.
  left.events.clear();
  old.set_user(nullptr);
  request();
  run();
  EXPECT_EQ(left.events, (Events{{Type::kRejected, 10}}));
  EXPECT_EQ(right.events.back().first, Type::kDisconnected);
  request();
  run();
  EXPECT_TRUE(accept(*right.requested));
}

TEST_F(Cm, ReleasedInEveryStateTellsThePeer) {
  Connection& asking = request();
  run();
  asking.release();
  run();
  EXPECT_EQ(right.events, (Events{{Type::kRejected, 4}}));
  right.requested->release();

  request();
  run();
  right.requested->release();
  run();
  EXPECT_EQ(left.events.back(), (std::pair{Type::kRejected, 28}));

  Connection& active = establish();
  active.release();
  run(60 * kSecond);
  EXPECT_EQ(right.events.at(right.events.size() - 2).first, Type::kDisconnected);
}

// Where processes share the peer's address, the identifier leads to the one that has the request.
TEST_F(Cm, AWithdrawalNamesWhoExcusedItself) {
  Connection& active = request();
  run(2 * kSecond);
  ASSERT_EQ(wire.trace, ">REQ >REQ <MRA ");
  active.release();
  ASSERT_EQ(wire.frames.size(), 1U);
  EXPECT_NE(std::get<Rej>(parse(wire.frames.front().mad)->message).remote_comm_id, 0U);
  run();
  EXPECT_EQ(right.events, (Events{{Type::kRejected, 4}}));
}

TEST_F(Cm, NothingIsLeftBehind) {
  for (int i = 0; i < 50; ++i) {
    Connection& active = establish();
    active.release();
    right.requested->release();
    run(60 * kSecond);
  }
  EXPECT_EQ(left.manager.size(), 0U);
  EXPECT_EQ(right.manager.size(), 0U);
}

TEST_F(Cm, StrangersChangeNothing) {
  establish();
  const Gid stranger = Gid::from_ipv4(0x0a000063);
  const Rep rep = right.requested->rep();
  const std::uint32_t left_id = rep.remote_comm_id;
  left.manager.on_mad(kLeft, stranger, encode({1, Dreq{rep.local_comm_id, left_id, 0x11}}));
  left.manager.on_mad(kLeft, stranger, encode({1, Rej{rep.local_comm_id, left_id}}));
  // The right source, the wrong queue pair.
  left.manager.on_mad(kLeft, kRight, encode({1, Dreq{rep.local_comm_id, left_id, 0x99}}));
  EXPECT_EQ(left.events, (Events{{Type::kReply, 0}}));
}

TEST_F(Cm, DisconnectionOfTheUnknownIsConfirmed) {
  right.manager.on_mad(kRight, kLeft, encode({1, Dreq{5, 6, 7}}));
  EXPECT_EQ(wire.trace, "<DREP ");
}

TEST_F(Cm, DatagramServiceIsResolved) {
  lose<SidrRep>(1);
  Connection& active = resolve(kService);
  run();
  SidrRep rep;
  rep.qpn = 0x33;
  rep.qkey = 0x01234567;
  EXPECT_TRUE(right.requested->answer(rep));
  run(5 * kSecond);
  EXPECT_EQ(left.events, (Events{{Type::kResolved, 0}}));
  EXPECT_EQ(active.sidr().qpn, 0x33U);
  EXPECT_EQ(wire.trace, ">SIDR_REQ <SIDR_REP! >SIDR_REQ <SIDR_REP ");
}

TEST_F(Cm, DatagramServiceThatIsNotThere) {
  resolve(kService + 1);
  run();
  EXPECT_TRUE(left.events.empty()) << "it asks again for a while";
  run(4 * kSecond);
  EXPECT_EQ(left.events, (Events{{Type::kResolved, 1}}));
}

TEST_F(Cm, DatagramServiceThatComesLate) {
  right.manager.unlisten(kService, right);
  run(20 * kSecond);
  resolve(kService);
  run(kSecond);
  ASSERT_TRUE(right.manager.listen(kService, Gid{}, right));
  run(kSecond);
  ASSERT_NE(right.requested, nullptr);
  EXPECT_TRUE(right.requested->answer({}));
  run();
  EXPECT_EQ(left.events, (Events{{Type::kResolved, 0}}));
}

TEST_F(Cm, DatagramServiceThatReturnsGetsWhoAskedMeanwhile) {
  right.manager.unlisten(kService, right);
  resolve(kService);
  run();
  EXPECT_EQ(right.requested, nullptr);
  ASSERT_TRUE(right.manager.listen(kService, Gid{}, right));
  ASSERT_NE(right.requested, nullptr);
  EXPECT_TRUE(right.requested->answer({}));
  run();
  EXPECT_EQ(left.events, (Events{{Type::kResolved, 0}}));
  EXPECT_EQ(wire.trace, ">SIDR_REQ <SIDR_REP ");
}

TEST_F(Cm, DatagramServiceThatDoesNotReturn) {
  right.manager.unlisten(kService, right);
  resolve(kService);
  run(5 * kSecond);
  EXPECT_EQ(left.events, (Events{{Type::kResolved, 1}}));
  EXPECT_EQ(right.manager.size(), 0U);
}

TEST_F(Cm, AnswersOfAnotherTransactionChangeNothing) {
  const auto forge = [this](Connection& to, const Message& message) {
    left.manager.on_mad(kLeft, kRight, encode({0xbad, message}));
    return to.state();
  };
  Req req;
  req.service_id = kService;
  Connection& active = left.manager.open(kLeft, kRight, left);
  ASSERT_TRUE(active.connect(req));
  const std::uint32_t comm_id = active.req().local_comm_id;
  EXPECT_EQ(forge(active, Rej{7, comm_id}), Connection::State::kReqSent);
  EXPECT_EQ(forge(active, Rep{7, comm_id}), Connection::State::kReqSent);
  run();
  ASSERT_TRUE(accept(*right.requested));
  right.manager.on_mad(kRight, kLeft, encode({0xbad, Rtu{comm_id, right.requested->rep().local_comm_id}}));
  EXPECT_EQ(right.requested->state(), Connection::State::kRepSent);
  run();
  EXPECT_EQ(left.events, (Events{{Type::kReply, 0}}));
  EXPECT_TRUE(right.events.empty());

  // A peer that gives up before it has an answer names the request by its own identifier alone.
  Connection& impatient = request();
  run();
  Connection& asked = *right.requested;
  Rej timeout{impatient.req().local_comm_id, 0};
  timeout.reason = RejectReason::kTimeout;
  right.manager.on_mad(kRight, kLeft, encode({0xbad, timeout}));
  EXPECT_EQ(asked.state(), Connection::State::kReqReceived);
  EXPECT_TRUE(right.events.empty());
  impatient.release();
  run();
  EXPECT_EQ(right.events, (Events{{Type::kRejected, 4}}));

  left.events.clear();
  Connection& datagrams = resolve(kService);
  SidrRep rep;
  rep.request_id = datagrams.sidr_req().request_id;
  rep.qpn = 0x66;
  EXPECT_EQ(forge(datagrams, rep), Connection::State::kSidrReqSent);
  EXPECT_TRUE(left.events.empty());
}

TEST_F(Cm, RequestsThatWaitForAListenerAreBounded) {
  wire.loses = [](const Message&) { return true; };
  right.manager.unlisten(kService, right);
  constexpr std::uint32_t kMany = 5000;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    // Of as many peers, as forged sources are.
    Req req;
    req.service_id = kService;
    req.local_comm_id = i;
    right.manager.on_mad(kRight, Gid::from_ipv4(0x0b000000 + i), encode({i, req}));
    SidrReq datagrams;
    datagrams.service_id = kService;
    datagrams.request_id = i;
    right.manager.on_mad(kRight, Gid::from_ipv4(0x0b000000 + i), encode({i, datagrams}));
  }
  EXPECT_LE(right.manager.size(), 300U);
  run(5 * kSecond);
  EXPECT_EQ(right.manager.size(), 0U);
}

TEST_F(Cm, WhatUsersHaveReleasedIsBounded) {
  wire.loses = [](const Message&) { return true; };
  constexpr std::uint32_t kMany = 10'000;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    SidrReq datagrams;
    datagrams.service_id = kService;
    datagrams.request_id = i;
    right.manager.on_mad(kRight, Gid::from_ipv4(0x0b000000 + i), encode({i, datagrams}));
    ASSERT_TRUE(right.requested->answer({}));
    right.requested->release();
  }
  EXPECT_LE(right.manager.size(), 5000U);
  // The last of them is still answered when it asks again.
  wire.trace.clear();
  SidrReq again;
  again.service_id = kService;
  again.request_id = kMany - 1;
  right.manager.on_mad(kRight, Gid::from_ipv4(0x0b000000 + kMany - 1), encode({1, again}));
  EXPECT_EQ(wire.trace, "<SIDR_REP! ");
  run(100 * kSecond);
  EXPECT_EQ(right.manager.size(), 0U);
}

}  // namespace
}  // namespace fairlead::cm
