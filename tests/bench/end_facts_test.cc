// What one end tells the other of itself, and what is made of an answer that is none.
#include "bench/net/end_facts.h"

#include <gmock/gmock.h>

#include "bench/net/interface.h"

namespace fairlead::bench {
namespace {

using testing::HasSubstr;

TEST(EndFacts, AreTheSameAtTheOtherEnd) {
  EngineConfig config;
  config.lanes = 3;
  const EndFacts here = own_facts(config);
  EXPECT_GT(here.process, 0U);
  EXPECT_GT(here.udp_buffer, 0U);
  EXPECT_GE(here.host.cores, here.host.usable);
  EXPECT_GT(here.host.usable, 0U);
  const Result<Json> sent = Json::parse(Json(to_json(here)).dump());
  ASSERT_TRUE(sent);
  const Result<EndFacts> there = end_facts(*sent);
  ASSERT_TRUE(there) << there.error().to_string();
  EXPECT_EQ(there->process, here.process);
  EXPECT_EQ(there->lanes, 3U);
  EXPECT_EQ(there->tcp_buffer, here.tcp_buffer);
  EXPECT_EQ(there->host.boot, here.host.boot);
  EXPECT_EQ(there->host.quota, here.host.quota);
}

TEST(EndFacts, AnAskedForSocketBufferIsWhatTheKernelGrants) {
  EngineConfig config;
  config.tcp.socket_buffer = 65536;
  EXPECT_EQ(own_facts(config).tcp_buffer, 2U * 65536);  // the kernel counts its own part, socket(7)
}

TEST(EndFacts, TakesNoMoreWarningsThanAreRead) {
  EndFacts facts = own_facts({});
  EXPECT_FALSE(facts.cores.empty());
  facts.warnings = std::vector<std::string>(100, std::string(10'000, 'x'));
  const Result<EndFacts> there = end_facts(*Json::parse(Json(to_json(facts)).dump()));
  ASSERT_TRUE(there);
  EXPECT_EQ(there->cores, facts.cores);
  ASSERT_EQ(there->warnings.size(), 8U);
  EXPECT_EQ(there->warnings[0].size(), 200U);
}

TEST(EndFacts, NamesWhatALiarLeavesOut) {
  const auto refused = [](const char* text) {
    const Result<EndFacts> facts = end_facts(*Json::parse(text));
    return facts ? "taken" : facts.error().message();
  };
  EXPECT_THAT(refused("{}"), HasSubstr("'host'"));
  EXPECT_THAT(refused("[1]"), HasSubstr("'host'"));
  EXPECT_THAT(refused(R"({"host": 5})"), HasSubstr("lacks"));
  EXPECT_THAT(
      refused(R"({"host": {"cpu_model": "x", "kernel": "x", "name": "x", "boot": "x", "cores": 1, "usable_cores": 1},
                          "process": 1, "tcp_buffer": 1, "udp_buffer": -1, "lanes": 1})"),
      HasSubstr("'udp_buffer'"));
}

TEST(InterfaceWith, FindsLoopbackByAnyOfItsAddresses) {
  for (const char* address : {"127.0.0.1", "127.3.2.1", "::ffff:127.0.0.1"}) {
    const auto facts = interface_with(address);
    ASSERT_TRUE(facts) << address;
    EXPECT_EQ(facts->name, "lo");
    EXPECT_GT(facts->mtu, 0U);
  }
  for (const char* none : {"192.0.2.1", "2001:db8::1", "", "gpu7", "%lo"}) EXPECT_FALSE(interface_with(none)) << none;
}

}  // namespace
}  // namespace fairlead::bench
