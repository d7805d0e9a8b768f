// What our drawings share: SVG that is dark on light or light on dark as the viewer prefers, and dark on light on
// paper. Threads: functions without state.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace fairlead {

/// How many inks there are: var(--ink0), var(--ink1) and so on in what follows svg_head(), colours that can be told
/// apart by people who see fewer of them.
inline constexpr std::size_t kSvgInks = 8;

/// Beside --ground, --ink, --frame and the inks: colours, as "--memory: #e6f2e6;", on light and on dark ground; and
/// rules.
struct SvgStyle {
  std::string_view light, dark, rules;
};

/// The beginning of a document, up to and with its ground: `title` is escaped here. "</svg>\n" ends it.
[[nodiscard]] std::string svg_head(double width, double height, std::string_view title, const SvgStyle& style);

/// `text` as an attribute's value or an element's content, in XML.
[[nodiscard]] std::string escape_xml(std::string_view text);

}  // namespace fairlead
