#include "topology/xml.h"

#include <gmock/gmock.h>

#include <string>

#include "topology/hwloc_versions.h"

namespace fairlead::topology {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string error_of(std::string_view text) {
  const Result<XmlElement> parsed = parse_xml(text);
  if (parsed) return "parsed";
  EXPECT_EQ(parsed.error().code(), Code::kDataLoss) << text;
  return parsed.error().message();
}

TEST(Xml, KeepsElementsAttributesAndText) {
  const Result<XmlElement> root = parse_xml(
      "\xEF\xBB\xBF<?xml version='1.0'?>\n<!-- a -- b --><!DOCTYPE a SYSTEM 'b.dtd'>\n<a x=\"1\" y = "
      "'\"&amp;'><b/>\n<!-- <c> "
      "--><d> 1 2 </d ></a >\n<!-- end -->\n");
  ASSERT_TRUE(root) << root.error().to_string();
  EXPECT_EQ(root->name, "a");
  EXPECT_EQ(*root->attribute("x"), "1");
  EXPECT_EQ(*root->attribute("y"), "&quot;&amp;");
  EXPECT_EQ(root->attribute("z"), nullptr);
  ASSERT_EQ(root->children.size(), 2u);
  EXPECT_EQ(root->children[1].text, " 1 2 ");
  EXPECT_EQ(to_xml(*root), "<a x=\"1\" y=\"&quot;&amp;\">\n  <b/>\n  <d> 1 2 </d>\n</a>\n");
}

TEST(Xml, SaysWhereAndWhat) {
  EXPECT_THAT(error_of(""), HasSubstr("no element"));
  EXPECT_THAT(error_of("\n\nhello"), HasSubstr("line 3: this is not XML"));
  EXPECT_THAT(error_of("<a>\n<b>\n</a>"), HasSubstr("line 3: </a> closes <b>"));
  EXPECT_THAT(error_of("<a><b></b>"), HasSubstr("<a> is not closed: the file is cut off"));
  EXPECT_THAT(error_of("<a x=\"1"), HasSubstr("cut off"));
  EXPECT_THAT(error_of("<a x=1/>"), HasSubstr("not quoted"));
  EXPECT_THAT(error_of("<a x='1' x='2'/>"), HasSubstr("x twice"));
  EXPECT_THAT(error_of("<a x='1'y='2'/>"), HasSubstr("not separated"));
  EXPECT_THAT(error_of("<a x='<'/>"), HasSubstr("must not"));
  EXPECT_THAT(error_of("<a/><b/>"), HasSubstr("follows the root"));
  EXPECT_THAT(error_of("<a><![CDATA[x]]></a>"), HasSubstr("CDATA"));
  EXPECT_THAT(error_of("<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"), HasSubstr("declarations"));
  EXPECT_THAT(error_of("<!-- "), HasSubstr("cut off"));
  EXPECT_THAT(error_of("<"), HasSubstr("cut off"));
}

TEST(Xml, RefusesWhatWouldTakeTheStack) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_THAT(error_of(deep), HasSubstr("nested beyond 256"));
}

TEST(Xml, RefusesWhatWouldTakeTheDay) {
  std::string wide = "<a";
  for (int i = 0; i < 256; ++i) wide += " x" + std::to_string(i) + "=''";
  EXPECT_EQ(error_of(wide + "/>"), "parsed");
  EXPECT_THAT(error_of(wide + " y=''/>"), HasSubstr("<a> has more than 256 attributes"));
}

TEST(HwlocXml, Version3BecomesWhatVersion2Reads) {
  const Result<std::string> text = to_readable_xml(
      "<!-- c --><topology version=\"3.0\"><object type='OSDev' osdev_type='48'/><object type='OSDev' osdev_type='16'/>"
      "<object type='OSDev' osdev_type='12'/><object type='OSDev' osdev_type='4'/><object type='OSDev' osdev_type='1'/>"
      "<object type='OSDev' osdev_type='x'/><info name='a' value='b'/><support name='x'/></topology>");
  ASSERT_TRUE(text) << text.error().to_string();
  EXPECT_THAT(*text, HasSubstr("hwloc2.dtd\">\n<topology version=\"2.0\">"));
  std::string types;
  for (std::size_t at = 0; (at = text->find("osdev_type=\"", at)) != std::string::npos;) types += (*text)[at += 12];
  EXPECT_EQ(types, "325100");  // OpenFabrics, network, coprocessor, GPU, disk, disk
  EXPECT_THAT(*text, Not(HasSubstr("<info")));
  EXPECT_THAT(*text, Not(HasSubstr("<!--")));
}

TEST(HwlocXml, OlderVersionsStayAsTheyAre) {
  EXPECT_THAT(*to_readable_xml("<topology version='2.0'><object osdev_type='2'/></topology>"),
              HasSubstr("osdev_type=\"2\""));
  EXPECT_THAT(*to_readable_xml("<topology><object/></topology>"), HasSubstr("hwloc.dtd\">\n<topology>"));
}

TEST(HwlocXml, OthersAreRefused) {
  EXPECT_EQ(to_readable_xml("<html/>").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(to_readable_xml("<topology version='4.0'/>").status().code(), Code::kVersionMismatch);
  EXPECT_EQ(to_readable_xml("<topology version=''/>").status().code(), Code::kVersionMismatch);
  EXPECT_EQ(to_readable_xml("<topology").status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace fairlead::topology
