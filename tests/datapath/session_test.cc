// A session that a peer began, whose peer, transport and clock are the test.
#include "datapath/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <cerrno>

#include "tests/datapath/fake_host.h"
#include "tests/datapath/framed.h"

namespace fairlead::datapath {
namespace {

using std::chrono::milliseconds;

/// Takes everything, and ends nothing.
class HeldPath final : public Path {
 public:
  explicit HeldPath(PathEvents& events) : Path(events) {}
  [[nodiscard]] std::string local_description() const override { return "held"; }
  Status connect(std::string_view) override { return {}; }
  std::size_t post(std::span<const WorkRequest> requests) noexcept override { return requests.size(); }
  void close() noexcept override {}
  [[nodiscard]] bool drained() const noexcept override { return true; }
  [[nodiscard]] std::string describe() const override { return "a path"; }
};

class HeldEndpoint final : public Endpoint {
 public:
  explicit HeldEndpoint(std::vector<Path*>& opened) : opened_(opened) {}
  Result<std::unique_ptr<Path>> open_path(const PathConfig& config) override {
    auto path = std::make_unique<HeldPath>(*config.events);
    opened_.push_back(path.get());
    return std::unique_ptr<Path>(std::move(path));
  }
  bool poll() noexcept override { return false; }
  bool arm() noexcept override { return true; }
  [[nodiscard]] int wait_fd() const noexcept override { return -1; }
  [[nodiscard]] int wait_timeout_us() const noexcept override { return -1; }

 private:
  std::vector<Path*>& opened_;
};

class HeldDevice final : public Device {
 public:
  explicit HeldDevice(std::vector<Path*>& opened) : opened_(opened) {
    can_.one_sided = false;
    can_.max_message = 4096;
    can_.max_outstanding = 64;
  }
  [[nodiscard]] std::string_view name() const noexcept override { return "held:0"; }
  [[nodiscard]] const Capabilities& capabilities() const noexcept override { return can_; }
  [[nodiscard]] std::string describe() const override { return "held:0"; }
  Result<Registration> register_memory(const MemoryDescriptor&) override { return Registration{}; }
  void deregister(const Registration&) noexcept override {}
  Result<Grant> grant(const MemoryDescriptor&) override { return Grant{}; }
  void revoke(const Grant&) noexcept override {}
  Result<std::unique_ptr<MemoryDomain>> open_domain() override { return Status(Code::kUnimplemented, "none"); }
  [[nodiscard]] DeviceUsage usage() const noexcept override { return {}; }
  Result<std::unique_ptr<Endpoint>> open_endpoint() override {
    return std::unique_ptr<Endpoint>(std::make_unique<HeldEndpoint>(opened_));
  }

 private:
  std::vector<Path*>& opened_;
  Capabilities can_;
};

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    auto device = std::make_shared<HeldDevice>(paths);
    OpenTransport open;
    open.endpoint = std::move(*device->open_endpoint());
    open.probe = std::move(*Probe::make(*device));
    open.device = std::move(device);
    open.offer = {"held:0", "held", false, {}};
    host->transports().push_back(std::move(open));
    session = std::make_shared<SessionImpl>(host, false);
    session->start_passive(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(stream), false));
    stream.to_hear = "FAIRLEAD";
  }
  ~SessionTest() override {
    if (session != nullptr) session->abandon();
    session.reset();
    host->queues().clear([](Submission&) {});  // events that nobody took keep their session
    host->lane().stop();
  }

  void hear(const control::Frame& frame) {
    stream.to_hear += framed(frame);
    session->link().on_ready(EPOLLIN);
  }
  void pass(milliseconds span) {
    host->time += span;
    session->advance(host->time);
  }
  /// Of a version that has classes of traffic, and no sessions that are resumed.
  void greet() {
    control::Hello hello = plain_hello();
    hello.version_max = 4;
    hello.transports = {{.name = "held:0", .kind = "held", .software = false, .describe = {}}};
    hear(hello);
    ASSERT_NE(session->id(), 0u);
  }
  /// The peer offers a path, which is set up as far as that goes without its word.
  void offer(std::uint32_t flow = 0) {
    hear(control::PathOffer{.epoch = 1, .description = "theirs", .probe = {}, .flow = flow});
    ASSERT_FALSE(paths.empty());
    paths.back()->events().on_ready(*paths.back());
  }
  void prove(std::uint32_t flow = 0) {
    offer(flow);
    pass(milliseconds(1));
    PathHeader hello;
    PathMessage message;
    message.sequence = 1;
    encode(message, hello);
    paths.back()->events().on_message(*paths.back(), hello);
    pass(milliseconds(1));
    EXPECT_EQ(said<control::PathReady>().size(), paths.size());
  }
  void notify(std::uint32_t value) { paths.back()->events().on_notification(*paths.back(), value); }
  template <typename Body>
  std::vector<Body> said() const {
    std::vector<Body> found;
    FrameReader reader;
    reader.append(stream.said.data(), stream.said.size());
    control::Frame frame;
    for (Result<bool> next = reader.next(frame); next && *next; next = reader.next(frame)) {
      if (const auto* body = std::get_if<Body>(&frame)) found.push_back(*body);
    }
    return found;
  }
  std::vector<Event::Kind> events() {
    std::vector<Event::Kind> kinds;
    for (Event event; session->take_event(event);) kinds.push_back(event.kind);
    return kinds;
  }

  std::vector<Path*> paths;
  Script stream;
  const std::shared_ptr<FakeHost> host = std::make_shared<FakeHost>();
  std::shared_ptr<SessionImpl> session;
};

TEST_F(SessionTest, ANotificationThatIsFasterThanItsPathsWordComesAfterTheBeginning) {
  greet();
  prove();
  EXPECT_EQ(host->ready, 0);
  notify(5);
  EXPECT_EQ(host->ready, 1);
  hear(control::PathReady{.epoch = 1});
  EXPECT_EQ(host->ready, 1);
  EXPECT_EQ(session->state(), PeerState::kReady);
  EXPECT_THAT(events(), testing::ElementsAre(Event::Kind::kConnected, Event::Kind::kNotification));
}

TEST_F(SessionTest, WhoUsesAPathThatIsNotProvedIsNoPeer) {
  greet();
  offer();
  notify(5);
  pass(milliseconds(1));
  const auto goodbyes = said<control::Goodbye>();
  ASSERT_EQ(goodbyes.size(), 1u);
  EXPECT_EQ(goodbyes[0].code, static_cast<std::uint32_t>(Code::kDataLoss));
  EXPECT_THAT(goodbyes[0].reason, testing::HasSubstr("before it was proved"));
  EXPECT_EQ(session->inbox.pending(), 0u);
}

// A path for commands may be there before the session is.
TEST_F(SessionTest, CommandsThatAreFasterThanTheBeginningComeAfterIt) {
  greet();
  prove(1);
  notify(5);
  notify(6);
  EXPECT_FALSE(host->queues().any_events()) << "nobody knows the session yet";
  EXPECT_EQ(host->ready, 0);
  prove();
  hear(control::PathReady{.epoch = 1});
  EXPECT_EQ(host->ready, 1);
  EXPECT_EQ(session->inbox.waiting(TrafficClass::kCommands), 2u);
  using Kind = Event::Kind;
  EXPECT_THAT(events(), testing::ElementsAre(Kind::kConnected, Kind::kNotification, Kind::kNotification));
}

TEST_F(SessionTest, WhatWaitsForTheBeginningIsWithinItsCredits) {
  greet();
  prove(1);
  const std::size_t most = host->settings.max_pending_events;
  const auto send = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) notify(5);
    pass(milliseconds(1));
  };
  send(most);
  EXPECT_TRUE(said<control::Goodbye>().empty());
  send(2 * most);
  EXPECT_EQ(said<control::Goodbye>().size(), 1u);
}

// With it goes what came over a path for commands.
TEST_F(SessionTest, WhatCameOfOneThatNeverWasReadyIsNotKept) {
  greet();
  prove(1);
  notify(5);
  EXPECT_EQ(host->ready, 0);
  session->abandon();
  EXPECT_EQ(session->inbox.pending(), 0u);
  EXPECT_FALSE(host->queues().any_events());
  const std::weak_ptr<SessionImpl> watch = session;
  session.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(SessionTest, AGoodbyeThatIsSaidAgainPutsNothingOff) {
  greet();
  prove();
  hear(control::PathReady{.epoch = 1});
  TransferImpl& transfer = *acquire_transfer();  // the driver's
  transfer.is_send = transfer.has_message = true;
  transfer.message.resize(8);
  ASSERT_TRUE(session->admit(transfer).ok());
  static_cast<TransferSink&>(*session).accept_transfer(transfer);
  hear(control::Goodbye{});
  pass(milliseconds(60));
  EXPECT_TRUE(said<control::Goodbye>().empty()) << "the path may say more";
  hear(control::Goodbye{});
  pass(milliseconds(41));
  EXPECT_EQ(said<control::Goodbye>().size(), 1u);
}

TEST_F(SessionTest, OneThatDrainsGoesOnByTime) {
  greet();
  stream.send_error = EAGAIN;
  const control::Refused large{.code = 1, .reason = std::string(1 << 19, 'x')};
  while (!session->link().overrun()) session->link().send(large);
  EXPECT_TRUE(session->wants_advance());
  pass(milliseconds(1));
  pass(milliseconds(1));
  EXPECT_FALSE(session->finished());
  EXPECT_FALSE(session->wants_advance());
  pass(milliseconds(500));
  EXPECT_TRUE(session->finished());
}

TEST_F(SessionTest, SilenceInPlaceOfAHelloIsARefusedHandshake) {
  pass(host->settings.connect_timeout);
  EXPECT_EQ(host->refused, 0);
  pass(milliseconds(1));
  pass(milliseconds(1));
  EXPECT_EQ(host->refused, 1);
  EXPECT_EQ(said<control::Goodbye>().size(), 1u);
}

TEST_F(SessionTest, OneThatWasGreetedAndHasNoPathWasNotRefused) {
  greet();
  pass(host->settings.connect_timeout + milliseconds(1));
  EXPECT_EQ(said<control::Goodbye>().size(), 1u);
  EXPECT_EQ(host->refused, 0);
}

// What it asks for meanwhile waits, in its order.
TEST_F(SessionTest, AListingOfManyNamesTakesTurns) {
  std::vector<std::byte> bytes(64);
  const auto range = host->regions().add({.bytes = bytes, .access = Access::kRemoteRead});
  ASSERT_TRUE(range);
  const auto region = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteRead, nullptr);
  for (std::size_t i = 0; i < 2 * Lookups::kTurnVisits; ++i) {
    ASSERT_TRUE(host->regions().publish(std::to_string(i), region, bytes, Access::kRemoteRead, {}, {"owner"}).ok());
  }
  greet();
  stream.to_hear += framed(control::Lookup{.request = 1, .name = {}, .prefix = true, .after = {}});
  hear(control::Lookup{.request = 2, .name = {}, .prefix = true, .after = {}});
  std::size_t turns = 0;
  for (; said<control::Regions>().size() < 2 && turns < 20; ++turns) {
    EXPECT_TRUE(session->wants_advance() || session->link().pending());
    pass(milliseconds(1));
    session->link().on_ready(EPOLLIN);
  }
  EXPECT_GE(turns, 3u);
  const auto pages = said<control::Regions>();
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(pages[0].request, 1u);
  EXPECT_EQ(pages[1].request, 2u);
  EXPECT_FALSE(session->wants_advance());
}

}  // namespace
}  // namespace fairlead::datapath
