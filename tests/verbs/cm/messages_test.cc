// The codec against MADs that Linux sent.
#include "verbs/cm/messages.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/verbs/cm/captured.h"
#include "verbs/cm/ip_header.h"

namespace fairlead::cm {
namespace {

using test::pad;

template <typename T>
T parse_as(std::string_view hex) {
  const auto mad = parse(pad(hex));
  EXPECT_TRUE(mad.has_value());
  EXPECT_TRUE(mad && std::holds_alternative<T>(mad->message));
  return std::get<T>(mad->message);
}

TEST(Messages, ReqOfLinux) {
  EXPECT_EQ(parse(pad(test::kReq))->transaction_id, 0x2aa3159ccU);
  const Req req = parse_as<Req>(test::kReq);
  EXPECT_EQ(req.local_comm_id, 0xcc5931aaU);
  EXPECT_EQ(req.service_id, service_id(0x0106, 7174));
  EXPECT_EQ(req.local_ca_guid, 0x505400fffe000002U);
  EXPECT_EQ(req.local_qpn, 0x11U);
  EXPECT_EQ(req.responder_resources, 1);
  EXPECT_EQ(req.initiator_depth, 1);
  EXPECT_EQ(req.remote_cm_response_timeout, 20);
  EXPECT_EQ(req.local_cm_response_timeout, 20);
  EXPECT_EQ(req.transport_service, 0);
  EXPECT_EQ(req.starting_psn, 0xe2f424U);
  EXPECT_EQ(req.retry_count, 7);
  EXPECT_EQ(req.pkey, 0xffff);
  EXPECT_EQ(req.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(req.rnr_retry_count, 7);
  EXPECT_EQ(req.max_cm_retries, 15);
  EXPECT_FALSE(req.srq);
  EXPECT_EQ(req.primary.local, Gid::from_ipv4(0x0a070002));
  EXPECT_EQ(req.primary.remote, Gid::from_ipv4(0x0a070001));
  EXPECT_EQ(req.primary.flow_label, 0xce71fU);
  EXPECT_EQ(req.primary.hop_limit, 64);
  EXPECT_EQ(req.primary.local_ack_timeout, 19);
  const auto header = IpHeader::decode(std::span(req.private_data).first<IpHeader::kBytes>());
  ASSERT_TRUE(header.has_value());
  EXPECT_FALSE(header->ipv6);
  EXPECT_EQ(header->source_port, 0xedc7);
  EXPECT_EQ(header->source, Gid::from_ipv4(0x0a070002));
  EXPECT_EQ(header->destination, Gid::from_ipv4(0x0a070001));
}

TEST(Messages, RepOfLinux) {
  const Rep rep = parse_as<Rep>(test::kRep);
  EXPECT_EQ(rep.local_comm_id, 0xb4143e2eU);
  EXPECT_EQ(rep.remote_comm_id, 0xcc5931aaU);
  EXPECT_EQ(rep.local_qpn, 0x11U);
  EXPECT_EQ(rep.starting_psn, 0x86e9fbU);
  EXPECT_EQ(rep.responder_resources, 1);
  EXPECT_EQ(rep.initiator_depth, 1);
  EXPECT_EQ(rep.target_ack_delay, 15);
  EXPECT_EQ(rep.rnr_retry_count, 7);
  EXPECT_EQ(rep.local_ca_guid, 0x505400fffe000001U);
}

TEST(Messages, RtuDreqAndDrepOfLinux) {
  const Rtu rtu = parse_as<Rtu>(test::kRtu);
  EXPECT_EQ(rtu.local_comm_id, 0xcc5931aaU);
  EXPECT_EQ(rtu.remote_comm_id, 0xb4143e2eU);
  const Dreq dreq = parse_as<Dreq>(test::kDreq);
  EXPECT_EQ(dreq.remote_comm_id, 0xb4143e2eU);
  EXPECT_EQ(dreq.remote_qpn, 0x11U);
  const Drep drep = parse_as<Drep>(test::kDrep);
  EXPECT_EQ(drep.local_comm_id, 0xb4143e2eU);
  EXPECT_EQ(drep.remote_comm_id, 0xcc5931aaU);
}

TEST(Messages, EncodeRestoresWhatLinuxSent) {
  for (const auto hex : {test::kReq, test::kRep, test::kRtu, test::kDreq, test::kDrep}) {
    EXPECT_EQ(encode(*parse(pad(hex))), pad(hex)) << hex;
  }
}

// No capture holds these: their layout is IBTA 12.6.7, 12.6.6, 12.11.2.
TEST(Messages, RejLayout) {
  Rej rej;
  rej.local_comm_id = 0x01020304;
  rej.remote_comm_id = 0x05060708;
  rej.about = About::kRep;
  rej.reason = RejectReason::kStaleConnection;
  rej.info_length = 8;
  rej.info[7] = std::byte{0x77};
  rej.private_data[0] = std::byte{0x55};
  const MadBytes bytes = encode({0x99, rej});
  MadBytes expected = pad("01070203000000000000000000000099001200000000000001020304050607084010000a");
  expected[24 + 12 + 7] = std::byte{0x77};
  expected[24 + 84] = std::byte{0x55};
  EXPECT_EQ(bytes, expected);
  EXPECT_EQ(encode(*parse(bytes)), bytes);
}

TEST(Messages, MraLayout) {
  const MadBytes bytes = encode({1, Mra{2, 3, About::kRep, 24}});
  EXPECT_EQ(bytes, pad("010702030000000000000000000000010011000000000000000000020000000340c0"));
  EXPECT_EQ(encode(*parse(bytes)), bytes);
}

TEST(Messages, SidrLayouts) {
  SidrReq req;
  req.request_id = 7;
  req.service_id = service_id(0x0111, 0x1234);
  EXPECT_EQ(encode({1, req}), pad("01070203000000000000000000000001001700000000000000000007ffff00000000000001111234"));
  SidrRep rep;
  rep.request_id = 7;
  rep.status = SidrRep::Status::kRejected;
  rep.qpn = 0x123456;
  rep.service_id = req.service_id;
  rep.qkey = 0x01234567;
  EXPECT_EQ(encode({1, rep}), pad("0107020300000000000000000000000100180000000000000000000702000000123456000000000001"
                                  "11123401234567"));
  EXPECT_EQ(encode(*parse(encode({1, rep}))), encode({1, rep}));
}

TEST(Messages, OtherMadsAreNone) {
  const MadBytes good = pad(test::kReq);
  EXPECT_FALSE(parse(std::span(good).first(255)));
  EXPECT_FALSE(parse({}));
  // Base version, class, class version, method, attribute.
  for (const std::size_t at : {0U, 1U, 2U, 3U, 16U}) {
    MadBytes bad = good;
    bad[at] ^= std::byte{0x40};
    EXPECT_FALSE(parse(bad)) << at;
  }
}

TEST(Messages, AnyBytesParseOrNot) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    MadBytes bytes = pad(test::kReq);
    bytes[17] = static_cast<std::byte>(0x10 + random() % 12);
    for (std::size_t at = 24; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(random());
    if (const auto mad = parse(bytes)) {
      (void)encode(*mad);
    }
  }
}

TEST(IpHeader, Ipv6AndUnknownVersions) {
  IpHeader header;
  header.ipv6 = true;
  header.source_port = 4242;
  header.source.bytes[0] = 0xfd;
  header.destination.bytes[15] = 9;
  std::array<std::byte, IpHeader::kBytes> bytes;
  header.encode(bytes.data());
  const auto back = IpHeader::decode(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_TRUE(back->ipv6);
  EXPECT_EQ(back->source, header.source);
  EXPECT_EQ(back->destination, header.destination);
  bytes[1] = std::byte{0x50};
  EXPECT_FALSE(IpHeader::decode(bytes));
}

}  // namespace
}  // namespace fairlead::cm
