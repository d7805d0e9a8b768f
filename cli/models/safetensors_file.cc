#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"
#include "bench/base/file_output.h"
#include "cli/models/safetensors.h"

namespace fairlead::cli {
namespace {

// Reads until `buffer` is full or the file ends; the number of bytes, or -1.
ssize_t read_some(int fd, std::span<std::byte> buffer) {
  std::size_t have = 0;
  while (have < buffer.size()) {
    const ssize_t got = ::pread(fd, buffer.data() + have, buffer.size() - have, static_cast<off_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return static_cast<ssize_t>(have);
}

}  // namespace

Result<SafetensorsHeader> read_safetensors(const std::string& path, UniqueFd* file) {
  // A pipe without a writer would be waited for, though it is refused below.
  UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!opened) return bench::file_error("open", path, errno);
  Result<SafetensorsHeader> header = read_safetensors(opened.get(), path);
  if (file != nullptr) *file = std::move(opened);
  return header;
}

Result<SafetensorsHeader> read_safetensors(int fd, const std::string& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return bench::file_error("look at", path, errno);
  if (!S_ISREG(info.st_mode)) return Status(Code::kInvalidArgument, path + " is no regular file");
  const auto size = static_cast<std::uint64_t>(info.st_size);

  std::vector<std::byte> head(std::min<std::uint64_t>(size, 64 * 1024));
  ssize_t got = read_some(fd, head);
  std::uint64_t length = 0;
  if (got >= 8) std::memcpy(&length, head.data(), sizeof length);  // a guess of what to read; the parser checks it
  if (got >= 0 && length <= kMaxSafetensorsHeader && length + 8 > head.size() && length + 8 <= size) {
    head.resize(length + 8);
    got = read_some(fd, head);
  }
  if (got < 0) return bench::file_error("read", path, errno);
  head.resize(static_cast<std::size_t>(got));
  return parse_safetensors(head, size, path);
}

}  // namespace fairlead::cli
