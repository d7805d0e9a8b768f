// Functions of a shared library that is opened at run time, looked up by name into a table of pointers.
// Ownership: the library stays open. Threads: one at a time.
#pragma once

#include <dlfcn.h>

namespace fairlead {

class Symbols {
 public:
  /// `library`: what dlopen gave.
  explicit Symbols(void* library) noexcept : library_(library) {}

  /// Remembers the first that is missing.
  template <typename Function>
  void required(Function& slot, const char* name) noexcept {
    optional(slot, name);
    if (slot == nullptr && missing_ == nullptr) missing_ = name;
  }
  /// Null where it is missing.
  template <typename Function>
  void optional(Function& slot, const char* name) noexcept {
    slot = reinterpret_cast<Function>(::dlsym(library_, name));
  }
  /// Null: all that are required are there.
  [[nodiscard]] const char* missing() const noexcept { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

}  // namespace fairlead
