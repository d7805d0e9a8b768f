// A regular file as memory, shared with the page cache: sending from it, or receiving into it, needs no copy.
//
// The size is that of the moment of mapping. If someone truncates the file while it is mapped, touching the lost pages
// raises SIGBUS, or ends as an error where a system call (EFAULT) or softroce does it. Growing it does no harm and
// shows nothing new.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fairlead/status.h"

namespace fairlead::memreg {

/// Move-only; unmapped when its owner goes. The file is closed as soon as it is mapped.
class MappedFile {
 public:
  enum class Mode { kReadOnly, kReadWrite };

  /// An existing regular file. An empty file gives an empty span. Errors: kNotFound, kPermissionDenied,
  /// kInvalidArgument (not a regular file), kResourceExhausted; all name the file.
  static Result<MappedFile> open(const std::string& path, Mode mode);
  /// A new file (or an old one, its content lost) of `bytes` zeroed bytes whose blocks are reserved, read-write.
  /// Errors: as open, and kResourceExhausted when the file system has no room; the file is removed again then.
  static Result<MappedFile> create(const std::string& path, std::size_t bytes);

  MappedFile() noexcept = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Writing through it is undefined (SIGSEGV) for kReadOnly.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Waits until what was written is on the disk. Errors: kDataLoss, naming the file.
  Status sync() const;

 private:
  static Result<MappedFile> map(int fd, std::size_t bytes, const std::string& path, Mode mode);

  std::span<std::byte> bytes_;
  std::string path_;
};

}  // namespace fairlead::memreg
