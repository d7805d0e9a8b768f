// A file, or a folder of files, that appears whole or not at all: written beside its name and renamed when it is
// finished and on the disk. SIGINT, SIGTERM and SIGHUP remove what was written before they end the process (SIGKILL
// leaves it). Threads: one; one output at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "fairlead/status.h"

namespace fairlead::cli {

/// Move-only; removes what was written unless commit() was called.
class Output {
 public:
  struct File {
    std::string path;  // where it is for now
    UniqueFd fd;
  };

  /// Whether create() could begin: a folder that can be written to, and a name that is free, a regular file's or an
  /// empty folder's.
  [[nodiscard]] static Status check(const std::string& path);
  /// A folder if `folder`, else a file. A symbolic link stays: what it points to is created or replaced. What is there
  /// and is no regular file (or empty folder, for a folder) is refused. Errors name the file.
  static Result<Output> create(const std::string& path, bool folder);
  Output(Output&& other) noexcept;
  Output& operator=(Output&&) = delete;
  ~Output();

  /// The file, or `name` in the folder, with `prefix` at its beginning and room for `bytes` in all, on disk.
  Result<const File*> add(std::string_view name, std::string_view prefix, std::uint64_t bytes);
  /// Waits until all is on the disk, then gives it its name.
  Status commit();

 private:
  Output(std::string path, std::string temporary, bool folder, std::optional<mode_t> mode)
      : path_(std::move(path)), temporary_(std::move(temporary)), folder_(folder), mode_(mode) {}
  std::string path_;
  std::string temporary_;  // empty: nothing to remove
  bool folder_;
  std::optional<mode_t> mode_;  // of the file that it replaces
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace fairlead::cli
