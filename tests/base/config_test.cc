#include "fairlead/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace fairlead {
namespace {

using testing::HasSubstr;

TEST(EngineConfigValidate, DefaultsAreLegal) { EXPECT_TRUE(EngineConfig().validate().ok()); }

TEST(EngineConfigValidate, NamesTheValueAndTheRange) {
  EngineConfig config;
  config.verbs.retry_count = 9;
  const Status status = config.validate();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), "verbs.retry_count is 9; legal: 0 to 7");
}

TEST(EngineConfigValidate, RefusesEachBadValue) {
  const std::pair<std::function<void(EngineConfig&)>, const char*> cases[] = {
      {[](auto& c) { c.listen = "nowhere"; }, "nowhere"},
      {[](auto& c) { c.transport = "rdma"; }, "verbs:DEVICE"},
      {[](auto& c) { c.transport = "verbs:"; }, "verbs:DEVICE"},
      {[](auto& c) { c.require = {"tcp", "auto"}; }, "require is 'auto'"},
      {[](auto& c) { c.forbid = {"verbs:"}; }, "forbid is 'verbs:'"},
      {[](auto& c) { c.name = std::string(256, 'x'); }, "name"},
      {[](auto& c) { c.spin = std::chrono::microseconds(-1); }, "spin"},
      {[](auto& c) { c.connect_timeout = std::chrono::milliseconds(0); }, "connect_timeout"},
      {[](auto& c) { c.path_timeout = std::chrono::milliseconds(0); }, "path_timeout"},
      {[](auto& c) { c.peer_timeout = std::chrono::milliseconds(-5); }, "peer_timeout"},
      {[](auto& c) { c.pool_arena_bytes = 1; }, "pool_arena_bytes"},
      {[](auto& c) { c.pool_max_bytes = c.pool_arena_bytes - 1; }, "pool_max_bytes"},
      {[](auto& c) { c.pool_idle = std::chrono::milliseconds(-1); }, "pool_idle"},
      {[](auto& c) { c.max_message_bytes = 0; }, "max_message_bytes"},
      {[](auto& c) { c.max_pending_events = 0; }, "max_pending_events"},
      {[](auto& c) { c.max_pending_bytes = 0; }, "max_pending_bytes"},
      {[](auto& c) { c.max_posted = 0; }, "max_posted"},
      {[](auto& c) { c.max_posted_bytes = 0; }, "max_posted_bytes"},
      {[](auto& c) { c.max_sessions = 0; }, "max_sessions"},
      {[](auto& c) { c.max_handshakes = 0; }, "max_handshakes"},
      {[](auto& c) { c.max_cut_sessions = std::size_t{1} << 30; }, "max_cut_sessions"},
      {[](auto& c) { c.max_principal_pending_events = std::size_t{1} << 40; }, "max_principal_pending_events"},
      {[](auto& c) { c.max_principal_pending_bytes = std::size_t{1} << 60; }, "max_principal_pending_bytes"},
      {[](auto& c) { c.chunk_bytes = 1; }, "chunk_bytes"},
      {[](auto& c) { c.paths = 9; }, "paths"},
      {[](auto& c) { c.verbs.packet_io = ""; }, "verbs.packet_io"},
      {[](auto& c) { c.verbs.profile = "half"; }, "full, pvrdma"},
      {[](auto& c) { c.verbs.soft_address = "127.0.0"; }, "127.0.0"},
      {[](auto& c) { c.verbs.mtu = 1500; }, "1500"},
      {[](auto& c) { c.verbs.gid_index = -2; }, "verbs.gid_index"},
      {[](auto& c) { c.verbs.port = 0; }, "verbs.port"},
      {[](auto& c) { c.verbs.hop_limit = 0; }, "verbs.hop_limit"},
      {[](auto& c) { c.verbs.ack_timeout = 32; }, "verbs.ack_timeout"},
      {[](auto& c) { c.verbs.rnr_retry = 8; }, "verbs.rnr_retry"},
      {[](auto& c) { c.verbs.min_rnr_timer = 32; }, "verbs.min_rnr_timer"},
      {[](auto& c) { c.verbs.send_depth = 0; }, "verbs.send_depth"},
      {[](auto& c) { c.verbs.receive_depth = 0; }, "verbs.receive_depth"},
      {[](auto& c) { c.verbs.message_bytes = 10; }, "verbs.message_bytes"},
      {[](auto& c) { c.tcp.send_depth = 0; }, "tcp.send_depth"},
      {[](auto& c) { c.tcp.socket_buffer = 100; }, "tcp.socket_buffer"},
  };
  for (const auto& [spoil, text] : cases) {
    EngineConfig config;
    spoil(config);
    const Status status = config.validate();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
  }
}

TEST(ParseHostPort, Forms) {
  const auto check = [](std::string_view text, std::string_view host, int port) {
    const auto parsed = parse_host_port(text);
    ASSERT_TRUE(parsed.has_value()) << parsed.status().to_string();
    EXPECT_EQ(parsed->host, host);
    EXPECT_EQ(parsed->port, port);
  };
  check("gpu7:7471", "gpu7", 7471);
  check(":0", "", 0);
  check("10.0.0.1:65535", "10.0.0.1", 65535);
  check("[fe80::1%eth0]:1", "fe80::1%eth0", 1);
  check("[::]:7471", "::", 7471);
}

TEST(ParseHostPort, ErrorsNameTheText) {
  for (std::string_view text : {"", "host", "host:", "host:x", "host:65536", "host:-1", "host:+1", "::1:80", "[::1]",
                                "[]:1", "[::1:1", "a b:1", "host:1 ", "host: 1", "::"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message(), HasSubstr("'" + std::string(text) + "'"));
  }
}

TEST(ParsePlaces, OneOrSeveral) {
  const auto one = parse_places("gpu7:7471");
  ASSERT_TRUE(one.has_value()) << one.status().to_string();
  ASSERT_EQ(one->size(), 1U);
  EXPECT_EQ(one->front().host, "gpu7");
  const auto three = parse_places("a:1,[::1]:2,10.0.0.1:3");
  ASSERT_TRUE(three.has_value()) << three.status().to_string();
  ASSERT_EQ(three->size(), 3U);
  EXPECT_EQ((*three)[1].host, "::1");
  EXPECT_EQ((*three)[2].port, 3);
}

TEST(ParsePlaces, EachHasAHostAndAPort) {
  for (std::string_view text : {"", ",", "a:1,", ",a:1", "a:1,,b:2", "a:1,:2", "a:1,b:0", "a:1,b", "a:1, b:2",
                                "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9"}) {
    const auto parsed = parse_places(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_FALSE(parsed.error().message().empty());
  }
}

}  // namespace
}  // namespace fairlead
