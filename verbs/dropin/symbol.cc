// How the versioned facade reaches this library and, behind it, the system's.
#include <dlfcn.h>

#include "verbs/dropin/real_library.h"

namespace {

// By path, because a program may hold a global symbol of the same name that comes first.
void* this_library() noexcept {
  static void* const handle = [] {
    Dl_info info{};
    void* self = nullptr;
    if (::dladdr(reinterpret_cast<void*>(&this_library), &info) != 0) {
      self = ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    return self;
  }();
  return handle;
}

}  // namespace

extern "C" void* fairlead_dropin_symbol(const char* name, const char* version, bool system_only) noexcept {
  void* ours = system_only || this_library() == nullptr ? nullptr : ::dlsym(this_library(), name);
  return ours != nullptr ? ours : fairlead::dropin::real_symbol(name, version);
}
