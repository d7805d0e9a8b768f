// Text compared byte for byte with a file. FAIRLEAD_UPDATE_GOLDEN=1 writes the file anew; look at the difference before
// it is committed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace fairlead {

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void expect_golden(const std::string& path, const std::string& text) {
  if (std::getenv("FAIRLEAD_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(file_text(path), text) << path << " says otherwise (FAIRLEAD_UPDATE_GOLDEN=1 writes it anew)";
}

}  // namespace fairlead
