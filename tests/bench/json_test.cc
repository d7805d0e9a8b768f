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

// Each member looked for among all before it took minutes, which whoever may send a message could make a server take.
TEST(Json, AnObjectOfManyIsWrittenAtOnce) {
  Json::Object members;
  for (int i = 0; i < 300'000; ++i) members.emplace_back(std::to_string(i), i);
  const std::string text = Json(std::move(members)).dump();
  const Result<Json> read = Json::parse(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->object()->size(), 300'000U);
  EXPECT_EQ(read->dump(), text);
}

TEST(Json, WhatAMessageShowsIsBrief) {
  EXPECT_EQ(Json(Json::Object{{"a", 1}}).brief(), "an object");
  EXPECT_EQ(Json(Json::Array{1}).brief(), "an array");
  EXPECT_EQ(Json(-3).brief(), "-3");
  EXPECT_EQ(Json("it").brief(), "\"it\"");
  EXPECT_LT(Json(std::string(1'000'000, 'x')).brief().size(), 50U);
  const Result<Json> bad = Json::parse("{\"" + std::string(1'000'000, 'x'));
  ASSERT_FALSE(bad);
  EXPECT_LT(bad.error().message().size(), 400U);
}

TEST(Json, OfMoreValuesThanAreWantedNoneIsGiven) {
  EXPECT_TRUE(Json::parse("[1,2,3]", 4));
  const Result<Json> many = Json::parse("[1,2,3]", 3);
  ASSERT_FALSE(many);
  EXPECT_THAT(many.error().message(), testing::HasSubstr("more than 3 values"));
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
