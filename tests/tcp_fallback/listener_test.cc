#include "tcp_fallback/listener.h"

#include <gtest/gtest.h>

#include <thread>

#include "fairlead/log.h"
#include "tests/out_of_descriptors.h"
#include "tests/tcp_fallback/raw_client.h"

namespace fairlead::tcp_fallback {
namespace {

class ListenerTest : public testing::Test {
 protected:
  static Listener open(const Clock& clock) {
    auto opened = Listener::open({}, clock);
    EXPECT_TRUE(opened.has_value()) << opened.status().to_string();
    return std::move(*opened);
  }
  // Advances until `done`.
  bool run(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      listener_.advance([this](const Greeting& greeting, PrivateFd& connection) {
        if (!equal(greeting.token, token_)) return false;
        claimed_.push_back(std::move(connection));
        return true;
      });
      std::this_thread::yield();
    }
    return done();
  }

  ManualClock clock_;
  Listener listener_ = open(clock_);
  const Token token_ = random_token();
  std::vector<PrivateFd> claimed_;
};

TEST_F(ListenerTest, HandsOverWhoKnowsTheToken) {
  RawClient client(listener_.port());
  client.send(Greeting{token_, 1});
  EXPECT_TRUE(run([&] { return claimed_.size() == 1; }));
  EXPECT_EQ(listener_.refused(), 0u);
  EXPECT_FALSE(client.ended());
}

TEST_F(ListenerTest, TakesAGreetingInPieces) {
  RawClient client(listener_.port());
  GreetingBytes bytes;
  encode(Greeting{token_, 1}, bytes);
  for (std::byte& each : bytes) {
    client.send({&each, 1});
    int turns = 0;
    run([&] { return ++turns > 2; });
  }
  EXPECT_TRUE(run([&] { return claimed_.size() == 1; }));
}

TEST_F(ListenerTest, DropsAWrongTokenNoiseAndSilence) {
  RawClient wrong(listener_.port()), noise(listener_.port()), gone(listener_.port());
  wrong.send(Greeting{random_token(), 1});
  const std::string text = "GET / HTTP/1.1\r\nHost: fairlead.example\r\n\r\n";
  noise.send(std::as_bytes(std::span(text)));
  gone.close();
  EXPECT_TRUE(run([&] { return listener_.refused() == 3; }));
  EXPECT_TRUE(run([&] { return wrong.ended() && noise.ended(); }));
  EXPECT_TRUE(claimed_.empty());
  EXPECT_FALSE(listener_.deadline().has_value());
}

TEST_F(ListenerTest, SilenceHasADeadline) {
  RawClient silent(listener_.port());
  EXPECT_TRUE(run([&] { return listener_.deadline().has_value(); }));
  EXPECT_EQ(*listener_.deadline(), clock_.now() + Listener::kGreetingTime);
  clock_.advance(Listener::kGreetingTime - 1);
  int turns = 0;
  run([&] { return ++turns > 3; });
  EXPECT_EQ(listener_.refused(), 0u);
  clock_.advance(1);
  EXPECT_TRUE(run([&] { return listener_.refused() == 1; }));
  EXPECT_TRUE(run([&] { return silent.ended(); }));
  EXPECT_FALSE(listener_.deadline().has_value());
}

TEST_F(ListenerTest, AFloodOfTheUnknownDoesNotKeepOthersOut) {
  std::vector<RawClient> flood;
  for (std::size_t i = 0; i < Listener::kMaxUnknown + 10; ++i) {
    flood.emplace_back(listener_.port());
    int turns = 0;
    run([&] { return ++turns > 2; });
  }
  EXPECT_TRUE(run([&] { return listener_.refused() >= 10; }));
  EXPECT_TRUE(run([&] { return flood.front().ended(); }));
  RawClient client(listener_.port());
  client.send(Greeting{token_, 1});
  EXPECT_TRUE(run([&] { return claimed_.size() == 1; }));
}

TEST_F(ListenerTest, ThatThereAreNoDescriptorsIsSaidWhereSomebodyComes) {
  static int warnings = 0;
  set_log_sink([](LogLevel, std::string_view line) {
    warnings += line.find("cannot accept") != std::string_view::npos ? 1 : 0;
  });
  const auto pass_a_second = [this] {  // without descriptors
    const test::OutOfDescriptors limit;
    for (int i = 0; i < 10; ++i) {
      int turns = 0;
      run([&] { return ++turns > 2; });
      clock_.advance(100 * kMillisecond);
    }
  };
  pass_a_second();
  EXPECT_EQ(warnings, 0);
  RawClient client(listener_.port());
  pass_a_second();
  EXPECT_EQ(warnings, 10) << "each time that it looks again";
  client.send(Greeting{token_, 1});
  EXPECT_TRUE(run([&] { return claimed_.size() == 1; }));
  pass_a_second();
  EXPECT_EQ(warnings, 10);
  EXPECT_FALSE(listener_.deadline().has_value());
  set_log_sink(nullptr);
}

TEST(ListenerOpen, SaysThatThePortIsTaken) {
  const auto first = Listener::open({});
  ASSERT_TRUE(first.has_value());
  TcpConfig config;
  config.port = first->port();
  const auto second = Listener::open(config);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_NE(second.error().message().find(std::to_string(config.port)), std::string::npos);
}

}  // namespace
}  // namespace fairlead::tcp_fallback
