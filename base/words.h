// Lists in one text: "tcp,verbs:mlx5_0".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fairlead {

/// The words between the commas; of "" none.
[[nodiscard]] inline std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  if (list.empty()) return words;
  for (std::size_t begin = 0, end = 0; end != list.npos; begin = end + 1) {
    end = list.find(',', begin);
    words.emplace_back(list.substr(begin, end - begin));
  }
  return words;
}

}  // namespace fairlead
