// A keys file of a test's own, which nobody else may read; gone with the object.
#pragma once

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace fairlead::test {

/// A principal's line, whose key is 64 of that digit.
inline std::string keys_line(const std::string& name, char digit) { return name + " " + std::string(64, digit) + "\n"; }

class KeysFile {
 public:
  explicit KeysFile(const std::string& text) {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() / fmt::format("fairlead-keys-{}-{}", ::getpid(), count++);
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), 0600);
  }
  ~KeysFile() { std::filesystem::remove(path_); }
  KeysFile(const KeysFile&) = delete;
  KeysFile& operator=(const KeysFile&) = delete;
  [[nodiscard]] std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fairlead::test
