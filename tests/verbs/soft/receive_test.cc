// What a queue pair does not see: packets for others, of another service or partition, with a wrong ICRC.
#include "tests/verbs/soft/raw_peer.h"

namespace fairlead::soft::test {
namespace {

TEST(ResponderDrops, WhatIsNotForUsSilently) {
  RawPeer peer;
  const Forged good{
      .opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)};
  Forged packet = good;
  packet.pkey = 0x7ffe;
  peer.send(packet);
  packet = good;
  packet.qpn = peer.device->qp->qp_num ^ 1;
  peer.send(packet);
  packet = good;
  packet.qpn = peer.device->qp->qp_num ^ 0x800000;
  peer.send(packet);
  peer.route.source = Gid::from_ipv4(0x0a000003);  // an ICRC for another address
  peer.send(good);
  peer.route.source = peer.port->address();
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(peer.untouched());
  EXPECT_EQ(peer.device->counter("drop_pkey"), 1U);
  EXPECT_EQ(peer.device->counter("drop_no_qp"), 2U);
  EXPECT_EQ(peer.device->counter("drop_icrc"), 1U);
  packet = good;
  packet.pkey = 0x7fff;  // a limited member of the partition
  peer.send(packet);
  peer.expect_answer(Syndrome::kAck, peer.psn);
}

TEST(ResponderIcrc, OfAPeerThatCountsItsIdsIsExplained) {
  RawPeer peer;
  peer.port->count_ids(0xc1e4);  // as Linux rxe does
  for (std::uint32_t i = 0; i < 5; ++i) {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + i,
               .payload = RawPeer::payload(4, 1),
               .reth = peer.target(0, 4)});
    peer.expect_answer(Syndrome::kAck, peer.psn + i);
  }
  EXPECT_EQ(peer.device->counter("icrc_explained"), 5U);
}

TEST(ResponderIcrc, APeerWhoseIdsAreKnownDoesNotBeginToCount) {
  RawPeer peer;
  Forged packet{
      .opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)};
  for (std::uint32_t i = 0; i < 3; ++i, ++packet.psn) {
    peer.send(packet);
    peer.expect_answer(Syndrome::kAck, packet.psn);
  }
  peer.port->count_ids(1000);
  peer.send(packet);
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_EQ(peer.device->counter("drop_icrc"), 1U);
  peer.port->count_ids(17);  // as the 17th segment of a segmented send has it
  peer.send(packet);
  peer.expect_answer(Syndrome::kAck, packet.psn);
}

TEST(ResponderDrops, EverythingInTheErrorState) {
  RawPeer peer;
  ASSERT_EQ(peer.device->to_state(IBV_QPS_ERR), 0);
  peer.send(
      {.opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)});
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(peer.untouched());
  EXPECT_EQ(peer.device->counter("drop_state"), 1U);
}

TEST(ResponderDrops, OpcodesOfOtherServices) {
  RawPeer peer;
  Forged packet{
      .opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)};
  packet.opcode = for_uc(Opcode::kWriteOnly);
  peer.send(packet);
  packet.opcode = Opcode::kUdSendOnly;
  peer.send(packet);
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(peer.untouched());
  EXPECT_EQ(peer.device->counter("drop_wrong_service"), 2U);
}

}  // namespace
}  // namespace fairlead::soft::test
