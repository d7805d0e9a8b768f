// The C library's calls through which programs would see softroce's files (sysfs.h), before the C library's own.
// Those that open files are cancellation points, as its own are, and so must not be noexcept.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/system/uncancelled.h"
#include "base/unique_fd.h"
#include "verbs/dropin/sysfs.h"

namespace {

namespace dropin = fairlead::dropin;

template <typename Function>
Function* system_call(const char* name) noexcept {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// A descriptor to read the text from; -1 where memory or descriptors ran out.
int file_of(const std::string& text) noexcept {
  fairlead::UniqueFd fd(::memfd_create("softroce sysfs", MFD_CLOEXEC));
  if (!fd || fairlead::uncancelled::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return -1;
  }
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd.release();
}

// Whether the system, which has just refused a path, has read it and found nothing there. Where it could not read it
// (EFAULT), nobody else may; so it is asked first about every path.
bool found_nothing() noexcept { return errno == ENOENT || errno == ENOTDIR || errno == EACCES; }

// What find() answers; where that is nothing, errno stays as the system set it, or becomes ENOMEM.
template <typename Find>
auto found_by(const Find& find) -> decltype(find()) {
  const int refusal = errno;
  try {
    if (auto found = find()) return found;
    errno = refusal;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return {};
}

// A descriptor of softroce's file where the system has none.
int or_ours(int fd, const char* path) {
  if (fd >= 0 || !found_nothing()) return fd;
  const auto text = found_by([path] { return dropin::sysfs_text(path); });
  return text ? file_of(*text) : -1;
}

std::FILE* or_ours(std::FILE* file, const char* path, const char* mode) {
  if (file != nullptr) return file;
  fairlead::UniqueFd fd(or_ours(-1, path));
  file = fd ? ::fdopen(fd.get(), mode) : nullptr;
  if (file != nullptr) static_cast<void>(fd.release());
  return file;
}

using Open = int(const char*, int, ...);

// The mode is there only where a file may be made.
mode_t mode_of(int flags, va_list arguments) noexcept {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

// What `ask` hears of the path, or of what stands in for it where the system has nothing.
template <typename Ask>
int about(const char* path, const Ask& ask) noexcept {
  const int status = ask(path);
  if (status == 0 || !found_nothing()) return status;
  const char* other = found_by([path] { return dropin::stand_in(path); });
  return other != nullptr ? ask(other) : status;
}

using Realpath = char*(const char*, char*);

char* our_realpath(Realpath* system, const char* path, char* resolved) {
  const auto whole = dropin::sysfs_path(path);
  if (!whole) return nullptr;
  if (dropin::stand_in(whole->c_str()) == nullptr) return system(whole->c_str(), resolved);  // it led out, or nowhere
  return resolved == nullptr ? ::strdup(whole->c_str()) : std::strcpy(resolved, whole->c_str());
}

}  // namespace

// On 64-bit machines there is one struct stat, whatever the call is named. Programs built for a C library before 2.33
// call
// __xstat and its like with the version of that structure.
#define FAIRLEAD_STAT(name)                                                        \
  int name(const char* path, struct stat* facts) noexcept {                        \
    static const auto system = system_call<int(const char*, struct stat*)>(#name); \
    return about(path, [=](const char* at) { return system(at, facts); });         \
  }
#define FAIRLEAD_XSTAT(name)                                                            \
  int name(int version, const char* path, struct stat* facts) noexcept {                \
    static const auto system = system_call<int(int, const char*, struct stat*)>(#name); \
    return about(path, [=](const char* at) { return system(version, at, facts); });     \
  }
#define FAIRLEAD_OPEN(name)                              \
  int name(const char* path, int flags, ...) {           \
    static const auto system = system_call<Open>(#name); \
    va_list arguments;                                   \
    va_start(arguments, flags);                          \
    const mode_t mode = mode_of(flags, arguments);       \
    va_end(arguments);                                   \
    return or_ours(system(path, flags, mode), path);     \
  }
// What _FORTIFY_SOURCE makes of them where no file may be made.
#define FAIRLEAD_OPEN_2(name)                                             \
  int name(const char* path, int flags) {                                 \
    static const auto system = system_call<int(const char*, int)>(#name); \
    return or_ours(system(path, flags), path);                            \
  }
#define FAIRLEAD_FOPEN(name)                                                             \
  std::FILE* name(const char* path, const char* mode) {                                  \
    static const auto system = system_call<std::FILE*(const char*, const char*)>(#name); \
    return or_ours(system(path, mode), path, mode);                                      \
  }

extern "C" {

int access(const char* path, int mode) noexcept {
  static const auto system = system_call<int(const char*, int)>("access");
  return about(path, [=](const char* at) { return system(at, mode); });
}

FAIRLEAD_STAT(stat)
FAIRLEAD_STAT(lstat)
FAIRLEAD_XSTAT(__xstat)
FAIRLEAD_XSTAT(__xstat64)
FAIRLEAD_XSTAT(__lxstat)
FAIRLEAD_XSTAT(__lxstat64)

int stat64(const char* path, struct stat64* facts) noexcept {
  return ::stat(path, reinterpret_cast<struct stat*>(facts));
}
int lstat64(const char* path, struct stat64* facts) noexcept {
  return ::lstat(path, reinterpret_cast<struct stat*>(facts));
}

FAIRLEAD_OPEN(open)
FAIRLEAD_OPEN(open64)
FAIRLEAD_OPEN_2(__open_2)
FAIRLEAD_OPEN_2(__open64_2)
FAIRLEAD_FOPEN(fopen)
FAIRLEAD_FOPEN(fopen64)

char* realpath(const char* path, char* resolved) noexcept {
  static const auto system = system_call<Realpath>("realpath");
  char* const found = system(path, resolved);
  if (found != nullptr || !found_nothing()) return found;
  return found_by([=] { return our_realpath(system, path, resolved); });
}

// As _FORTIFY_SOURCE has it: the room behind `resolved` is known. Too little is the program's end, which the C library
// makes of it.
char* __realpath_chk(const char* path, char* resolved, std::size_t room) noexcept {
  static const auto system = system_call<char*(const char*, char*, std::size_t)>("__realpath_chk");
  return room < PATH_MAX ? system(path, resolved, room) : ::realpath(path, resolved);
}

}  // extern "C"
