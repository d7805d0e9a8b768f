// The C library's calls through which programs would see softroce's files (sysfs.h), before the C library's own.
// Those that open files are cancellation points, as its own are, and so must not be noexcept.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

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

using Open = int(const char*, int, ...);

int open_or(Open* system, const char* path, int flags, mode_t mode) {
  const auto text = dropin::sysfs_text(path);
  return text ? file_of(*text) : system(path, flags, mode);
}

// The mode is there only where a file may be made.
mode_t mode_of(int flags, va_list arguments) noexcept {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

using Fopen = std::FILE*(const char*, const char*);

std::FILE* fopen_or(Fopen* system, const char* path, const char* mode) {
  const auto text = dropin::sysfs_text(path);
  if (!text) return system(path, mode);
  fairlead::UniqueFd fd(file_of(*text));
  std::FILE* file = fd ? ::fdopen(fd.get(), mode) : nullptr;
  if (file != nullptr) static_cast<void>(fd.release());
  return file;
}

const char* or_stand_in(const char* path) noexcept {
  const char* other = dropin::stand_in(path);
  return other != nullptr ? other : path;
}

}  // namespace

// On 64-bit machines there is one struct stat, whatever the call is named. Programs built for a C library before 2.33
// call
// __xstat and its like with the version of that structure.
#define FAIRLEAD_STAT(name)                                                        \
  int name(const char* path, struct stat* facts) noexcept {                        \
    static const auto system = system_call<int(const char*, struct stat*)>(#name); \
    return system(or_stand_in(path), facts);                                       \
  }
#define FAIRLEAD_XSTAT(name)                                                            \
  int name(int version, const char* path, struct stat* facts) noexcept {                \
    static const auto system = system_call<int(int, const char*, struct stat*)>(#name); \
    return system(version, or_stand_in(path), facts);                                   \
  }

extern "C" {

int access(const char* path, int mode) noexcept {
  static const auto system = system_call<int(const char*, int)>("access");
  return system(or_stand_in(path), mode);
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

int open(const char* path, int flags, ...) {
  static const auto system = system_call<Open>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_or(system, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  static const auto system = system_call<Open>("open64");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_or(system, path, flags, mode);
}

std::FILE* fopen(const char* path, const char* mode) {
  static const auto system = system_call<Fopen>("fopen");
  return fopen_or(system, path, mode);
}

std::FILE* fopen64(const char* path, const char* mode) {
  static const auto system = system_call<Fopen>("fopen64");
  return fopen_or(system, path, mode);
}

char* realpath(const char* path, char* resolved) noexcept {
  static const auto system = system_call<char*(const char*, char*)>("realpath");
  const auto whole = dropin::sysfs_path(path);
  if (!whole) return system(path, resolved);
  if (dropin::stand_in(whole->c_str()) == nullptr) return system(whole->c_str(), resolved);  // it led out, or nowhere
  return resolved == nullptr ? ::strdup(whole->c_str()) : std::strcpy(resolved, whole->c_str());
}

}  // extern "C"
