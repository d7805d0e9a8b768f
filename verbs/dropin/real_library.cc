#include "verbs/dropin/real_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/loader/search_folders.h"
#include "fairlead/log.h"

namespace fairlead::dropin {
namespace {

constexpr const char* kName = "libibverbs.so.1";
constexpr const char* kOverride = "FAIRLEAD_SYSTEM_IBVERBS";

// Our own facade goes by the same name; it shows itself by what it is linked to.
void* open_other(const char* path) noexcept {
  void* handle = ::dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (handle != nullptr && ::dlsym(handle, "fairlead_dropin_symbol") == nullptr) return handle;
  if (handle != nullptr) ::dlclose(handle);
  return nullptr;
}

// Where the loader would look had our facade not taken the name.
void* search() {
  for (const std::string& folder : loader_search_folders()) {
    if (void* found = open_other((folder + "/" + kName).c_str())) return found;
  }
  return nullptr;
}

void* open_real() {
  if (const char* path = std::getenv(kOverride); path != nullptr && *path != '\0') {
    void* handle = open_other(path);
    if (handle == nullptr) {
      log(LogLevel::kError, std::string(kOverride) + "=" + path + " cannot be loaded; the system's devices are hidden");
    }
    return handle;
  }
  void* handle = open_other(kName);
  return handle != nullptr ? handle : search();
}

void* real_library() noexcept {
  static void* const handle = open_real();
  return handle;
}

}  // namespace

void* real_symbol(const char* name, const char* version) noexcept {
  void* library = real_library();
  if (library == nullptr) return nullptr;
  return version != nullptr ? ::dlvsym(library, name, version) : ::dlsym(library, name);
}

const char* real_library_path() noexcept {
  void* library = real_library();
  link_map* map = nullptr;
  if (library == nullptr || ::dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return nullptr;
  return map->l_name;
}

}  // namespace fairlead::dropin
