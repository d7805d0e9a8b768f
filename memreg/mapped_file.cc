#include "memreg/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>
#include <system_error>
#include <utility>

#include "base/system/mapping_budget.h"
#include "base/unique_fd.h"
#include "memreg/limits.h"

namespace fairlead::memreg {
namespace {

Status failed(std::string_view what, const std::string& path, int error) {
  const std::string why = std::generic_category().message(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return {Code::kNotFound, fmt::format("cannot {} '{}': {}; check the path", what, path, why)};
    case EACCES:
    case EPERM:
    case EROFS:
      return {Code::kPermissionDenied, fmt::format("cannot {} '{}': {}; check its owner and mode", what, path, why)};
    case EISDIR:
      return {Code::kInvalidArgument, fmt::format("cannot {} '{}': it is not a regular file", what, path)};
    case EMFILE:
    case ENFILE:
      return {Code::kResourceExhausted, fmt::format("cannot {} '{}': {}; raise `ulimit -n`", what, path, why)};
    default:
      return {Code::kResourceExhausted, fmt::format("cannot {} '{}': {}", what, path, why)};
  }
}

// Before Linux 6.2 the kernel pins what a device only reads as if the device wrote: a shared mapping without PROT_WRITE
// refuses that (EFAULT), a private one makes the device a copy of the page. Later kernels pin the shared page itself.
bool pins_for_writing() {
  utsname system{};
  int major = 0, minor = 0;
  if (::uname(&system) != 0 || std::sscanf(system.release, "%d.%d", &major, &minor) != 2) return true;
  return major < 6 || (major == 6 && minor < 2);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path, Mode mode) {
  // O_NONBLOCK: opening a FIFO must fail the check below, not wait for a writer.
  const UniqueFd fd(::open(path.c_str(), (mode == Mode::kReadOnly ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return failed("open", path, errno);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return failed("examine", path, errno);
  if (!S_ISREG(info.st_mode)) return failed("map", path, EISDIR);
  return map(fd.get(), static_cast<std::size_t>(info.st_size), path, mode);
}

Result<MappedFile> MappedFile::create(const std::string& path, std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max())) {
    return {Code::kInvalidArgument,
            fmt::format("cannot create '{}': {} bytes is more than a file can hold", path, bytes)};
  }
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!fd) return failed("create", path, errno);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return failed("examine", path, errno);
  if (!S_ISREG(info.st_mode)) return failed("map", path, EISDIR);
  // Reserved now, so that a full disk is an error here and not a SIGBUS in the middle of a transfer.
  const int error = bytes == 0 ? 0 : ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (error == 0) {
    if (auto file = map(fd.get(), bytes, path, Mode::kReadWrite)) return file;
  }
  const int why = error != 0 ? error : ENOMEM;
  ::unlink(path.c_str());
  return {Code::kResourceExhausted,
          fmt::format("cannot reserve {} bytes for '{}': {}; free space or choose another place", bytes, path,
                      std::generic_category().message(why))};
}

Result<MappedFile> MappedFile::map(int fd, std::size_t bytes, const std::string& path, Mode mode) {
  MappedFile file;
  file.path_ = path;
  if (bytes == 0) return file;
  if (const Status room = MappingBudget::own().take(1); !room.ok()) {
    return {room.code(), fmt::format("cannot map {} bytes of '{}': {}", bytes, path, room.message())};
  }
  const int protection = mode == Mode::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  const int sharing = mode == Mode::kReadOnly && pins_for_writing() ? MAP_PRIVATE : MAP_SHARED;
  void* start = ::mmap(nullptr, bytes, protection, sharing, fd, 0);
  if (start == MAP_FAILED) {
    if (const int error = errno; error == ENOMEM) {
      return {Code::kResourceExhausted,
              fmt::format("cannot map {} bytes of '{}': {}; {}", bytes, path, std::generic_category().message(error),
                          mapping_limit(bytes, Mapped::kFile, error))};
    }
    return failed(fmt::format("map {} bytes of", bytes), path, errno);
  }
  file.bytes_ = std::span(static_cast<std::byte*>(start), bytes);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Status MappedFile::sync() const {
  if (bytes_.empty() || ::msync(bytes_.data(), bytes_.size(), MS_SYNC) == 0) return {};
  return {Code::kDataLoss,
          fmt::format("cannot write '{}' to its disk: {}", path_, std::generic_category().message(errno))};
}

}  // namespace fairlead::memreg
