// What this process holds of the machine's memory.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace fairlead {

inline std::size_t resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") return status >> word, std::stoul(word);
  }
  return 0;
}

}  // namespace fairlead
