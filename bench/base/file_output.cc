#include "bench/base/file_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace fairlead::bench {
namespace {

Status failed(const char* what, const std::string& path) { return file_error(what, path, errno); }

Code code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
      return Code::kInvalidArgument;
    case EEXIST:
      return Code::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return Code::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    default:
      return Code::kUnavailable;
  }
}

bool write_all(std::FILE* file, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

}  // namespace

Status file_error(std::string_view what, std::string_view path, int error) {
  return {code_of(error), fmt::format("cannot {} {}: {}", what, path, std::strerror(error))};
}

Status check_writable(const std::string& path) {
  if (path == "-") return {};
  struct stat existing{};
  if (::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    if (S_ISDIR(existing.st_mode)) return file_error("write", path, EISDIR);
    return ::access(path.c_str(), W_OK) == 0 ? Status() : failed("write", path);
  }
  const std::string beside = fmt::format("{}.{}.tmp", path, ::getpid());
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return failed("create", path);
  ::close(fd);
  ::unlink(beside.c_str());
  return {};
}

Status write_text(const std::string& path, std::string_view text) {
  if (path == "-") return write_all(stdout, text) ? Status() : failed("write to", "standard output");
  struct stat existing{};
  const bool replaceable = ::stat(path.c_str(), &existing) != 0 || S_ISREG(existing.st_mode);
  // A device or a pipe (/dev/null, /dev/stdout) is written to, never replaced.
  const std::string beside = !replaceable ? path : fmt::format("{}.{}.tmp", path, ::getpid());
  std::FILE* const file = std::fopen(beside.c_str(), "we");
  if (file == nullptr) return failed("create", path);
  const bool written = write_all(file, text);
  if (std::fclose(file) != 0 || !written) {
    Status status = failed("write", path);
    if (replaceable) ::unlink(beside.c_str());
    return status;
  }
  if (replaceable && std::rename(beside.c_str(), path.c_str()) != 0) {
    Status status = failed("replace", path);
    ::unlink(beside.c_str());
    return status;
  }
  return {};
}

}  // namespace fairlead::bench
