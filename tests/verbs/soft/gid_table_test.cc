#include "verbs/soft/device/gid_table.h"

#include <gtest/gtest.h>
#include <poll.h>

#include "verbs/soft/wire/ethernet.h"

namespace fairlead::soft {
namespace {

constexpr std::uint64_t kGuid = 0x0211'2233'4455'6677;

InterfaceAddress v4(std::uint32_t address, std::uint32_t interface = 2) {
  return {Gid::from_ipv4(address), "eth" + std::to_string(interface), interface, 1500, false};
}

InterfaceAddress v6(std::uint8_t last) {
  InterfaceAddress address{{}, "eth2", 2, 1500, false};
  address.gid.bytes[0] = 0x20;
  address.gid.bytes[15] = last;
  return address;
}

const InterfaceAddress kLoopback{Gid::from_ipv4(0x7f000001), "lo", 1, 65536, true};
const Gid kOwn = Gid::from_ipv4(0x0a000001);

TEST(GidTable, LinkLocalOwnThenTheHosts) {
  GidTable table(kGuid, kOwn);
  EXPECT_TRUE(table.update({kLoopback, v4(0x0a000002), v4(0x0a000001), v6(1)}));
  const Gid first = table.at(0).gid;
  EXPECT_EQ(to_string(first), "fe80::211:2233:4455:6677");
  EXPECT_EQ(to_string(table.at(1).gid), "10.0.0.1");
  EXPECT_EQ(to_string(table.at(2).gid), "10.0.0.2");
  EXPECT_EQ(to_string(table.at(3).gid), "2000::1");
  EXPECT_TRUE(table.at(4).gid.is_null());
  EXPECT_TRUE(table.at(GidTable::kLength).gid.is_null());
}

TEST(GidTable, AWireOfItsOwnHasRoceV1BesideTheDevicesAddress) {
  const Gid link_local = link_local_gid(Mac{{2, 0, 0, 0, 0, 7}});
  GidTable table = GidTable::of_own_wire(link_local, kOwn);
  EXPECT_FALSE(table.follow_host());
  EXPECT_EQ(to_string(table.at(0).gid), "fe80::ff:fe00:7");
  EXPECT_EQ(table.version(0), RoceVersion::kV1);
  EXPECT_EQ(table.at(1).gid, kOwn);
  EXPECT_EQ(table.version(1), RoceVersion::kV2);
  EXPECT_EQ(table.at(2).gid, kOwn);
  EXPECT_EQ(table.version(2), RoceVersion::kV1);
  EXPECT_TRUE(table.at(3).gid.is_null());
  EXPECT_EQ(GidTable(kGuid, kOwn).version(0), RoceVersion::kV2);
}

TEST(GidTable, AGidKeepsItsIndexWhateverGoesOrComes) {
  GidTable table(kGuid, kOwn);
  table.update({v4(0x0a000001), v4(0x0a000002), v4(0x0a000003), v4(0x0a000004)});
  EXPECT_TRUE(table.update({v4(0x0a000001), v4(0x0a000004), v4(0x0a000002)}));
  EXPECT_EQ(to_string(table.at(2).gid), "10.0.0.2");
  EXPECT_TRUE(table.at(3).gid.is_null());
  EXPECT_EQ(to_string(table.at(4).gid), "10.0.0.4");
  EXPECT_TRUE(table.update({v4(0x0a000001), v4(0x0a000009), v4(0x0a000004), v4(0x0a000002)}));
  EXPECT_EQ(to_string(table.at(3).gid), "10.0.0.9");
  EXPECT_FALSE(table.update({v4(0x0a000001), v4(0x0a000009), v4(0x0a000004), v4(0x0a000002)}));
}

TEST(GidTable, TheOwnAddressComesBackToItsIndex) {
  GidTable table(kGuid, kOwn);
  table.update({v4(0x0a000001), v4(0x0a000002)});
  EXPECT_TRUE(table.update({v4(0x0a000002)}));
  EXPECT_TRUE(table.at(1).gid.is_null());
  EXPECT_EQ(to_string(table.at(2).gid), "10.0.0.2");
  EXPECT_TRUE(table.update({v4(0x0a000002), v4(0x0a000001)}));
  EXPECT_EQ(table.at(1).gid, kOwn);
}

TEST(GidTable, AnotherInterfaceOrMtuIsAChange) {
  GidTable table(kGuid, kOwn);
  table.update({v4(0x0a000001)});
  EXPECT_TRUE(table.update({v4(0x0a000001, 3)}));
  EXPECT_EQ(table.at(1).index, 3U);
  InterfaceAddress jumbo = v4(0x0a000001, 3);
  jumbo.mtu = 9000;
  EXPECT_TRUE(table.update({jumbo}));
}

TEST(GidTable, AnyAddressOfLoopbackIsThereWithLoopback) {
  const Gid own = Gid::from_ipv4(0x7f000105);
  GidTable table(kGuid, own);
  table.update({kLoopback});
  EXPECT_EQ(table.at(1).gid, own);
  EXPECT_EQ(table.at(1).index, 1U);
  EXPECT_TRUE(table.at(2).gid.is_null());
}

TEST(GidTable, MoreAddressesThanPlaces) {
  GidTable table(kGuid, kOwn);
  std::vector<InterfaceAddress> host{v4(0x0a000001)};
  for (std::uint8_t i = 1; i < 40; ++i) host.push_back(v6(i));
  EXPECT_TRUE(table.update(host));
  EXPECT_EQ(to_string(table.at(GidTable::kLength - 1).gid), "2000::e");
}

TEST(GidTable, AQuietHostIsNotAskedAgain) {
  GidTable table(kGuid, Gid::from_ipv4(0x7f000001));
  EXPECT_FALSE(table.follow_host());
  pollfd ready{table.wait_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
}

}  // namespace
}  // namespace fairlead::soft
