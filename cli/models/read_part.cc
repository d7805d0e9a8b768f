#include "cli/models/read_part.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "bench/base/file_output.h"

namespace fairlead::cli {
namespace {

Status cut(const FileRange& range, std::uint64_t end) {
  return {Code::kDataLoss, fmt::format("{} ends at byte {}, but had bytes up to {} when it was opened: somebody cut it",
                                       *range.path, end, range.offset + range.bytes)};
}

}  // namespace

Result<std::size_t> read_part(const FileRange& range, std::uint64_t at, std::span<std::byte> to) {
  const std::size_t want = std::min<std::uint64_t>(to.size(), range.bytes - at);
  while (true) {
    const ssize_t got = ::pread(range.fd, to.data(), want, static_cast<off_t>(range.offset + at));
    if (got > 0) return static_cast<std::size_t>(got);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return bench::file_error("read", *range.path, errno);
    return cut(range, range.offset + at);
  }
}

Status check_end(const FileRange& range) {
  struct stat now{};
  if (::fstat(range.fd, &now) != 0) return bench::file_error("read", *range.path, errno);
  const auto end = static_cast<std::uint64_t>(now.st_size);
  return end >= range.offset + range.bytes ? Status() : cut(range, end);
}

}  // namespace fairlead::cli
