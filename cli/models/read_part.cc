#include "cli/models/read_part.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "bench/base/file_output.h"

namespace fairlead::cli {

Result<std::size_t> read_part(const FileRange& range, std::uint64_t at, std::span<std::byte> to) {
  const std::size_t want = std::min<std::uint64_t>(to.size(), range.bytes - at);
  while (true) {
    const ssize_t got = ::pread(range.fd, to.data(), want, static_cast<off_t>(range.offset + at));
    if (got > 0) return static_cast<std::size_t>(got);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return bench::file_error("read", *range.path, errno);
    return Status(Code::kDataLoss,
                  fmt::format("{} ends at byte {}, but had bytes up to {} when it was opened: somebody cut it",
                              *range.path, range.offset + at, range.offset + range.bytes));
  }
}

}  // namespace fairlead::cli
