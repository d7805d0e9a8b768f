// The file that says a server is ready, and goes with it. A device or a pipe stays.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace fairlead::cli {

class ReadyFile {
 public:
  explicit ReadyFile(std::string path) : path_(std::move(path)) {}
  ~ReadyFile() {
    struct stat info{};
    if (!path_.empty() && ::lstat(path_.c_str(), &info) == 0 && S_ISREG(info.st_mode)) ::unlink(path_.c_str());
  }
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

 private:
  std::string path_;
};

}  // namespace fairlead::cli
