#include "cli/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "bench/base/file_output.h"
#include "datapath/base/unique_fd.h"

namespace fairlead::cli {
namespace {

using bench::file_error;

constexpr int kEndings[] = {SIGINT, SIGTERM, SIGHUP};

std::string g_path;                             // changes only while the handler is told of nothing
std::atomic<const char*> g_to_remove{nullptr};  // for the handler
static_assert(std::atomic<const char*>::is_always_lock_free);

// The signal's own action has come back (SA_RESETHAND) and ends the process when this returns.
extern "C" void remove_and_end(int signal) {
  if (const char* path = g_to_remove.load()) ::unlink(path);
  static_cast<void>(::raise(signal));
}

void remove_on_signals(const std::string& path) {
  g_to_remove.store(nullptr);
  g_path = path;
  g_to_remove.store(g_path.c_str());
  for (const int ending : kEndings) {
    struct sigaction now{};
    if (::sigaction(ending, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;  // nohup ignores some
    struct sigaction action{};
    action.sa_handler = &remove_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(ending, &action, nullptr);
  }
}

void forget() { g_to_remove.store(nullptr); }

}  // namespace

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}

OutputFile::~OutputFile() {
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  forget();
}

Status OutputFile::check(const std::string& path) {
  struct stat existing{};
  if (::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {  // renaming over it would end a device
    return {Code::kInvalidArgument,
            fmt::format("{} is {}, not a regular file; name one that may be created or replaced", path,
                        S_ISDIR(existing.st_mode) ? "a directory" : "a device, a pipe or a socket")};
  }
  return bench::check_writable(path);
}

Result<OutputFile> OutputFile::create(const std::string& path, std::string_view prefix, std::uint64_t bytes) {
  if (Status status = check(path); !status.ok()) return status;
  const std::string temporary = fmt::format("{}.{}.partial", path, ::getpid());
  remove_on_signals(temporary);
  const UniqueFd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) {
    const int error = errno;
    forget();
    return file_error("create", temporary, error);
  }
  OutputFile file(path, temporary);
  // Room now: a full disk under a mapping would be a SIGBUS later.
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)); error != 0) {
    return file_error(fmt::format("make room for {} bytes in", bytes), temporary, error);
  }
  if (::pwrite(fd.get(), prefix.data(), prefix.size(), 0) != static_cast<ssize_t>(prefix.size())) {
    return file_error("write", temporary, errno);
  }
  return file;
}

Status OutputFile::commit() {
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return file_error("create", path_, errno);
  temporary_.clear();
  forget();
  return {};
}

}  // namespace fairlead::cli
