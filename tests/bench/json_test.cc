#include "bench/base/json.h"

#include <gmock/gmock.h>

namespace fairlead::bench {
namespace {

TEST(Json, RoundTripKeepsOrderAndTypes) {
  const std::string text = R"({"b":1,"a":[true,null,-3,1.5,"x\ny"],"big":18446744073709551615})";
  const Result<Json> parsed = Json::parse(text);
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(parsed->dump(), text);
  EXPECT_EQ(parsed->find("big")->uint(), 18446744073709551615U);
  EXPECT_EQ((*parsed->find("a")->array())[2].uint(), std::nullopt);
  EXPECT_EQ((*parsed->find("a")->array())[2].number(), -3.0);
}

TEST(Json, KeepsDuplicateNames) {
  const Result<Json> parsed = Json::parse(R"({"a":1,"a":2})");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->object()->size(), 2U);
}

TEST(Json, FractionIsNoInteger) {
  EXPECT_EQ(Json::parse("1.0")->uint(), std::nullopt);
  EXPECT_EQ(Json::parse("1e3")->uint(), std::nullopt);
  EXPECT_EQ(Json::parse("7")->uint(), 7U);
}

TEST(Json, NumbersBeyondIntegersSurvive) {
  for (const char* text : {"-9223372036854775808", "-1", "1e+300", "-1e+300", "8.111e+51"}) {
    EXPECT_EQ(Json::parse(text)->dump(), text);
  }
  EXPECT_EQ(Json::parse("-5")->sint(), -5);
  EXPECT_EQ(Json::parse("5")->sint(), std::nullopt);
}

TEST(Json, ErrorsNameTheByte) {
  const Result<Json> parsed = Json::parse(R"({"a":})");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code(), Code::kDataLoss);
  EXPECT_THAT(parsed.error().message(), testing::HasSubstr("byte 6"));
}

TEST(Json, RefusesTrailingTextEmptyTextAndBadUtf8) {
  EXPECT_FALSE(Json::parse("{} x"));
  EXPECT_FALSE(Json::parse(""));
  EXPECT_FALSE(Json::parse("\"\xff\""));
}

TEST(Json, DepthIsBounded) {
  EXPECT_TRUE(Json::parse(std::string(64, '[') + std::string(64, ']')));
  const Result<Json> deep = Json::parse(std::string(100'000, '['));
  ASSERT_FALSE(deep);
  EXPECT_THAT(deep.error().message(), testing::HasSubstr("deeper than 64"));
}

}  // namespace
}  // namespace fairlead::bench
