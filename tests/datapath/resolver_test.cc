#include "datapath/engine/resolver.h"

#include <gtest/gtest.h>

#include <future>

namespace fairlead::datapath {
namespace {

Result<std::string> resolve(Resolver& resolver, const std::string& host) {
  auto answer = std::make_shared<std::promise<Result<std::string>>>();
  auto future = answer->get_future();
  resolver.resolve(host, [answer](Result<std::string> address) { answer->set_value(std::move(address)); });
  return future.get();
}

TEST(Resolver, GivesAnAddressOrTheReason) {
  Resolver resolver;
  const auto local = resolve(resolver, "localhost");
  ASSERT_TRUE(local.has_value()) << local.status().to_string();
  EXPECT_TRUE(*local == "127.0.0.1" || *local == "::1") << *local;
  const auto none = resolve(resolver, "no-such-host.invalid");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_NE(none.error().message().find("no such host 'no-such-host.invalid': "), std::string::npos);
  resolver.stop();
}

TEST(Resolver, StoppingWaitsForWhoIsUnderWayAndLetsNobodyBegin) {
  Resolver resolver;
  std::atomic<int> answers{0};
  for (int i = 0; i < 4; ++i) resolver.resolve("localhost", [&](const Result<std::string>&) { ++answers; });
  resolver.stop();
  EXPECT_EQ(answers, 4);
  resolver.resolve("localhost", [&](const Result<std::string>&) { ++answers; });
  resolver.stop();
  EXPECT_EQ(answers, 4);
}

}  // namespace
}  // namespace fairlead::datapath
