#include "datapath/engine/resolver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/no_threads.h"

namespace fairlead::datapath {
namespace {

using Addresses = Result<std::vector<std::string>>;

Addresses resolve(Resolver& resolver, const std::string& host) {
  auto answer = std::make_shared<std::promise<Addresses>>();
  auto future = answer->get_future();
  resolver.resolve(host, [answer](Addresses addresses) { answer->set_value(std::move(addresses)); });
  return future.get();
}

TEST(Resolver, GivesAnAddressOrTheReason) {
  Resolver resolver;
  const auto local = resolve(resolver, "localhost");
  ASSERT_TRUE(local.has_value()) << local.status().to_string();
  ASSERT_FALSE(local->empty());
  for (const std::string& address : *local) EXPECT_TRUE(address == "127.0.0.1" || address == "::1") << address;
  const auto none = resolve(resolver, "no-such-host.invalid");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_NE(none.error().message().find("no such host 'no-such-host.invalid': "), std::string::npos);
  resolver.stop();
}

TEST(Resolver, AFewThreadsAnswerAll) {
  Resolver resolver;
  std::vector<std::future<bool>> all;
  for (int i = 0; i < 100; ++i) {
    auto answer = std::make_shared<std::promise<bool>>();
    all.push_back(answer->get_future());
    resolver.resolve("localhost", [answer](const Addresses& found) { answer->set_value(found.has_value()); });
  }
  for (auto& each : all) EXPECT_TRUE(each.get());
  resolver.stop();
}

TEST(Resolver, StoppingWaitsForWhoIsUnderWayAndLetsNobodyBegin) {
  Resolver resolver;
  std::atomic<int> answers{0};
  for (int i = 0; i < 4; ++i) resolver.resolve("localhost", [&](const Addresses&) { ++answers; });
  resolver.stop();
  const int given = answers;
  EXPECT_LE(given, 4);
  resolver.resolve("localhost", [&](const Addresses&) { ++answers; });
  resolver.stop();
  EXPECT_EQ(answers, given);
}

// A resolver that answers nobody: the threads are busy with names whose answer waits for `gone`.
void occupy(Resolver& resolver, const std::shared_future<void>& gone) {
  for (std::size_t i = 0; i < Resolver::kMaxThreads; ++i) {
    auto begun = std::make_shared<std::promise<void>>();
    auto is_begun = begun->get_future();
    resolver.resolve("localhost", [begun, gone](const Addresses&) {
      begun->set_value();
      gone.wait();
    });
    is_begun.wait();
  }
}

TEST(Resolver, TooManyNamesAreRefused) {
  Resolver resolver;
  std::promise<void> go;
  occupy(resolver, go.get_future().share());
  for (std::size_t i = 0; i < Resolver::kMaxWaiting; ++i) resolver.resolve("localhost", [](const Addresses&) {});
  Code refused = Code::kOk;
  resolver.resolve("localhost", [&](const Addresses& found) { refused = found.status().code(); });
  EXPECT_EQ(refused, Code::kResourceExhausted);
  go.set_value();
  resolver.stop();
}

TEST(Resolver, WithoutAThreadNobodyWaits) {
  Resolver resolver;
  const auto refused = [&] {
    const test::NoThreads none;
    return resolve(resolver, "localhost");
  }();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_NE(refused.error().message().find("no thread for resolving names"), std::string::npos);
  EXPECT_TRUE(resolve(resolver, "localhost").has_value());
  const test::NoThreads none;  // that one thread is there
  EXPECT_TRUE(resolve(resolver, "localhost").has_value());
  resolver.stop();
}

// What a question would tell the answer to is an engine that has ended.
TEST(Resolver, StoppingLetsGoOfWhatWaits) {
  Resolver resolver;
  std::promise<void> go;
  occupy(resolver, go.get_future().share());
  auto owner = std::make_shared<int>();
  const std::weak_ptr<int> watch = owner;
  resolver.resolve("localhost", [owner = std::move(owner)](const Addresses&) {});
  std::thread stopping([&] { resolver.stop(); });
  const auto is_stopped = [&] {  // what is asked for then is dropped
    auto asked = std::make_shared<int>();
    const std::weak_ptr<int> kept = asked;
    resolver.resolve("localhost", [asked = std::move(asked)](const Addresses&) {});
    return kept.expired();
  };
  while (!is_stopped()) std::this_thread::yield();
  go.set_value();
  stopping.join();
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace fairlead::datapath
