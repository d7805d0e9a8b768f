#include "verbs/discovery/gid_choice.h"

#include <gtest/gtest.h>

namespace fairlead::verbs {
namespace {

constexpr std::uint32_t kV1 = IBV_GID_TYPE_ROCE_V1;
constexpr std::uint32_t kV2 = IBV_GID_TYPE_ROCE_V2;
constexpr std::uint32_t kEth = 2;
constexpr std::uint32_t kOther = 3;

GidFacts gid(int index, const char* address, std::uint32_t type = kV2, std::uint32_t interface = kEth,
             std::uint32_t mtu = 0) {
  return {index, *parse_address(address), type, interface, mtu};
}

PortFacts typical_port() {
  PortFacts port;
  port.device = "mlx5_0";
  port.gids = {gid(0, "fe80::1", kV1), gid(1, "fe80::1"),     gid(2, "10.0.0.5", kV1),
               gid(3, "10.0.0.5"),     gid(4, "2001:db8::5"), gid(5, "10.9.0.5", kV2, kOther)};
  return port;
}

Route route(const char* peer, const char* source, std::uint32_t interface = kEth) {
  return {*parse_address(peer), *parse_address(source), interface, 0};
}

struct Case {
  const char* name;
  const char* peer;  // null: no route
  const char* source;
  std::uint32_t interface;
  int configured;
  int chosen;          // -1: none
  const char* reason;  // part of the choice's reason
};

class GidChoiceTable : public ::testing::TestWithParam<Case> {};

TEST_P(GidChoiceTable, Chooses) {
  const Case& c = GetParam();
  Route way;
  if (c.peer != nullptr) way = route(c.peer, c.source, c.interface);
  const GidChoice choice = choose_gid(typical_port(), c.peer != nullptr ? &way : nullptr, c.configured);
  EXPECT_EQ(choice.chosen ? choice.chosen->index : -1, c.chosen) << choice.reason;
  EXPECT_NE(choice.reason.find(c.reason), std::string::npos) << choice.reason;
  ASSERT_EQ(choice.verdicts.size(), 6U);
  for (const GidVerdict& verdict : choice.verdicts) {
    EXPECT_FALSE(verdict.reason.empty());
    EXPECT_EQ(verdict.chosen, verdict.gid.index == c.chosen);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rules, GidChoiceTable,
    ::testing::Values(Case{"NoPeer", nullptr, nullptr, 0, -1, 3, "chosen: IPv4-mapped"},
                      Case{"OurAddress", "10.0.0.9", "10.0.0.5", kEth, -1, 3, "our address toward 10.0.0.9"},
                      Case{"OtherSubnet", "10.9.0.9", "10.9.0.5", kOther, -1, 5, "our address toward 10.9.0.9"},
                      Case{"SameInterface", "10.0.0.9", "10.0.0.77", kEth, -1, 3, "on the interface that leads to"},
                      Case{"Ipv6Peer", "2001:db8::9", "2001:db8::5", kEth, -1, 4, "global IPv6"},
                      Case{"LinkLocalPeer", "fe80::9", "fe80::1", kEth, -1, 1, "link-local"},
                      Case{"GlobalBeforeLinkLocal", "2001:db8::9", "2001:db8::77", kEth, -1, 4, "global IPv6"},
                      Case{"NoRoute", "172.16.0.1", "172.16.0.2", 9, -1, -1,
                           "the route to 172.16.0.1 starts at 172.16.0.2"},
                      Case{"SameHostWithoutLoopback", "10.0.0.5", "10.0.0.5", kEth, -1, 3, "which is on this host"},
                      Case{"LoopbackPeerWithoutLoopback", "127.0.0.1", "127.0.0.1", 1, -1, 3, "may loop back"},
                      Case{"Configured", "10.0.0.9", "10.0.0.5", kEth, 4, 4, "configured by gid_index"},
                      Case{"ConfiguredOffRoute", "172.16.0.1", "172.16.0.2", 9, 5, 5, "configured by gid_index"},
                      Case{"ConfiguredV1", "10.0.0.9", "10.0.0.5", kEth, 2, 2, "RoCE v1, as the peer's must be"},
                      Case{"ConfiguredEmpty", nullptr, nullptr, 0, 7, -1,
                           "GID index 7 of mlx5_0 port 1 is empty; used indices: 0, 1"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(GidChoice, LoopbackForAPeerOnThisHost) {
  PortFacts port;
  port.device = "soft0";
  port.gids = {gid(0, "fe80::1"), gid(1, "127.0.0.4"), gid(2, "10.0.0.5"), gid(3, "::1")};
  for (const Route& way : {route("127.0.0.1", "127.0.0.1", 1), route("10.0.0.5", "10.0.0.5"), route("::1", "::1", 1)}) {
    const GidChoice choice = choose_gid(port, &way, -1);
    ASSERT_TRUE(choice.chosen);
    EXPECT_EQ(choice.chosen->index, 1);
  }
  const Route remote = route("10.0.0.9", "10.0.0.5");
  const GidChoice choice = choose_gid(port, &remote, -1);
  ASSERT_TRUE(choice.chosen);
  EXPECT_EQ(choice.chosen->index, 2);
  EXPECT_NE(choice.verdicts[1].reason.find("loopback address, but 10.0.0.9 is another host"), std::string::npos);
  const GidChoice forced = choose_gid(port, &remote, 1);
  EXPECT_FALSE(forced.chosen);
  EXPECT_NE(forced.reason.find("loopback"), std::string::npos);
}

TEST(GidChoice, LosersNameTheWinner) {
  const GidChoice choice = choose_gid(typical_port(), nullptr, -1);
  EXPECT_EQ(choice.verdicts[0].reason, "RoCE v1 (no IP header), which gid_index must ask for");
  EXPECT_EQ(choice.verdicts[1].reason, "usable, but GID 3 ranks before it: IPv4-mapped before link-local");
  EXPECT_EQ(choice.verdicts[4].reason, "usable, but GID 3 ranks before it: IPv4-mapped before global IPv6");
  EXPECT_EQ(choice.verdicts[5].reason, "usable, but GID 3 has the lower index");
}

TEST(GidChoice, PortRefusalsReachEveryCandidate) {
  PortFacts down = typical_port();
  down.state = IBV_PORT_DOWN;
  PortFacts infiniband = typical_port();
  infiniband.link_layer = IBV_LINK_LAYER_INFINIBAND;
  PortFacts iwarp = typical_port();
  iwarp.transport = IBV_TRANSPORT_IWARP;
  const std::pair<PortFacts, std::string> cases[] = {
      {down, "port 1 of mlx5_0 is down, not active: bring its network interface up"},
      {infiniband, "the link layer of port 1 of mlx5_0 is InfiniBand, not Ethernet"},
      {iwarp, "mlx5_0 is not a RoCE device (transport type 1)"}};
  for (const auto& [port, reason] : cases) {
    const GidChoice choice = choose_gid(port, nullptr, -1);
    EXPECT_FALSE(choice.chosen);
    EXPECT_EQ(choice.reason, reason);
    for (const GidVerdict& verdict : choice.verdicts) EXPECT_EQ(verdict.reason, reason);
  }
}

TEST(GidChoice, ALinkLocalGidWithoutAnInterfaceGoesNowhere) {
  PortFacts port = typical_port();
  port.gids = {gid(0, "fe80::1", kV2, 0)};
  const Route way = route("fe80::9", "fe80::1");
  for (const Route* to : {static_cast<const Route*>(nullptr), &way}) {
    const GidChoice choice = choose_gid(port, to, -1);
    EXPECT_FALSE(choice.chosen);
    EXPECT_EQ(choice.verdicts[0].reason, "link-local without an interface: nothing can be sent from it");
  }
  EXPECT_TRUE(choose_gid(port, &way, 0).chosen) << "who asks for it gets the device's own refusal";
}

TEST(GidChoice, ALinkLocalGidIsTheSourceOnTheRoutesInterfaceOnly) {
  PortFacts port = typical_port();
  port.gids = {gid(1, "fe80::1", kV2, kOther), gid(2, "fe80::1", kV2, kEth)};
  const Route way = route("fe80::9", "fe80::1", kEth);
  const GidChoice choice = choose_gid(port, &way, -1);
  ASSERT_TRUE(choice.chosen);
  EXPECT_EQ(choice.chosen->index, 2);
  EXPECT_FALSE(choice.verdicts[0].usable);
}

TEST(PathMtu, IsWhatPortInterfaceAndRouteCarry) {
  PortFacts port = typical_port();
  port.active_mtu = 4096;
  const GidFacts plain = gid(3, "10.0.0.5", kV2, kEth, 1500);
  const GidFacts jumbo = gid(3, "10.0.0.5", kV2, kEth, 9000);
  const GidFacts unknown = gid(3, "10.0.0.5", kV2, 0);
  EXPECT_EQ(path_mtu(port, unknown, nullptr), 4096U);
  EXPECT_EQ(path_mtu(port, plain, nullptr), 1024U);
  EXPECT_EQ(path_mtu(port, jumbo, nullptr), 4096U);
  EXPECT_EQ(path_mtu(port, jumbo, nullptr, 2048), 2048U);
  EXPECT_EQ(path_mtu(port, plain, nullptr, 2048), 1024U);
  Route way = route("10.0.0.9", "10.0.0.5");
  EXPECT_EQ(path_mtu(port, jumbo, &way), 4096U) << "the route says nothing";
  way.mtu = 1400;
  EXPECT_EQ(path_mtu(port, jumbo, &way), 1024U);
  EXPECT_EQ(path_mtu(port, unknown, &way), 4096U) << "a wire of its own";
  EXPECT_EQ(path_mtu(port, gid(5, "10.9.0.5", kV2, kOther, 9000), &way), 4096U) << "another interface's";
  port.active_mtu = 512;
  EXPECT_EQ(path_mtu(port, plain, &way), 512U);
  // IPv6's header is longer by 20 bytes.
  port.active_mtu = 4096;
  EXPECT_EQ(path_mtu(port, gid(3, "10.0.0.5", kV2, kEth, 1090), nullptr), 1024U);
  EXPECT_EQ(path_mtu(port, gid(4, "2001:db8::5", kV2, kEth, 1090), nullptr), 512U);
}

TEST(GidChoice, AnInterfaceThatIsTooSmallIsRefused) {
  PortFacts port = typical_port();
  port.gids = {gid(3, "10.0.0.5", kV2, kEth, 300)};
  const GidChoice choice = choose_gid(port, nullptr, -1);
  EXPECT_FALSE(choice.chosen);
  EXPECT_NE(choice.reason.find("carries 300 bytes, too little for RoCE"), std::string::npos) << choice.reason;
}

TEST(GidChoice, EmptyTable) {
  PortFacts port = typical_port();
  port.gids.clear();
  EXPECT_EQ(choose_gid(port, nullptr, -1).reason, "no GID of mlx5_0 port 1 can be used");
  EXPECT_NE(choose_gid(port, nullptr, 0).reason.find("used indices: none"), std::string::npos);
}

}  // namespace
}  // namespace fairlead::verbs
