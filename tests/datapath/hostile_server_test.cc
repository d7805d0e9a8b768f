// Servers that break the control protocol: what they can make a client hold is bounded.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "datapath/identity/resumption.h"
#include "datapath/session/control_channel.h"
#include "datapath/session/control_socket.h"
#include "fairlead/engine.h"
#include "tests/datapath/framed.h"

namespace fairlead {
namespace {

namespace control = datapath::control;
using datapath::framed;

void send_bytes(const UniqueFd& fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

control::Hello hello(std::uint32_t version) {
  control::Hello made = datapath::plain_hello();
  made.version_max = version;
  made.engine_name = "server";
  made.session_id = 7;
  return made;
}

// Answers every look-up with regions and the promise of more, until the client hangs up.
void serve_without_end(const UniqueFd& listener) {
  const UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
  send_bytes(fd, "FAIRLEAD" + framed(hello(1)));
  datapath::FrameReader reader;
  std::string page;  // the same every time: the client must not wait for us, its session ends soon without a path
  char bytes[4096];
  for (ssize_t n; (n = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0;) {
    reader.append(bytes, static_cast<std::size_t>(n));
    control::Frame asked;
    while (true) {
      const Result<bool> whole = reader.next(asked);
      if (!whole || !*whole) break;
      const auto* lookup = std::get_if<control::Lookup>(&asked);
      if (lookup == nullptr) continue;
      if (page.empty()) {
        control::Regions regions;
        regions.request = lookup->request;
        regions.more = true;
        regions.regions.resize(60'000);
        for (control::Region& region : regions.regions) region.name = "r";
        page = framed(regions);
      }
      send_bytes(fd, page);
    }
  }
}

/// Of the frames that a client says to a server of this version until it has answered a ping: the flows that it offers
/// paths for.
std::vector<std::uint32_t> flows_offered(const UniqueFd& listener, std::uint32_t version) {
  const UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
  send_bytes(fd, "FAIRLEAD" + framed(hello(version)));
  datapath::FrameReader reader;
  std::vector<std::uint32_t> flows;
  char bytes[4096];
  for (ssize_t n; (n = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0;) {
    reader.append(bytes, static_cast<std::size_t>(n));
    control::Frame frame;
    for (Result<bool> whole = reader.next(frame); whole && *whole; whole = reader.next(frame)) {
      if (const auto* ping = std::get_if<control::Ping>(&frame); ping != nullptr && ping->reply) return flows;
      const auto* offer = std::get_if<control::PathOffer>(&frame);
      if (offer == nullptr) continue;
      flows.push_back(offer->flow);
      send_bytes(fd, framed(control::Ping{.nonce = 1}));
    }
  }
  return flows;
}

UniqueFd listen_for_one() {
  Result<UniqueFd> listener = datapath::start_listen("127.0.0.1", 0);
  EXPECT_TRUE(listener);
  // It waits for the one connection.
  ::fcntl(listener->get(), F_SETFL, ::fcntl(listener->get(), F_GETFL) & ~O_NONBLOCK);
  return std::move(*listener);
}

// Which knows nothing of classes: it must not be offered a second path, nor be told of a flow.
TEST(OlderServer, GetsCommandsWithTheRest) {
  for (const std::uint32_t version : {3u, 4u}) {
    const UniqueFd listener = listen_for_one();
    std::vector<std::uint32_t> flows;
    std::thread server([&] { flows = flows_offered(listener, version); });
    {
      EngineConfig config;
      config.transport = "tcp";
      Result<Engine> engine = Engine::create(config);
      ASSERT_TRUE(engine);
      Peer peer = *engine->connect(datapath::socket_address(listener.get(), false));
      const Transfer command = peer.send({}, 1, {.traffic = TrafficClass::kCommands});
      server.join();
    }
    EXPECT_EQ(flows, version == 3 ? std::vector<std::uint32_t>{0} : (std::vector<std::uint32_t>{0, 1})) << version;
  }
}

/// What one says who is not the server, on a connection that is to take the place of one that broke.
std::vector<std::string> wrong_answers() {
  const std::string nonce(datapath::Resumption::kNonceBytes, 'n');
  return {"",
          "HTTP/1.1 400 Bad Request\r\n\r\n",
          "FAIRLEAD" + framed(hello(5)),
          "FAIRLEAD" + framed(control::Resumed{.heard = 0, .proof = {}}),
          "FAIRLEAD" + framed(control::Goodbye{}),
          "FAIRLEAD" + framed(control::Challenge{.nonce = "short"}),
          "FAIRLEAD" + framed(control::Challenge{.nonce = nonce}) + framed(control::Challenge{.nonce = nonce}),
          "FAIRLEAD" + framed(control::Challenge{.nonce = nonce}) +
              framed(control::Resumed{.heard = 0, .proof = std::string(32, '\0')})};
}

/// The next frame of that kind; nothing if the client hangs up.
template <typename Body>
std::optional<Body> next_frame(const UniqueFd& fd, datapath::FrameReader& reader) {
  char bytes[4096];
  control::Frame frame;
  while (true) {
    for (Result<bool> whole = reader.next(frame); whole && *whole; whole = reader.next(frame)) {
      if (const auto* body = std::get_if<Body>(&frame)) return *body;
    }
    const ssize_t n = ::recv(fd.get(), bytes, sizeof bytes, 0);
    if (n <= 0) return std::nullopt;
    reader.append(bytes, static_cast<std::size_t>(n));
  }
}

// It greets, hangs up, and answers the client's attempts to go on as others would; then as it should.
TEST(HostileServer, WhoAnswersWronglyIsNotThePeerAndTheNextMayBe) {
  const std::string secret(datapath::Resumption::kSecretBytes, 's'), nonce(datapath::Resumption::kNonceBytes, 'n');
  const UniqueFd listener = listen_for_one();
  std::uint64_t attempts = 0;
  bool lives = false;
  std::thread server([&] {
    {
      const UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
      control::Hello ours = hello(5);
      ours.resume = secret;
      datapath::FrameReader reader;
      if (!next_frame<control::Hello>(fd, reader)) return;
      send_bytes(fd, "FAIRLEAD" + framed(ours));
      if (!next_frame<control::PathOffer>(fd, reader)) return;  // it has greeted us
    }
    for (const std::string& answer : wrong_answers()) {
      const UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
      send_bytes(fd, answer);
      datapath::FrameReader reader;
      if (answer.empty()) continue;
      while (next_frame<control::Resumed>(fd, reader)) {  // until it hangs up
      }
    }
    const UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
    datapath::FrameReader reader;
    const auto asked = next_frame<control::Resume>(fd, reader);
    if (!asked) return;
    attempts = asked->attempt;
    datapath::Resumption ours;
    ours.begin({}, "", secret);
    send_bytes(fd, "FAIRLEAD" + framed(control::Challenge{.nonce = nonce}));
    const auto proof = next_frame<control::Proof>(fd, reader);
    if (!proof || !ours.check(*asked, nonce, *proof).ok()) return;
    send_bytes(fd, framed(ours.confirm(*asked, nonce, 0)) + framed(control::Ping{.nonce = 5}));
    lives = next_frame<control::PathOffer>(fd, reader) && next_frame<control::Ping>(fd, reader);
  });
  {
    EngineConfig config;
    config.transport = "tcp";
    config.connect_timeout = std::chrono::seconds(60);
    Result<Engine> engine = Engine::create(config);
    ASSERT_TRUE(engine);
    Peer peer = *engine->connect(datapath::socket_address(listener.get(), false));
    server.join();
    EXPECT_EQ(peer.stats().resumptions, 1U);
    EXPECT_EQ(peer.state(), PeerState::kConnecting) << "a server that answers no offer";
  }
  EXPECT_TRUE(lives) << "what was not heard is said again, and what is said is answered";
  EXPECT_EQ(attempts, wrong_answers().size() + 1);
}

/// Says this in place of a hello, and its end in the same packet.
void turn_away(const UniqueFd& listener, const std::string& words) {
  const UniqueFd fd(::accept(listener.get(), nullptr, nullptr));
  datapath::FrameReader reader;
  if (!next_frame<control::Hello>(fd, reader)) return;
  const std::string bytes = "FAIRLEAD" + words;
  ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_MORE);
}

TEST(HostileServer, WhatItSaysInPlaceOfAHelloIsWhyAndTheNextPlaceIsTried) {
  const auto full = static_cast<std::uint32_t>(Code::kResourceExhausted);
  const std::string refused = framed(control::Refused{.code = full, .reason = "enough of you"});
  const std::string goodbye = framed(control::Goodbye{.code = full, .reason = "enough of you"});
  struct {
    std::string said;
    Code code;
    const char* words;
  } const cases[] = {{refused, Code::kResourceExhausted, "refused us: enough of you"},
                     {refused + goodbye, Code::kResourceExhausted, "refused us: enough of you"},
                     {goodbye, Code::kResourceExhausted, "before its hello: enough of you"},
                     {framed(control::Goodbye{}), Code::kUnavailable, "ended the session before its hello"}};
  EngineConfig config;
  config.transport = "tcp";
  config.connect_timeout = std::chrono::seconds(60);
  Result<Engine> client = Engine::create(config);
  ASSERT_TRUE(client);
  config.listen = "127.0.0.1:0";
  Result<Engine> next = Engine::create(config);
  ASSERT_TRUE(next);
  for (const auto& each : cases) {
    for (const bool has_next : {false, true}) {
      const UniqueFd listener = listen_for_one();
      std::thread server([&] { turn_away(listener, each.said); });
      const std::string first = datapath::socket_address(listener.get(), false);
      Peer peer = *client->connect(has_next ? first + "," + next->listen_address() : first);
      const Status ready = peer.wait_ready(std::chrono::seconds(60));
      server.join();
      if (has_next) {
        EXPECT_TRUE(ready.ok()) << ready.to_string();
        EXPECT_EQ(peer.address(), next->listen_address());
        continue;
      }
      EXPECT_EQ(ready.code(), each.code) << ready.to_string();
      EXPECT_NE(ready.message().find(each.words), std::string::npos) << ready.message();
    }
  }
}

TEST(HostileServer, AListWithoutEndIsGivenUp) {
  const UniqueFd listener = listen_for_one();
  std::thread server([&] { serve_without_end(listener); });
  {
    EngineConfig config;
    config.transport = "tcp";
    Result<Engine> engine = Engine::create(config);
    ASSERT_TRUE(engine);
    Peer peer = *engine->connect(datapath::socket_address(listener.get(), false));
    const Result<std::vector<RemoteMemory>> listed = peer.list("r", std::chrono::seconds(60));
    ASSERT_FALSE(listed);
    EXPECT_EQ(listed.error().code(), Code::kDataLoss) << listed.error().to_string();
  }
  server.join();
}

}  // namespace
}  // namespace fairlead
