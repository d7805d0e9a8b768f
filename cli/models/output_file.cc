#include "cli/models/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/system/random64.h"
#include "bench/base/file_output.h"

namespace fairlead::cli {
namespace {

using bench::file_error;

constexpr int kEndings[] = {SIGINT, SIGTERM, SIGHUP};

// What the handler removes, in this order; ends with null. They change only while it is told of nothing.
std::vector<std::string> g_paths;
std::vector<const char*> g_list;
std::atomic<const char* const*> g_to_remove{nullptr};
static_assert(std::atomic<const char* const*>::is_always_lock_free);

// The signal's own action has come back (SA_RESETHAND) and ends the process when this returns.
extern "C" void remove_and_end(int signal) {
  if (const char* const* path = g_to_remove.load()) {
    for (; *path != nullptr; ++path) {
      if (::unlink(*path) != 0) ::rmdir(*path);
    }
  }
  static_cast<void>(::raise(signal));
  if (::getpid() == 1) ::_exit(128 + signal);  // in a container: the system keeps its first process from ending so
}

// In front of those before it: a folder goes after its files.
void remove_on_signals(const std::string& path) {
  g_to_remove.store(nullptr);
  g_paths.insert(g_paths.begin(), path);
  g_list.clear();
  for (const std::string& one : g_paths) g_list.push_back(one.c_str());
  g_list.push_back(nullptr);
  g_to_remove.store(g_list.data());
  for (const int ending : kEndings) {
    struct sigaction now{};
    if (::sigaction(ending, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;  // nohup ignores some
    struct sigaction action{};
    action.sa_handler = &remove_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(ending, &action, nullptr);
  }
}

void forget() {
  g_to_remove.store(nullptr);
  g_paths.clear();
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool is_empty_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_empty(path, error) && !error;
}

Status sync_folder_of(const std::filesystem::path& path) {
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot (EINVAL): the name is then as safe as they make it.
  if (fd && (::fsync(fd.get()) == 0 || errno == EINVAL)) return {};
  return file_error("write to the disk", folder, errno);
}

}  // namespace

Output::Output(Output&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      folder_(other.folder_),
      mode_(other.mode_),
      files_(std::move(other.files_)) {}

Output::~Output() {
  if (temporary_.empty()) return;
  for (const auto& file : files_) ::unlink(file->path.c_str());
  if (folder_) ::rmdir(temporary_.c_str());
  forget();
}

Status Output::check(const std::string& path) {
  struct stat existing{};
  if (::stat(path.c_str(), &existing) != 0 || S_ISREG(existing.st_mode)) {
    return bench::check_writable(without_slashes(path));
  }
  if (S_ISDIR(existing.st_mode) && is_empty_folder(path)) return {};
  // Renaming over it would end a device, and a folder's files are not ours to remove.
  return {
      Code::kInvalidArgument,
      fmt::format("{} is {}, not a regular file; name one that may be created or replaced, or a new or empty folder "
                  "for a model of several files",
                  path, S_ISDIR(existing.st_mode) ? "a directory" : "a device, a pipe or a socket")};
}

Result<Output> Output::create(const std::string& path, bool folder) {
  if (Status status = check(path); !status.ok()) return status;
  std::string target = bench::behind_links(without_slashes(path));
  struct stat existing{};
  if (::stat(target.c_str(), &existing) == 0 && S_ISDIR(existing.st_mode) != folder) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is {}, but the model has {}; name another", path, folder ? "a file" : "a directory",
                              folder ? "several files and needs a folder" : "one file"));
  }
  // Not by the process, whose number another has in another container, or had before it was killed.
  const std::string temporary = fmt::format("{}.{:016x}.partial", target, random64());
  if (folder) {
    if (::mkdir(temporary.c_str(), 0777) != 0) return file_error("create", temporary, errno);
    remove_on_signals(temporary);
  }
  const std::optional<mode_t> mode = folder ? std::nullopt : bench::mode_of(target);
  return Output(std::move(target), temporary, folder, mode);
}

Result<const Output::File*> Output::add(std::string_view name, std::string_view prefix, std::uint64_t bytes) {
  const std::string path = folder_ ? fmt::format("{}/{}", temporary_, name) : temporary_;
  UniqueFd fd = bench::create_to_replace(path, mode_);
  if (!fd) return file_error("create", path, errno);
  remove_on_signals(path);
  files_.push_back(std::make_unique<File>(File{path, std::move(fd)}));
  const File& file = *files_.back();
  // Room now: a full disk under a mapping would be a SIGBUS later.
  const int error = bytes == 0 ? 0 : ::posix_fallocate(file.fd.get(), 0, static_cast<off_t>(bytes));
  if (error != 0) return file_error(fmt::format("make room for {} bytes in", bytes), path, error);
  if (::pwrite(file.fd.get(), prefix.data(), prefix.size(), 0) != static_cast<ssize_t>(prefix.size())) {
    return file_error("write", path, errno);
  }
  return &file;
}

Status Output::commit() {
  // The bytes before the name: after a crash there is what was there before, or all of it.
  for (const auto& file : files_) {
    if (!bench::take_mode(file->fd.get(), mode_)) return file_error("set the mode of", file->path, errno);
    if (::fsync(file->fd.get()) != 0) return file_error("write to the disk", file->path, errno);
  }
  if (folder_) {
    if (Status status = sync_folder_of(temporary_ + "/."); !status.ok()) return status;
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return file_error("create", path_, errno);
  temporary_.clear();
  forget();
  return sync_folder_of(path_);
}

}  // namespace fairlead::cli
