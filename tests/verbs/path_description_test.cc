#include "verbs/transport/path_description.h"

#include <gtest/gtest.h>

namespace fairlead::verbs {
namespace {

PathDescription sample() {
  PathDescription description;
  description.gid = *parse_address("127.3.0.1");
  description.qpn = 0x010203;
  description.psn = 0x0a0b0c;
  description.mtu = 4096;
  description.message_credits = 256;
  description.control_credits = 8;
  description.message_bytes = 4096;
  description.max_rd_atomic = 16;
  description.max_dest_rd_atomic = 4;
  return description;
}

TEST(PathDescription, BytesAreFixed) {
  const std::string bytes = serialize(sample());
  const std::string expected(
      "FV\x02\x01"
      "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\x03\0\x01"
      "\0\x01\x02\x03"
      "\0\x0a\x0b\x0c"
      "\x10\0"
      "\x01\0"
      "\0\0\x10\0"
      "\x10\x04\x08\0",
      kPathDescriptionBytes);
  EXPECT_EQ(bytes, expected);
  const auto parsed = parse_path_description(bytes);
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(*parsed, sample());
}

TEST(PathDescription, RefusesOtherLengths) {
  const std::string bytes = serialize(sample());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(parse_path_description(std::string_view(bytes).substr(0, length))) << length;
  }
  EXPECT_FALSE(parse_path_description(bytes + '\0'));
}

TEST(PathDescription, RefusesAnotherVersion) {
  std::string bytes = serialize(sample());
  bytes[2] = 1;
  EXPECT_EQ(parse_path_description(bytes).error().code(), Code::kVersionMismatch);
}

struct BadField {
  const char* name;
  void (*break_it)(PathDescription&);
};

TEST(PathDescription, NamesTheBadField) {
  const BadField cases[] = {
      {"qpn", [](PathDescription& d) { d.qpn = 1; }},
      {"qpn", [](PathDescription& d) { d.qpn = kMaxQpn + 1; }},
      {"psn", [](PathDescription& d) { d.psn = kMaxPsn + 1; }},
      {"mtu", [](PathDescription& d) { d.mtu = 1500; }},
      {"mtu", [](PathDescription& d) { d.mtu = 0; }},
      {"message credits", [](PathDescription& d) { d.message_credits = 0; }},
      {"control credits", [](PathDescription& d) { d.control_credits = kMinControlCredits - 1; }},
      {"message_bytes", [](PathDescription& d) { d.message_bytes = kMinMessageBytes - 1; }},
      {"message_bytes", [](PathDescription& d) { d.message_bytes = kMaxMessageBytes + 1; }},
      {"GID", [](PathDescription& d) { d.gid = {}; }},
      {"GID", [](PathDescription& d) { d.gid.bytes[0] = 0xff; }},
  };
  for (const BadField& bad : cases) {
    PathDescription description = sample();
    bad.break_it(description);
    const auto parsed = parse_path_description(serialize(description));
    ASSERT_FALSE(parsed) << bad.name;
    EXPECT_EQ(parsed.error().code(), Code::kDataLoss);
    EXPECT_NE(parsed.error().message().find(bad.name), std::string::npos) << parsed.error().message();
  }
}

TEST(PathDescription, UnknownBitsAreRefused) {
  std::string bytes = serialize(sample());
  bytes[3] = 3;
  EXPECT_FALSE(parse_path_description(bytes));
  bytes = serialize(sample());
  bytes[39] = 1;
  EXPECT_FALSE(parse_path_description(bytes));
}

}  // namespace
}  // namespace fairlead::verbs
