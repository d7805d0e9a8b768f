#include "cli/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "datapath/base/unique_fd.h"

namespace fairlead::cli {
namespace {

Status failed(const char* what, const std::string& path, int error) {
  const Code code = error == ENOSPC || error == EFBIG ? Code::kResourceExhausted : Code::kPermissionDenied;
  return {code, fmt::format("cannot {} {}: {}", what, path, std::strerror(error))};
}

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<OutputFile> OutputFile::create(const std::string& path, std::string_view prefix, std::uint64_t bytes) {
  struct stat existing{};
  if (::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {  // renaming over it would end a device
    return Status(Code::kInvalidArgument, path + " is not a regular file; name one that may be created or replaced");
  }
  const std::string temporary = fmt::format("{}.{}.partial", path, ::getpid());
  const UniqueFd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) return failed("create", temporary, errno);
  OutputFile file(path, temporary);
  // Room now: a full disk under a mapping would be a SIGBUS later.
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    return failed(fmt::format("make room for {} bytes in", bytes).c_str(), temporary, error);
  }
  if (::pwrite(fd.get(), prefix.data(), prefix.size(), 0) != static_cast<ssize_t>(prefix.size())) {
    return failed("write", temporary, errno);
  }
  return file;
}

Status OutputFile::commit() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("create", path_, errno);
  temporary_.clear();
  return {};
}

}  // namespace fairlead::cli
