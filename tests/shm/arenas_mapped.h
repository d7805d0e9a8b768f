// How many mappings of arenas this process has, its own and peers'.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace fairlead::shm {

inline std::ptrdiff_t arenas_mapped() {
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("fairlead-arena") != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace fairlead::shm
