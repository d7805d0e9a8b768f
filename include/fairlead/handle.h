// What the handles have in common: each is a counted reference to an object of the library's.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "fairlead/export.h"

namespace fairlead::inline v0 {

/// Only the library knows what it is, so only the library can look behind a handle.
class Passkey;

/// Copies refer to the same object. Threads: distinct handles may be used from different threads, and one handle by
/// several that do not assign to it.
class FAIRLEAD_EXPORT Handle {
 public:
  Handle() noexcept = default;
  Handle(const Passkey&, std::shared_ptr<void> object) noexcept : object_(std::move(object)) {}

  [[nodiscard]] bool valid() const noexcept { return object_ != nullptr; }
  /// Equal for handles of one object.
  [[nodiscard]] std::size_t hash() const noexcept { return std::hash<const void*>()(object_.get()); }
  [[nodiscard]] const std::shared_ptr<void>& object(const Passkey&) const noexcept { return object_; }

 protected:
  [[nodiscard]] bool is_same(const Handle& other) const noexcept { return object_ == other.object_; }

 private:
  std::shared_ptr<void> object_;
};

}  // namespace fairlead::inline v0
