// The C library's calls through which programs would see softroce's files (sysfs.h), before the C library's own.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>

#include "datapath/base/unique_fd.h"
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
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return -1;
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd.release();
}

using Open = int(const char*, int, ...);

int open_or(Open* system, const char* path, int flags, mode_t mode) noexcept {
  const auto text = dropin::sysfs_text(path);
  return text ? file_of(*text) : system(path, flags, mode);
}

// The mode is there only where a file may be made.
mode_t mode_of(int flags, va_list arguments) noexcept {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

extern "C" {

int access(const char* path, int mode) noexcept {
  static const auto system = system_call<int(const char*, int)>("access");
  return system(dropin::is_character_device(path) ? "/dev/null" : path, mode);
}

int stat(const char* path, struct stat* facts) noexcept {
  static const auto system = system_call<int(const char*, struct stat*)>("stat");
  return system(dropin::is_character_device(path) ? "/dev/null" : path, facts);
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

}  // extern "C"
