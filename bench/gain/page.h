// What pages of comparisons have in common: HTML with drawings in it, dark on light or light on dark as the reader
// prefers, readable on paper and by keyboard. They fetch nothing and run nothing. Threads: functions without state.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "bench/gain/report.h"

namespace fairlead::bench {

/// What a page says beside the findings that all have.
struct PageParts {
  std::string title;
  std::string story;   // sections between the verdict and the results
  std::string method;  // items of the list of how it was measured
};
[[nodiscard]] std::string page_of(const GainReport& report, const PageParts& parts);

template <typename... Values>
void add(std::string& out, fmt::format_string<Values...> format, Values&&... values) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Values>(values)...);
}

/// What others wrote, as an element's content or an attribute's value.
[[nodiscard]] std::string page_text(std::string_view words);
/// A figure as JSON has it, and as people read it.
[[nodiscard]] std::string page_figure(double value, std::string_view shown);
[[nodiscard]] std::string page_ratio(double value);

/// Begins a drawing of `width` by `height` pixels, whose text is 13 high; `id` is its own in the page. "</svg>\n" ends
/// it.
void begin_drawing(std::string& out, double width, double height, std::string_view id, std::string_view title);

}  // namespace fairlead::bench
