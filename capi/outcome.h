// How every function of the C API ends: with a code, and a sentence that its thread can read afterwards.
// Threads: any; each has a sentence of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "fairlead/fairlead.h"
#include "fairlead/status.h"

namespace fairlead::capi {

/// Keeps the sentence of what is not ok, and gives the code. If there is no memory for the sentence it is a shorter
/// one.
fairlead_code tell(const Status& status) noexcept;

/// kInvalidArgument, "engine is NULL".
[[nodiscard]] Status missing(std::string_view argument);
/// The same, or ok, of an argument that may be NULL where there is nothing of it.
[[nodiscard]] inline Status check_there(const void* argument, std::size_t count, std::string_view name) {
  return argument == nullptr && count > 0 ? missing(name) : Status();
}

/// Runs what a function does. No exception leaves it.
template <typename Do>
fairlead_code outcome(Do&& act) noexcept {
  try {
    return tell(std::forward<Do>(act)());
  } catch (const std::bad_alloc&) {
    return tell({Code::kResourceExhausted, "out of memory"});  // short enough to need none
  } catch (const std::exception& error) {
    return tell({Code::kInternal, error.what()});
  } catch (...) {
    return tell({Code::kInternal, "an exception of no known kind"});
  }
}

/// The same for what gives a value, and cannot fail but for want of memory: then `otherwise`.
template <typename T, typename Do>
T value_of(T otherwise, Do&& act) noexcept {
  T value = otherwise;
  (void)outcome([&] {
    value = std::forward<Do>(act)();
    return Status();
  });
  return value;
}

/// As snprintf: what there is room for, with a NUL, and the length of all.
inline std::size_t put_text(std::string_view from, char* text, std::size_t size) noexcept {
  if (text != nullptr && size > 0) {
    const std::size_t length = from.size() < size ? from.size() : size - 1;
    if (length > 0) std::memcpy(text, from.data(), length);
    text[length] = 0;
  }
  return from.size();
}

/// An enumeration of C's may hold any number. Error: it is none from 0 to `last`.
template <typename Enum>
[[nodiscard]] Status check_enum(Enum value, Enum last, const char* what) {
  if (value >= 0 && value <= last) return {};
  return {Code::kInvalidArgument, std::string(what) + " is " + std::to_string(static_cast<int>(value)) + ": 0 to " +
                                      std::to_string(static_cast<int>(last)) + " there are"};
}
/// And so may flags. Error: there is one that is none.
[[nodiscard]] Status check_access(std::uint32_t access);

/// A text of the caller's; NULL is "".
[[nodiscard]] inline std::string_view text_of(const char* text) noexcept {
  return text != nullptr ? std::string_view(text) : std::string_view();
}

}  // namespace fairlead::capi
