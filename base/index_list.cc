#include "base/index_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace fairlead {
namespace {

constexpr unsigned kLast = (1u << 20) - 1;  // a range of a broken file must not fill the memory

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool take_number(std::string_view& text, unsigned* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc() || *value > kLast) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

Result<std::vector<unsigned>> parse_index_list(std::string_view text) {
  const std::string_view whole = trimmed(text);
  std::string_view rest = whole;
  std::vector<unsigned> indexes;
  const Status wrong(Code::kInvalidArgument, fmt::format("'{}' is no list of indexes such as 0-3,8", whole));
  while (!rest.empty()) {
    unsigned first = 0;
    if (!take_number(rest, &first)) return wrong;
    unsigned last = first;
    if (rest.starts_with('-')) {
      rest.remove_prefix(1);
      if (!take_number(rest, &last) || last < first) return wrong;
    }
    for (unsigned index = first; index <= last; ++index) indexes.push_back(index);
    if (rest.empty()) break;
    if (!rest.starts_with(',') || rest.size() == 1) return wrong;
    rest.remove_prefix(1);
  }
  std::sort(indexes.begin(), indexes.end());
  indexes.erase(std::unique(indexes.begin(), indexes.end()), indexes.end());
  return indexes;
}

std::string to_index_list(std::span<const unsigned> indexes) {
  if (indexes.empty()) return "none";
  std::vector<unsigned> sorted(indexes.begin(), indexes.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::string text;
  for (std::size_t begin = 0; begin < sorted.size();) {
    std::size_t end = begin;
    while (end + 1 < sorted.size() && sorted[end + 1] == sorted[end] + 1) ++end;
    if (!text.empty()) text += ',';
    text += end == begin ? fmt::format("{}", sorted[begin]) : fmt::format("{}-{}", sorted[begin], sorted[end]);
    begin = end + 1;
  }
  return text;
}

}  // namespace fairlead
