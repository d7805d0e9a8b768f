#include "base/svg.h"

#include <gmock/gmock.h>

namespace fairlead {
namespace {

using testing::HasSubstr;

TEST(Svg, TextIsEscaped) {
  EXPECT_EQ(escape_xml("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
  EXPECT_EQ(escape_xml(std::string_view("\0\x1b", 2)), "??");
}

TEST(Svg, HeadHasBothGroundsAndTheTitleEscaped) {
  const std::string head = svg_head(100, 50, "<b>", {"--a: #111111;", "--a: #222222;", ".x { stroke: var(--a); }\n"});
  EXPECT_THAT(head, HasSubstr("<title>&lt;b&gt;</title>"));
  EXPECT_THAT(head, HasSubstr("viewBox=\"0 0 100 50\""));
  const std::size_t dark = head.find("@media screen and (prefers-color-scheme: dark)");
  ASSERT_NE(dark, std::string::npos);  // of the screen alone: paper is light
  EXPECT_LT(head.find("--a: #111111;"), dark);
  EXPECT_GT(head.find("--a: #222222;"), dark);
  EXPECT_THAT(head, HasSubstr(".x { stroke: var(--a); }\n</style>"));
  for (std::size_t ink = 0; ink < kSvgInks; ++ink) EXPECT_THAT(head, HasSubstr("--ink" + std::to_string(ink) + ": #"));
}

}  // namespace
}  // namespace fairlead
