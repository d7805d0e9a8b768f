#include "bench/base/file_output.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace fairlead::bench {
namespace {

Status failed(const char* what, const std::string& path) {
  return {Code::kPermissionDenied, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno))};
}

bool write_all(std::FILE* file, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

}  // namespace

Status write_text(const std::string& path, std::string_view text) {
  if (path == "-") return write_all(stdout, text) ? Status() : failed("write to", "standard output");
  struct stat existing{};
  const bool replaceable = ::stat(path.c_str(), &existing) != 0 || S_ISREG(existing.st_mode);
  // A device or a pipe (/dev/null, /dev/stdout) is written to, never replaced.
  const std::string beside = !replaceable ? path : fmt::format("{}.{}.tmp", path, ::getpid());
  std::FILE* const file = std::fopen(beside.c_str(), "we");
  if (file == nullptr) return failed("create", beside);
  const bool written = write_all(file, text);
  if (std::fclose(file) != 0 || !written) {
    Status status = failed("write", beside);
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
