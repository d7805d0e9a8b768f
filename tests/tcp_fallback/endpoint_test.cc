// What is TCP's own; tests/conformance/ holds what every transport does.
#include "tcp_fallback/endpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <set>
#include <thread>

#include "tcp_fallback/factory.h"
#include "tcp_fallback/socket.h"
#include "tests/readable.h"
#include "tests/refused_call.h"
#include "tests/tcp_fallback/raw_client.h"

namespace fairlead::tcp_fallback {
namespace {

using datapath::Endpoint;
using datapath::LocalSegment;
using datapath::OpKind;
using datapath::Path;
using datapath::PathConfig;
using datapath::PathRole;
using testing::HasSubstr;

constexpr int kSkipped = 77;

struct Recorder : datapath::PathEvents {
  int ready = 0;
  Code down = Code::kOk;
  std::string reason;
  std::vector<Code> completions;
  int messages = 0;
  const Path* last = nullptr;  // that had one

  void on_ready(Path&) noexcept override { ++ready; }
  void on_completion(Path&, const datapath::Ended& ended) noexcept override {
    completions.insert(completions.end(), ended.count, ended.code);
  }
  void on_message(Path& path, std::span<const std::byte>) noexcept override {
    ++messages;
    last = &path;
  }
  void on_notification(Path&, std::uint32_t) noexcept override {}
  void on_down(Path&, Code code, std::string_view why) noexcept override {
    down = code;
    reason = why;
  }
};

class TcpEndpointTest : public testing::Test {
 protected:
  TcpEndpointTest() {
    auto opened = TcpEndpoint::open(*device_);
    EXPECT_TRUE(opened.has_value()) << opened.status().to_string();
    if (opened) endpoint_ = std::move(*opened);
  }
  std::unique_ptr<Path> open(PathRole role, std::string host = "127.0.0.1") {
    auto path = endpoint_->open_path({.role = role,
                                      .peer_host = std::move(host),
                                      .local_host = "",
                                      .events = &events_,
                                      .urgent = urgent_,
                                      .polled = polled_,
                                      .peer_timeout = peer_timeout_});
    EXPECT_TRUE(path.has_value()) << path.status().to_string();
    return path ? std::move(*path) : nullptr;
  }
  bool run(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      if (!endpoint_->poll()) std::this_thread::yield();
    }
    return done();
  }
  // A ready path whose peer is a client that says what it likes.
  std::pair<std::unique_ptr<Path>, RawClient> with_raw_peer(std::uint32_t depth = 8, bool keeps_lower = false) {
    auto path = open(PathRole::kPassive);
    EXPECT_TRUE(path->connect(encode(Description{1, random_token()})).ok());
    RawClient client(endpoint_->port());
    client.send(Greeting{decode_description(path->local_description())->token, depth, keeps_lower});
    EXPECT_TRUE(run([this, before = events_.ready] { return events_.ready != before; }));
    return {std::move(path), std::move(client)};
  }
  // Two ends of one connection, both at this endpoint.
  std::pair<std::unique_ptr<Path>, std::unique_ptr<Path>> connected() {
    auto active = open(PathRole::kActive), passive = open(PathRole::kPassive);
    EXPECT_TRUE(passive->connect(active->local_description()).ok());
    EXPECT_TRUE(active->connect(passive->local_description()).ok());
    EXPECT_TRUE(run([this] { return events_.ready == 2; })) << events_.reason;
    return {std::move(active), std::move(passive)};
  }

  Recorder events_;
  std::chrono::milliseconds peer_timeout_{30'000};
  bool polled_ = true, urgent_ = false;
  ManualClock clock_;
  std::unique_ptr<TcpDevice> device_ = std::move(*TcpDevice::open({}, clock_));
  std::unique_ptr<TcpEndpoint> endpoint_;
};

TEST_F(TcpEndpointTest, MalformedFramesNameThePeer) {
  auto [path, client] = with_raw_peer();
  client.send(Frame{.type = FrameType::kAck});
  EXPECT_TRUE(run([this] { return events_.down != Code::kOk; }));
  EXPECT_EQ(events_.down, Code::kDataLoss);
  EXPECT_THAT(events_.reason, HasSubstr("127.0.0.1:"));
  EXPECT_THAT(events_.reason, HasSubstr("an acknowledgement of nothing"));
  EXPECT_TRUE(path->drained());
}

TEST_F(TcpEndpointTest, CountsPathsThatEndAndRequestsThatNobodyHearsOf) {
  auto [lost, client] = with_raw_peer();
  const datapath::WorkRequest message{.id = 1, .kind = OpKind::kMessage, .local = {}};
  EXPECT_EQ(lost->post({&message, 1}), 1U);
  client.send(Frame{.type = FrameType::kAck, .seq = 77});
  EXPECT_TRUE(run([this] { return events_.down != Code::kOk && events_.completions.size() == 1; }));
  events_ = {};
  auto [left, other] = with_raw_peer();
  EXPECT_EQ(left->post({&message, 1}), 1U);
  const datapath::Traffic& traffic = endpoint_->traffic();
  EXPECT_EQ(traffic.requests.get() - traffic.ended.get(), 1U);
  left.reset();
  EXPECT_EQ(traffic.requests.get(), 2U);
  EXPECT_EQ(traffic.ended.get(), 2U);
  EXPECT_EQ(traffic.paths.get(), 2U);
  EXPECT_EQ(traffic.paths_ended.get(), 2U);
}

TEST_F(TcpEndpointTest, AMessageBeyondTheLimit) {
  auto [path, client] = with_raw_peer();
  client.send(Frame{.type = FrameType::kMessage, .length = kMaxMessage + 1});
  EXPECT_TRUE(run([this] { return events_.down == Code::kDataLoss; }));
}

/// A TCP option of every connected socket of this process.
std::multiset<int> options_of_connections(int name) {
  std::multiset<int> values;
  for (int fd = 0; fd < 1024; ++fd) {
    int value = 0;
    socklen_t size = sizeof value;
    if (peer_address(fd).length == 0 || ::getsockopt(fd, IPPROTO_TCP, name, &value, &size) != 0) continue;
    values.insert(value);
  }
  return values;
}

TEST_F(TcpEndpointTest, APeerMayBeSilentForAsLongAsItsSessionSays) {
  peer_timeout_ = std::chrono::milliseconds(12'500);
  const auto [active, passive] = connected();
  using testing::ElementsAre;
  EXPECT_THAT(options_of_connections(TCP_USER_TIMEOUT), ElementsAre(12'500, 12'500));
  EXPECT_THAT(options_of_connections(TCP_KEEPIDLE), ElementsAre(5, 5));
  EXPECT_THAT(options_of_connections(TCP_KEEPINTVL), ElementsAre(3, 3));
  EXPECT_THAT(options_of_connections(TCP_KEEPCNT), ElementsAre(4, 4));
}

std::unique_ptr<TcpDevice> device_of_depth(std::uint32_t depth) {
  TcpConfig config;
  config.send_depth = depth;
  return std::move(*TcpDevice::open(config));
}

/// How many requests each of two ends takes at once.
std::pair<std::uint32_t, std::uint32_t> taken_at(std::uint32_t active_depth, std::uint32_t passive_depth) {
  Recorder events;
  const auto near = device_of_depth(active_depth), far = device_of_depth(passive_depth);
  const auto at_near = std::move(*TcpEndpoint::open(*near)), at_far = std::move(*TcpEndpoint::open(*far));
  const PathConfig config{.peer_host = "127.0.0.1", .local_host = "", .events = &events};
  PathConfig waits = config;
  waits.role = PathRole::kPassive;
  const auto active = std::move(*at_near->open_path(config)), passive = std::move(*at_far->open_path(waits));
  EXPECT_TRUE(passive->connect(active->local_description()).ok());
  EXPECT_TRUE(active->connect(passive->local_description()).ok());
  const auto run = [&](const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < deadline) at_near->poll(), at_far->poll();
    return done();
  };
  EXPECT_TRUE(run([&] { return events.ready == 2; })) << events.reason;
  const std::vector<datapath::WorkRequest> messages(20, {.kind = OpKind::kMessage, .local = {}});
  const std::size_t a = active->post(messages), b = passive->post(messages);
  EXPECT_EQ(a, active->max_outstanding());
  EXPECT_EQ(b, passive->max_outstanding());
  EXPECT_THAT(active->describe(), HasSubstr("depth " + std::to_string(a)));
  EXPECT_TRUE(run([&] { return events.completions.size() == a + b; })) << events.reason;
  return {a, b};
}

TEST(TcpDepth, IsTheLowerOfBothEnds) {
  EXPECT_EQ(taken_at(16, 3), std::pair(3U, 3U));
  EXPECT_EQ(taken_at(3, 16), std::pair(3U, 3U));
  EXPECT_EQ(taken_at(5, 5), std::pair(5U, 5U));
}

// What it holds of a peer's requests is what it said itself, unless the peer is of a release that did not listen.
TEST_F(TcpEndpointTest, APeerThatSaysItKeepsTheLowerDepthIsHeldToIt) {
  endpoint_.reset();
  device_ = device_of_depth(4);
  endpoint_ = std::move(*TcpEndpoint::open(*device_));
  const auto ask = [this](bool keeps_lower) {
    events_ = {};
    auto [path, client] = with_raw_peer(40, keeps_lower);
    GreetingBytes greeting;
    EXPECT_EQ(::recv(client.fd(), greeting.data(), greeting.size(), MSG_WAITALL), std::ssize(greeting));
    for (std::uint32_t i = 0; i < 40; ++i) client.send(Frame{.type = FrameType::kRead, .seq = i, .length = 1});
    std::size_t answers = 0;
    EXPECT_TRUE(run([&, &client = client] {
      answers += client.receive().size();
      return events_.down != Code::kOk || answers >= 40;
    }));
    return events_.reason;
  };
  EXPECT_THAT(ask(true), HasSubstr("more requests than the announced depth"));
  EXPECT_EQ(ask(false), "");
}

TEST_F(TcpEndpointTest, AResetIsNoticed) {
  auto [path, client] = with_raw_peer();
  const datapath::WorkRequest work{.id = 1, .kind = OpKind::kMessage, .local = {}};
  EXPECT_EQ(path->post({&work, 1}), 1u);
  client.reset();
  EXPECT_TRUE(run([&path = path] { return path->drained(); }));
  EXPECT_EQ(events_.down, Code::kUnavailable);
  EXPECT_EQ(events_.completions, std::vector{Code::kAborted});
}

/// A path whose user answers messages at once, and a peer that looks at what goes over the wire.
class TcpAnswersTest : public TcpEndpointTest {
 protected:
  explicit TcpAnswersTest(bool polled = true) {
    polled_ = polled;
    std::tie(path_, client_) = with_raw_peer();
    std::array<std::byte, kGreetingBytes> greeting;
    EXPECT_EQ(::recv(client_->fd(), greeting.data(), greeting.size(), MSG_WAITALL), std::ssize(greeting));
  }
  /// The peer asks; it has had what was answered before.
  void ask() {
    const int before = events_.messages;
    if (answers_ != acknowledged_) client_->send(Frame{.type = FrameType::kAck, .seq = answers_ - 1});
    acknowledged_ = answers_;
    client_->send(Frame{.type = FrameType::kMessage, .seq = asked_++});
    EXPECT_TRUE(run([&] { return events_.messages > before; }));
  }
  void answer() {
    const datapath::WorkRequest work{.id = answers_++, .kind = OpKind::kMessage, .local = {}};
    EXPECT_EQ(path_->post({&work, 1}), 1u);
  }
  /// What the peer hears: "ack", "message".
  std::string heard() {
    std::string text;
    for (const Frame& frame : client_->receive()) {
      text += frame.type == FrameType::kAck ? "ack " : frame.type == FrameType::kMessage ? "message " : "other ";
    }
    return text;
  }
  void learn() {
    ask();
    EXPECT_EQ(heard(), "ack ") << "nobody knows yet that it will be answered";
    answer();
    EXPECT_EQ(heard(), "message ");
  }

  std::unique_ptr<Path> path_;
  std::optional<RawClient> client_;
  std::uint32_t asked_ = 0, answers_ = 0, acknowledged_ = 0;
};

TEST_F(TcpAnswersTest, TakeTheAcknowledgementAlong) {
  learn();
  for (int round = 0; round < 5; ++round) {
    ask();
    EXPECT_EQ(heard(), "");
    answer();
    EXPECT_EQ(heard(), "ack message ");
  }
}

TEST_F(TcpAnswersTest, ThatDoNotComeAreWaitedForDuringOneTurn) {
  learn();
  ask();
  EXPECT_EQ(heard(), "");
  endpoint_->poll();
  EXPECT_EQ(heard(), "ack ");
  ask();
  EXPECT_EQ(heard(), "ack ") << "who did not answer is not waited for again";
  answer();
  EXPECT_EQ(heard(), "message ");
  ask();
  EXPECT_EQ(heard(), "ack ") << "nor after one answer";
  answer();
  EXPECT_EQ(heard(), "message ");
  ask();
  EXPECT_EQ(heard(), "") << "now it did";
}

TEST_F(TcpAnswersTest, AreWaitedForAfterMoreOfThemEachTimeThatNoneCame) {
  for (int answers = 1; answers <= 8; answers *= 2) {
    for (int given = 0; given < answers; ++given) {
      ask();
      EXPECT_EQ(heard(), "ack ") << given << " of " << answers;
      answer();
      EXPECT_EQ(heard(), "message ");
    }
    ask();
    EXPECT_EQ(heard(), "") << answers;
    endpoint_->poll();
    EXPECT_EQ(heard(), "ack ");
  }
}

TEST_F(TcpAnswersTest, ThatTakeItAlongMakeGoodForTheTimesThatNoneCame) {
  const auto one = [this](std::string_view before, std::string_view with) {
    ask();
    EXPECT_EQ(heard(), before);
    answer();
    EXPECT_EQ(heard(), with);
  };
  const auto in_vain = [this] {
    ask();
    EXPECT_EQ(heard(), "");
    endpoint_->poll();
    EXPECT_EQ(heard(), "ack ");
  };
  one("ack ", "message ");
  in_vain();
  for (int i = 0; i < 2; ++i) one("ack ", "message ");
  for (int i = 0; i < 2; ++i) one("", "ack message ");
  in_vain();
  for (int i = 0; i < 2; ++i) one("ack ", "message ");
  in_vain();
  for (int i = 0; i < 4; ++i) one("ack ", "message ");
  one("", "ack message ");
}

TEST_F(TcpAnswersTest, ThatComeLateTeachNothing) {
  ask();
  EXPECT_EQ(heard(), "ack ");
  clock_.advance(kMillisecond);
  answer();
  EXPECT_EQ(heard(), "message ");
  ask();
  EXPECT_EQ(heard(), "ack ");
}

TEST_F(TcpAnswersTest, AreNotWaitedForAsleepNorAtTheEnd) {
  learn();
  ask();
  EXPECT_TRUE(endpoint_->arm());
  EXPECT_EQ(heard(), "ack ");
  answer();
  EXPECT_EQ(heard(), "message ");
  ask();
  EXPECT_EQ(heard(), "");
  path_->close();
  EXPECT_EQ(heard(), "ack ");
}

struct TcpAnswersUnpolledTest : TcpAnswersTest {
  TcpAnswersUnpolledTest() : TcpAnswersTest(false) {}
};

TEST_F(TcpAnswersUnpolledTest, AreNotWaitedForWhereNobodyMayPoll) {
  for (int round = 0; round < 3; ++round) {
    ask();
    EXPECT_EQ(heard(), "ack ");
    answer();
    EXPECT_EQ(heard(), "message ");
  }
}

// Messages that come on and on are acknowledged, whoever may answer them.
TEST_F(TcpAnswersTest, AStreamOfMessagesDoesNotWait) {
  learn();
  ask();
  client_->send(Frame{.type = FrameType::kMessage, .seq = asked_++});
  const int before = events_.messages;
  EXPECT_TRUE(run([&] { return events_.messages > before; }));
  EXPECT_EQ(heard(), "ack ");
}

// Whoever hears of a command goes on with it at once; what else there is comes with the turn after, and no later.
TEST_F(TcpEndpointTest, OthersWaitForATurnWhereSomethingUrgentCame) {
  auto [bulk, bulk_peer] = with_raw_peer();
  urgent_ = true;
  auto [commands, commands_peer] = with_raw_peer();
  std::uint32_t asked = 0, told = 0;
  const auto command = [&, &peer = commands_peer] { peer.send(Frame{.type = FrameType::kMessage, .seq = asked++}); };
  const auto tell = [&, &peer = bulk_peer] { peer.send(Frame{.type = FrameType::kMessage, .seq = told++}); };
  endpoint_->poll();
  for (int round = 0; round < 3; ++round) {
    tell();
    command();
    const int before = events_.messages;
    EXPECT_TRUE(run([&] { return events_.messages != before; }));
    EXPECT_EQ(events_.last, commands.get());
    EXPECT_EQ(events_.messages, before + 1);
    command();  // another does not keep the others waiting
    endpoint_->poll();
    EXPECT_EQ(events_.last, bulk.get());
    EXPECT_EQ(events_.messages, before + 3);
  }
}

TEST_F(TcpEndpointTest, DisarmedItIsSilentAndLosesNothing) {
  const auto paths = connected();
  const datapath::WorkRequest message{.id = 1, .kind = OpKind::kMessage, .local = {}};
  for (int time = 1; time <= 3; ++time) {
    endpoint_->disarm();
    ASSERT_EQ(paths.first->post({&message, 1}), 1U);
    EXPECT_FALSE(readable(endpoint_->wait_fd()));
    EXPECT_TRUE(run([&] { return events_.messages == 2 * time - 1; }));
    endpoint_->arm();
    EXPECT_TRUE(run([&] { return events_.completions.size() == static_cast<std::size_t>(2 * time - 1); }));
    ASSERT_TRUE(endpoint_->arm());
    EXPECT_FALSE(readable(endpoint_->wait_fd()));
    ASSERT_EQ(paths.second->post({&message, 1}), 1U);
    EXPECT_TRUE(readable(endpoint_->wait_fd()));
    EXPECT_TRUE(run([&] { return events_.completions.size() == static_cast<std::size_t>(2 * time); }));
  }
}

TEST_F(TcpEndpointTest, WhoArmsAfterSomethingCameIsWokenByIt) {
  const auto paths = connected();
  const datapath::WorkRequest message{.id = 1, .kind = OpKind::kMessage, .local = {}};
  endpoint_->disarm();
  ASSERT_EQ(paths.first->post({&message, 1}), 1U);
  endpoint_->arm();
  EXPECT_TRUE(readable(endpoint_->wait_fd()));
}

// More than are read without asking: those that came while it was disarmed, and those before.
TEST_F(TcpEndpointTest, DisarmedItHearsOfManyPaths) {
  std::vector<std::unique_ptr<Path>> paths;
  const datapath::WorkRequest message{.id = 1, .kind = OpKind::kMessage, .local = {}};
  for (int pair = 0; pair < 4; ++pair) {
    auto [active, passive] = connected();
    paths.push_back(std::move(active));
    paths.push_back(std::move(passive));
    events_.ready = 0;
    endpoint_->disarm();
    for (const auto& path : paths) EXPECT_EQ(path->post({&message, 1}), 1U);
    EXPECT_TRUE(run([&] { return events_.completions.size() == paths.size(); })) << paths.size();
    events_.completions.clear();
  }
}

TEST_F(TcpEndpointTest, WhatArrivedBeforeTheEndIsDelivered) {
  auto [path, client] = with_raw_peer();
  client.send(Frame{.type = FrameType::kMessage, .seq = 0});
  client.close();
  EXPECT_TRUE(run([this] { return events_.down != Code::kOk; }));
  EXPECT_EQ(events_.messages, 1);
}

/// In a child: a path that was disarmed, one that dials, a stranger, and another endpoint, without room to watch more.
/// 0: as it should be; else the number of what was not.
int without_watches() {
  auto device = TcpDevice::open({});
  if (!device) return 1;
  auto endpoint = TcpEndpoint::open(**device);
  if (!endpoint) return 2;
  Recorder events;
  const auto open = [&](PathRole role) {
    auto path = (*endpoint)->open_path({.role = role, .peer_host = "127.0.0.1", .local_host = "", .events = &events});
    return path ? std::move(*path) : nullptr;
  };
  const auto run = [&](const std::function<bool()>& done) {
    for (int turn = 0; turn < 20'000 && !done(); ++turn) {
      if (!(*endpoint)->poll()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return done();
  };
  const auto names_the_limit = [](std::string_view words) {
    return words.find("raise fs.epoll.max_user_watches") != std::string_view::npos;
  };
  const auto active = open(PathRole::kActive), passive = open(PathRole::kPassive), late = open(PathRole::kActive);
  if (!passive->connect(active->local_description()).ok()) return 3;
  if (!active->connect(passive->local_description()).ok()) return 4;
  if (!run([&] { return events.ready == 2; })) return 5;
  (*endpoint)->disarm();
  if (!test::refuse_call(SYS_epoll_ctl, ENOSPC)) return kSkipped;

  if ((*endpoint)->arm()) return 6;  // it would sleep, and not be woken
  if (!run([&] { return events.down != Code::kOk; })) return 7;
  if (events.down != Code::kResourceExhausted || !names_the_limit(events.reason)) return 8;
  RawClient stranger((*endpoint)->port());
  if (!run([&] { return (*endpoint)->refused_connections() == 1 && stranger.ended(); })) return 9;
  const Status refused = late->connect(encode(Description{(*endpoint)->port(), random_token()}));
  if (refused.code() != Code::kResourceExhausted || !names_the_limit(refused.message())) return 10;
  const auto another = (*device)->open_endpoint();
  return !another && names_the_limit(another.error().message()) ? 0 : 11;
}

TEST(TcpEndpointLimits, WhatCannotBeWatchedEndsAndNamesTheLimit) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(without_watches());
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(TcpEndpointTest, TheTokenWorksOnce) {
  auto [path, client] = with_raw_peer();
  RawClient second(endpoint_->port());
  second.send(Greeting{decode_description(path->local_description())->token, 8});
  EXPECT_TRUE(run([this] { return endpoint_->refused_connections() == 1; }));
  EXPECT_TRUE(run([&second = second] { return second.ended(); }));
  EXPECT_EQ(events_.down, Code::kOk);
}

TEST_F(TcpEndpointTest, NobodyListens) {
  std::uint16_t free_port = 0;
  {
    auto device = TcpDevice::open({});
    ASSERT_TRUE(device.has_value());
    auto other = TcpEndpoint::open(**device);
    ASSERT_TRUE(other.has_value());
    free_port = (*other)->port();
  }
  auto path = open(PathRole::kActive);
  if (path->connect(encode(Description{free_port, random_token()})).ok()) {
    EXPECT_TRUE(run([this] { return events_.down != Code::kOk; }));
    EXPECT_THAT(events_.reason, HasSubstr(std::to_string(free_port)));
  }
  EXPECT_EQ(events_.ready, 0);
}

TEST_F(TcpEndpointTest, APeerThatAcceptsAndIsSilentHasADeadline) {
  auto silent = listen_on({});
  ASSERT_TRUE(silent.has_value()) << silent.status().to_string();
  auto path = open(PathRole::kActive);
  ASSERT_TRUE(path->connect(encode(Description{local_address(silent->get()).port(), random_token()})).ok());
  EXPECT_EQ(endpoint_->wait_timeout_us(), 10'000'001) << "rounded up";
  clock_.advance(10 * kSecond - 1);
  for (int turn = 0; turn < 3; ++turn) endpoint_->poll();
  EXPECT_EQ(events_.down, Code::kOk);
  clock_.advance(1);
  EXPECT_TRUE(run([this] { return events_.down != Code::kOk; }));
  EXPECT_EQ(events_.down, Code::kDeadlineExceeded);
  EXPECT_THAT(events_.reason, HasSubstr("did not answer within 10 s"));
}

TEST_F(TcpEndpointTest, ThePeerForgotThePath) {
  auto path = open(PathRole::kActive);
  ASSERT_TRUE(path->connect(encode(Description{endpoint_->port(), random_token()})).ok());
  EXPECT_TRUE(run([this] { return events_.down != Code::kOk; }));
  EXPECT_EQ(events_.down, Code::kUnavailable);
  EXPECT_EQ(endpoint_->refused_connections(), 1u);
}

TEST_F(TcpEndpointTest, RefusesWhatItCannotUse) {
  EXPECT_FALSE(
      endpoint_->open_path({.role = PathRole::kActive, .peer_host = "no.such.host", .local_host = ""}).has_value());
  auto path = open(PathRole::kPassive);
  const std::string good = encode(Description{1, random_token()});
  EXPECT_TRUE(path->connect(good).ok());
  EXPECT_EQ(path->connect(good).code(), Code::kInvalidArgument);
  TcpConfig config;
  config.send_depth = 0;
  EXPECT_EQ(open_device(config).status().code(), Code::kInvalidArgument);
  config = {};
  config.port = endpoint_->port();
  auto device = open_device(config);
  ASSERT_TRUE(device.has_value());
  EXPECT_EQ((*device)->open_endpoint().status().code(), Code::kAlreadyExists);
}

TEST_F(TcpEndpointTest, EachOfADeviceHasAPortOfItsOwn) {
  const auto port_of = [](const Result<std::unique_ptr<Endpoint>>& endpoint) {
    return static_cast<const TcpEndpoint&>(**endpoint).port();
  };
  auto second = device_->open_endpoint();
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(port_of(second), endpoint_->port());
  // Where the first is set, each has the next, and one that closed leaves its own to who comes.
  TcpConfig config;
  config.port = port_of(second);
  second->reset();
  auto device = open_device(config);
  ASSERT_TRUE(device.has_value());
  auto first = (*device)->open_endpoint();
  ASSERT_TRUE(first.has_value()) << first.error().message();
  EXPECT_EQ(port_of(first), config.port);
  auto next = (*device)->open_endpoint();
  if (!next) GTEST_SKIP() << next.error().message();  // somebody else has it
  EXPECT_EQ(port_of(next), config.port + 1);
  first->reset();
  first = (*device)->open_endpoint();
  ASSERT_TRUE(first.has_value()) << first.error().message();
  EXPECT_EQ(port_of(first), config.port);
}

TEST_F(TcpEndpointTest, OneTooManySaysWhichPortThereIsNot) {
  TcpConfig config;
  config.port = UINT16_MAX;
  auto device = open_device(config);
  ASSERT_TRUE(device.has_value());
  auto first = (*device)->open_endpoint();
  const auto second = (*device)->open_endpoint();
  if (!first) GTEST_SKIP() << first.error().message();
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kInvalidArgument);
  EXPECT_NE(second.error().message().find("tcp.port is 65535"), std::string::npos) << second.error().message();
}

TEST_F(TcpEndpointTest, SpeaksIpv6WhereThereIsOne) {
  const UniqueFd probe(::socket(AF_INET6, SOCK_STREAM, 0));
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  if (!probe || ::bind(probe.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) != 0) {
    GTEST_SKIP() << "no IPv6 on this host";
  }
  auto active = open(PathRole::kActive, "::1"), passive = open(PathRole::kPassive, "::1");
  ASSERT_TRUE(passive->connect(active->local_description()).ok());
  ASSERT_TRUE(active->connect(passive->local_description()).ok());
  EXPECT_TRUE(run([this] { return events_.ready == 2; }));
  EXPECT_THAT(active->describe(), HasSubstr("-> [::1]:"));
}

// Whatever the system has for its networks; on a machine whose choice is "reno" this tells little, and the next more.
TEST_F(TcpEndpointTest, WithinAHostNothingPaces) {
  auto active = open(PathRole::kActive), passive = open(PathRole::kPassive);
  ASSERT_TRUE(passive->connect(active->local_description()).ok());
  ASSERT_TRUE(active->connect(passive->local_description()).ok());
  EXPECT_TRUE(run([this] { return events_.ready == 2; }));
  EXPECT_THAT(active->describe(), HasSubstr("congestion control reno"));
  EXPECT_THAT(passive->describe(), HasSubstr("congestion control reno"));
}

TEST(SocketOptions, BetweenHostsTheSystemChooses) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  const std::string systems = congestion_control(fd.get());
  ASSERT_NE(systems, "");
  set_data_options(fd.get(), *parse_address("192.0.2.1", 7471), {}, std::chrono::seconds(1));
  EXPECT_EQ(congestion_control(fd.get()), systems);
  TcpConfig config;
  config.congestion_control = "reno";
  set_data_options(fd.get(), *parse_address("192.0.2.1", 7471), config, std::chrono::seconds(1));
  EXPECT_EQ(congestion_control(fd.get()), "reno");
}

TEST(SocketOptions, LoopbackIsKnownByAnyOfItsAddresses) {
  for (const char* const peer : {"127.0.0.1", "127.5.5.5", "::1", "::ffff:127.0.0.1"}) {
    const UniqueFd fd(::socket(AF_INET6, SOCK_STREAM, 0));
    if (!fd) GTEST_SKIP() << "no IPv6 on this host";
    set_data_options(fd.get(), *parse_address(peer, 7471), {}, std::chrono::seconds(1));
    EXPECT_EQ(congestion_control(fd.get()), "reno") << peer;
  }
}

TEST(TcpSettings, ACongestionControlThatIsNotThereIsSaid) {
  TcpConfig config;
  config.congestion_control = "nosuch";
  const auto device = open_device(config);
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code(), Code::kNotFound);
  EXPECT_THAT(device.error().message(), HasSubstr("has no 'nosuch'"));
  EXPECT_THAT(device.error().message(), HasSubstr("net.ipv4.tcp_available_congestion_control"));
}

// A real mapping whose file shrank, as the source of a write and of a read: the kernel says EFAULT.
TEST_F(TcpEndpointTest, ATruncatedFileFailsItsOwnRequests) {
  constexpr std::size_t kSize = 1 << 20;
  const UniqueFd file(::memfd_create("fairlead-test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kSize), 0);
  auto* mapped = static_cast<std::byte*>(::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  ASSERT_NE(mapped, MAP_FAILED);
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  std::vector<std::byte> memory(kSize);
  const datapath::MemoryDescriptor shrunk{{mapped, kSize}, datapath::FileMemory{}, Access::kRemoteReadWrite};
  const datapath::MemoryDescriptor host{memory, datapath::HostMemory{}, Access::kRemoteReadWrite};
  ASSERT_TRUE(device_->register_memory(shrunk) && device_->register_memory(host));
  const auto lost = device_->grant(shrunk), good = device_->grant(host);
  ASSERT_TRUE(lost && good);
  auto [active, passive] = connected();
  const LocalSegment from_lost{mapped, kSize, 0}, from_good{memory.data(), kSize, 0};
  const datapath::WorkRequest work[] = {
      {.id = 0, .kind = OpKind::kWrite, .local = {&from_lost, 1}, .remote_address = 0, .remote_key = good->key},
      {.id = 1, .kind = OpKind::kRead, .local = {&from_good, 1}, .remote_address = 0, .remote_key = lost->key},
      {.id = 2, .kind = OpKind::kMessage, .local = {}},
  };
  ASSERT_EQ(active->post(work), 3u);
  ASSERT_TRUE(run([this] { return events_.completions.size() == 3; }));
  EXPECT_EQ(events_.completions[0], Code::kDataLoss) << "its source, here";
  EXPECT_EQ(events_.completions[1], Code::kProtectionError) << "its source, at the peer";
  EXPECT_EQ(events_.completions[2], Code::kAborted) << "a message behind a write that was lost";
  EXPECT_EQ(events_.messages, 0);
  EXPECT_EQ(events_.down, Code::kOk) << events_.reason;
  ::munmap(mapped, kSize);
}

TEST(Turns, AreShortWhileWhatIsUrgentIsBusy) {
  const TcpConfig config;
  const ManualClock clock;
  datapath::GrantTable grants;
  datapath::GrantReader reader(grants);
  datapath::Traffic traffic;
  Shared shared{.config = config, .clock = clock, .grants = reader, .traffic = traffic, .port = 0};
  shared.choose_turn(0);
  EXPECT_EQ(shared.turn, kLongTurn);
  shared.urgent = 1;
  shared.urgent_at = kSecond;
  shared.choose_turn(kSecond + Shared::kUrgentTime - 1);
  EXPECT_EQ(shared.turn, Shared::kShortTurn);
  shared.choose_turn(kSecond + Shared::kUrgentTime);
  EXPECT_EQ(shared.turn, Shared::kModerateTurn);
}

}  // namespace
}  // namespace fairlead::tcp_fallback
