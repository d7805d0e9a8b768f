// The file that says a server is ready, and goes with it. A server holds a lock (flock) on its own, which ends with its
// process however that ends: a file without is of a server that was killed. A device or a pipe stays.
// Threads: one.
#pragma once

#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace fairlead::cli {

class ReadyFile {
 public:
  ReadyFile() noexcept = default;
  /// Of the file that was just written there.
  explicit ReadyFile(std::string path);
  /// Removes it, if it is still there, and not another server's.
  ~ReadyFile();
  ReadyFile(ReadyFile&&) noexcept = default;
  ReadyFile& operator=(ReadyFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    return *this;
  }

  /// Removes what a server left there that is no more.
  static void remove_stale(const std::string& path);

 private:
  std::string path_;
  UniqueFd fd_;  // of the file; none: there is nothing to remove
};

}  // namespace fairlead::cli
