// Lists in one text: "tcp,verbs:mlx5_0".
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead {

/// The words between the commas; of "" none.
[[nodiscard]] inline std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    words.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

}  // namespace fairlead
