#include "datapath/identity/capability.h"

#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

Capability sample() {
  Capability capability{.region = 0x0123456789abcdef, .access = Access::kRemoteReadWrite, .secret = {}};
  for (std::size_t i = 0; i < capability.secret.size(); ++i) capability.secret[i] = static_cast<char>(0xf0 + i);
  return capability;
}

TEST(Capability, GoesThroughItsText) {
  const Capability made = sample();
  const std::string text = to_text(made);
  EXPECT_EQ(text.size(), kCapabilityBytes);
  EXPECT_EQ(text.substr(0, 30), "fairlead1:0123456789abcdef:03:");
  const auto read = parse_capability(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->region, made.region);
  EXPECT_EQ(read->access, made.access);
  EXPECT_EQ(read->secret, made.secret);
}

TEST(Capability, IsNothingElse) {
  const std::string text = to_text(sample());
  EXPECT_FALSE(parse_capability(""));
  EXPECT_FALSE(parse_capability(text + "0"));
  EXPECT_FALSE(parse_capability(text.substr(1)));
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = 'G';
    EXPECT_FALSE(parse_capability(other)) << i;
    if (text[i] < 'a') continue;
    other[i] = static_cast<char>(text[i] - 'a' + 'A');
    EXPECT_FALSE(parse_capability(other)) << "one text for each";
  }
}

}  // namespace
}  // namespace fairlead::datapath
