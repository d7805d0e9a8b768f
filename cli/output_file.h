// A file that appears whole or not at all: written beside its name and renamed when it is finished. SIGINT, SIGTERM and
// SIGHUP remove what was written before they end the process (SIGKILL leaves it). Threads: one; one file at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::cli {

/// Move-only; removes what was written unless commit() was called.
class OutputFile {
 public:
  /// Whether create() could begin: a folder that can be written to, and a name that is free or a regular file's.
  [[nodiscard]] static Status check(const std::string& path);
  /// Creates the file with `prefix` at its beginning and room for `bytes` in all, on disk. What is there and is no
  /// regular file (a device, a pipe) is refused. Errors name the file.
  static Result<OutputFile> create(const std::string& path, std::string_view prefix, std::uint64_t bytes);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Where it is for now.
  [[nodiscard]] const std::string& temporary_path() const noexcept { return temporary_; }
  Status commit();

 private:
  OutputFile(std::string path, std::string temporary) : path_(std::move(path)), temporary_(std::move(temporary)) {}
  std::string path_;
  std::string temporary_;  // empty: nothing to remove
};

}  // namespace fairlead::cli
