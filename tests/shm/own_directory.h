// A directory of a test's own, which goes with everything in it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "fairlead/config.h"

namespace fairlead::shm {

class OwnDirectory {
 public:
  OwnDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "fairlead-shm-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);  // with mode 0700
    path_ = name;
  }
  OwnDirectory(const OwnDirectory&) = delete;
  OwnDirectory& operator=(const OwnDirectory&) = delete;
  ~OwnDirectory() { std::filesystem::remove_all(path_); }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] ShmConfig config() const { return {.directory = path_}; }
  [[nodiscard]] std::size_t entries() const {
    const std::filesystem::directory_iterator all(path_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

 private:
  std::string path_;
};

}  // namespace fairlead::shm
