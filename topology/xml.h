// The part of XML that hwloc writes, read strictly: elements, attributes, text, comments.
//
// What a document says is kept as it was written (entities are not expanded), so that it can be written again. Nothing
// outside of the document is ever opened. Threads: values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::topology {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;  // names are unique
  std::string text;                                             // outside of children, in one piece
  std::vector<XmlElement> children;

  /// Null where there is none.
  [[nodiscard]] const std::string* attribute(std::string_view wanted) const noexcept;
  [[nodiscard]] std::string* attribute(std::string_view wanted) noexcept;
};

/// The root of the one document in `text`. Errors: kDataLoss with line and reason: not well-formed, cut off, nested
/// beyond 256, declarations within <!DOCTYPE, more than 1,048,576 elements, or 256 attributes of one.
[[nodiscard]] Result<XmlElement> parse_xml(std::string_view text);
/// `element` and all below it, indented. The text of an element that has children is left out.
[[nodiscard]] std::string to_xml(const XmlElement& element);

}  // namespace fairlead::topology
