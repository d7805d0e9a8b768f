#include "metrics/discovery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace fairlead::metrics {
namespace {

constexpr std::string_view kPrefix = "fairlead-", kSuffix = ".json";

Status failed(const char* what, const std::string& path) {
  return {errno == EACCES || errno == EROFS ? Code::kPermissionDenied : Code::kUnavailable,
          fmt::format("cannot {} {}: {}", what, path, std::strerror(errno))};
}

constexpr std::size_t kRandom = 6;  // characters of a name
constexpr std::string_view kBegin = "[{\"targets\": [\"", kProcess = "\", \"process\": \"";

// What an operator wrote there stays, whatever it is called.
bool is_ours(const std::string& name, int fd) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
      name.size() != kPrefix.size() + kRandom + kSuffix.size()) {
    return false;
  }
  std::array<char, 4096> bytes;
  const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), 0);
  const std::string_view text(bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  return text.starts_with(kBegin) && text.find(kProcess) != std::string_view::npos;
}

// Of processes that have ended: nobody holds their locks.
void remove_left_behind(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const UniqueFd fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd && is_ours(name, fd.get()) && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
  }
}

std::string in_json(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ') {
      quoted += fmt::format("\\u{:04x}", c);
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted;
}

std::string reachable(std::string_view address) {
  for (const std::string_view all : {"[::]:", "0.0.0.0:"}) {
    if (address.starts_with(all)) return fmt::format("127.0.0.1:{}", address.substr(all.size()));
  }
  return std::string(address);
}

}  // namespace

Result<Discovery> Discovery::announce(const std::string& folder, std::string_view address, std::string_view service) {
  if (::mkdir(folder.c_str(), 0755) == 0) {
    // Whatever the umask says: others are to read what lies there.
    if (::chmod(folder.c_str(), 0755) != 0) return failed("open to all", folder);
  } else if (errno != EEXIST) {
    return failed("create", folder);
  }
  remove_left_behind(folder);
  std::string draft = fmt::format("{}/{}XXXXXX.new", folder, kPrefix);
  UniqueFd fd(::mkostemps(draft.data(), 4, O_CLOEXEC));
  if (!fd) return failed("create a file in", folder);
  const std::string text =
      fmt::format("[{{\"targets\": [\"{}\"], \"labels\": {{\"service\": \"{}\", \"process\": \"{}\"}}}}]\n",
                  reachable(address), in_json(service), ::getpid());
  std::string path = draft.substr(0, draft.size() - 4) + std::string(kSuffix);
  const bool written = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && ::fchmod(fd.get(), 0644) == 0 &&
                       ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       std::rename(draft.c_str(), path.c_str()) == 0;
  if (written) return Discovery(std::move(path), std::move(fd));
  Status status = failed("write", draft);
  ::unlink(draft.c_str());
  return status;
}

Discovery::~Discovery() {
  if (lock_ && fork_mark_.is_mine()) ::unlink(path_.c_str());
}

}  // namespace fairlead::metrics
