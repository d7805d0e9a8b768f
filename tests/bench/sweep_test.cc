#include "bench/trace/sweep.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include "topology/xml.h"

namespace fairlead::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Trace parse(std::string_view name = "n") {
  const std::string text = R"({"fairlead_trace":1,"made":"by hand","name":")" + std::string(name) + "\"}\n" +
                           R"({"op":"launch","device_ns":100000,"blocking":true}
{"op":"copy_in","bytes_out":10000,"blocking":true})";
  Result<Trace> trace = parse_trace(text, "a");
  EXPECT_TRUE(trace) << trace.error().to_string();
  return *std::move(trace);
}

Sweep swept(const Trace& trace) { return sweep(trace, {1e3, 20e3}, {1e9, 10e9, 100e9}, {}); }

TEST(SweepLists, AreRead) {
  EXPECT_THAT(*parse_round_trips("1us,5us,0.2ms"), ElementsAre(1e3, 5e3, 2e5));
  EXPECT_THAT(*parse_round_trips("1ns,1000ms"), ElementsAre(1, 1e9));
  EXPECT_THAT(*parse_bandwidths("10G,2.5G,1T"), ElementsAre(10e9, 2.5e9, 1e12));
}

TEST(SweepLists, ErrorsNameTheItemAndWhatIsLegal) {
  for (const char* text :
       {"", "5", "us", "5s", "5us,", "-5us", "0us", "1001ms", "nanus", "infus", "1e3us", " 5us", "5 us"}) {
    const auto list = parse_round_trips(text);
    ASSERT_FALSE(list) << text;
    EXPECT_THAT(list.error().message(), HasSubstr("legal: 1us,5us,0.2ms")) << text;
  }
  EXPECT_THAT(parse_round_trips("1us,5x").error().message(), HasSubstr("'5x' is not legal"));
  EXPECT_THAT(parse_round_trips("5us,5us").error().message(), HasSubstr("does not rise: 5 us comes after 5 us"));
  std::string many = "1ns";
  for (int i = 2; i <= 33; ++i) many += "," + std::to_string(i) + "ns";
  EXPECT_THAT(parse_round_trips(many).error().message(), HasSubstr("'33ns' is not legal here"));
  for (const char* text : {"", "10", "10g", "G", "0G", "1001T", "1G,,2G"}) EXPECT_FALSE(parse_bandwidths(text)) << text;
  EXPECT_FALSE(parse_bandwidths("1G,1G,1G,1G,1G,1G,1G,1G,1G"));
}

TEST(SweepLists, AreWritten) {
  EXPECT_EQ(format_ns(850), "850 ns");
  EXPECT_EQ(format_ns(12'345), "12.3 us");
  EXPECT_EQ(format_ns(999'900), "1 ms");
  EXPECT_EQ(format_ns(27'500'000), "27.5 ms");
  EXPECT_EQ(format_bandwidth(2.5e9), "2.5 Gb/s");
}

TEST(Sweep, IsTheEmulatorOverEveryLink) {
  const Trace trace = parse();
  const Sweep all = swept(trace);
  EXPECT_EQ(all.local_ns, emulate_local(trace).step_ns);
  EXPECT_DOUBLE_EQ(all.rule_ns, 0.05 * all.local_ns / 2);
  ASSERT_EQ(all.curves.size(), 3U);
  for (const Curve& curve : all.curves) {
    ASSERT_EQ(curve.points.size(), 2U);
    for (const Curve::Point& point : curve.points) {
      EXPECT_EQ(point.step_ns, emulate_remote(trace, {point.rtt_ns, curve.bits_per_second}).step_ns);
      EXPECT_DOUBLE_EQ(point.overhead, point.step_ns / all.local_ns - 1);
    }
    EXPECT_EQ(curve.longest_rtt_ns, longest_round_trip(trace, curve.bits_per_second, 0.05));
    EXPECT_NEAR(curve.between.front().rtt_ns, 1e3, 1e-6);
    EXPECT_NEAR(curve.between.back().rtt_ns, 20e3, 1e-6);
  }
  EXPECT_EQ(all.curves[0].longest_rtt_ns, std::nullopt);  // 10,000 bytes take 80 us
  const Json json(to_json(all));
  EXPECT_EQ((*json.find("curves")->array())[0].find("longest_rtt_ns")->type_name(), "null");
  EXPECT_EQ((*json.find("curves")->array())[1].find("points")->array()->size(), 2U);
}

int count(const topology::XmlElement& root, std::string_view name, std::string_view style) {
  return static_cast<int>(std::ranges::count_if(root.children, [&](const topology::XmlElement& element) {
    const std::string* const its = element.attribute("class");
    return element.name == name && (its != nullptr ? *its : "") == style;
  }));
}

TEST(Sweep, IsDrawn) {
  const Trace trace = parse("<a & b>");
  const auto drawing = topology::parse_xml(draw(swept(trace), trace));
  ASSERT_TRUE(drawing) << drawing.error().to_string();
  EXPECT_EQ(drawing->name, "svg");
  EXPECT_EQ(count(*drawing, "polyline", "curve"), 3);
  EXPECT_EQ(count(*drawing, "line", "curve"), 3);  // the key
  EXPECT_EQ(count(*drawing, "circle", ""), 6);
  EXPECT_EQ(count(*drawing, "line", "bearable"), 1);
  EXPECT_EQ(count(*drawing, "rect", "need"), 1);
  std::string words;
  for (const auto& element : drawing->children) words += element.text + "\n";
  for (const char* said : {"&lt;a &amp; b&gt;: how much longer", "published need", "arXiv 2401.13354", "5 %",
                           "100 Gb/s: within 5 %", "1 Gb/s: more than 5 % with any round trip"}) {
    EXPECT_THAT(words, HasSubstr(said));
  }
  // Curves differ in their dashes, too.
  std::vector<std::string> dashes;
  for (const auto& element : drawing->children) {
    if (element.name == "polyline") dashes.push_back(*element.attribute("stroke-dasharray"));
  }
  std::ranges::sort(dashes);
  EXPECT_EQ(std::ranges::adjacent_find(dashes), dashes.end());
}

TEST(Sweep, IsDrawnWhereThereIsLittleToDraw) {
  for (const char* records : {R"({"op":"synchronize"})", R"({"op":"mark"})", R"({"op":"mark","gap_ns":10000000000})"}) {
    const auto trace = parse_trace(R"({"fairlead_trace":1,"name":"","made":""})" + ("\n" + std::string(records)), "a");
    ASSERT_TRUE(trace);
    const auto drawing = topology::parse_xml(draw(sweep(*trace, {1e3}, {1e9}, {}), *trace));
    ASSERT_TRUE(drawing) << drawing.error().to_string();
    for (const auto& element : drawing->children) {
      for (const auto& [name, value] : element.attributes) {
        EXPECT_EQ(value.find("nan"), std::string::npos) << element.name << " " << name;
        EXPECT_EQ(value.find("inf"), std::string::npos) << element.name << " " << name;
      }
    }
  }
}

}  // namespace
}  // namespace fairlead::bench
