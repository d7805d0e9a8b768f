#include "bench/base/file_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/system/random64.h"

namespace fairlead::bench {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel's

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

bool is_in_proc(const std::filesystem::path& path) {
  struct statfs system{};
  return ::statfs(path.parent_path().c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

/// From link to link of the last component, to one of which `ends` holds or to what is none.
template <typename Ends>
std::filesystem::path follow_links(std::filesystem::path path, const Ends& ends) {
  std::error_code error;
  for (int i = 0; i < kMaxLinks && std::filesystem::is_symlink(path, error) && !ends(path); ++i) {
    path = path.parent_path() / std::filesystem::read_symlink(path, error);  // an absolute one replaces the folder
  }
  return path;
}

/// Whether the path leads through what /proc has of open files: the one behind it may have any name, or none.
bool is_open_already(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path at = follow_links(path, is_in_proc);
  return std::filesystem::is_symlink(at, error) && is_in_proc(at);
}

/// Where a file's text goes: beside what is to be replaced, or nowhere else.
struct Place {
  bool replaces;
  std::string path;            // that is replaced, or written to
  std::string beside;          // the name until then, which nobody knows before
  std::optional<mode_t> mode;  // of what is replaced
};

Place place_of(const std::string& path) {
  struct stat existing{};
  const bool is_other = ::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode);
  if (is_other || is_open_already(path)) return {false, path, {}, {}};
  const std::string replaced = behind_links(path);
  return {true, replaced, fmt::format("{}.{:016x}.tmp", replaced, random64()), mode_of(replaced)};
}

}  // namespace

std::optional<mode_t> mode_of(const std::string& path) {
  struct stat existing{};
  if (::stat(path.c_str(), &existing) != 0) return std::nullopt;
  return existing.st_mode & 0777;
}

UniqueFd create_to_replace(const std::string& path, std::optional<mode_t> replaced) {
  const mode_t mode = replaced ? S_IRUSR | S_IWUSR : 0666;
  return UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
}

bool take_mode(int fd, std::optional<mode_t> replaced) noexcept { return !replaced || ::fchmod(fd, *replaced) == 0; }

std::string behind_links(const std::string& path) {
  return follow_links(path, [](const std::filesystem::path&) { return false; }).string();
}

Status file_error(std::string_view what, std::string_view path, int error) {
  const bool makes = what == "create";
  const std::string_view remedy = makes && error == ENOENT   ? "; make its folder, or name another file"
                                  : makes && error == EACCES ? "; name a file in a folder that this user may write to"
                                                             : "";
  return {code_of(error), fmt::format("cannot {} {}: {}{}", what, path, std::strerror(error), remedy)};
}

Status check_writable(const std::string& path) {
  if (path == "-") return {};
  const Place place = place_of(path);
  if (!place.replaces) {
    if (std::filesystem::is_directory(path)) return file_error("write", path, EISDIR);
    return ::access(path.c_str(), W_OK) == 0 ? Status() : failed("write", path);
  }
  const UniqueFd fd = create_to_replace(place.beside, place.mode);
  if (!fd) return failed("create", path);
  ::unlink(place.beside.c_str());
  return {};
}

Status write_text(const std::string& path, std::string_view text) {
  if (path == "-") return write_all(stdout, text) ? Status() : failed("write to", "standard output");
  const Place place = place_of(path);
  // Behind what is in an open file already.
  UniqueFd fd = place.replaces ? create_to_replace(place.beside, place.mode)
                               : UniqueFd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return failed("create", path);
  std::FILE* const file = ::fdopen(fd.get(), place.replaces ? "w" : "a");
  if (file == nullptr) return failed("create", path);
  (void)fd.release();
  const bool written = write_all(file, text) && take_mode(::fileno(file), place.mode);
  if (std::fclose(file) != 0 || !written) {
    Status status = failed("write", path);
    if (place.replaces) ::unlink(place.beside.c_str());
    return status;
  }
  if (place.replaces && std::rename(place.beside.c_str(), place.path.c_str()) != 0) {
    Status status = failed("replace", path);
    ::unlink(place.beside.c_str());
    return status;
  }
  return {};
}

}  // namespace fairlead::bench
