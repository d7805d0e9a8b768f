// The system's own libibverbs behind the drop-in: found once, when a call is first not for softroce.
//
// Threads: any.
#pragma once

#include <cerrno>
#include <type_traits>

namespace fairlead::dropin {

/// A symbol of the system's libibverbs.so.1 (of that version, or the default one where it is null); null where there is
/// no such library or symbol.
[[nodiscard]] void* real_symbol(const char* name, const char* version = nullptr) noexcept;

/// Whether there is one at all, and its path.
[[nodiscard]] const char* real_library_path() noexcept;

/// What a call answers that nobody can take: ENOSYS.
template <typename Answer>
Answer nobody() noexcept {
  errno = ENOSYS;
  if constexpr (std::is_integral_v<Answer>) {
    return static_cast<Answer>(ENOSYS);
  } else if constexpr (!std::is_void_v<Answer>) {
    return Answer{};
  }
}

template <auto* symbol>
struct Forward;
template <typename Answer, typename... Args, Answer (*symbol)(Args...)>
struct Forward<symbol> {
  static Answer call(const char* name, Args... args) {
    static const auto real = reinterpret_cast<Answer (*)(Args...)>(real_symbol(name));
    return real != nullptr ? real(args...) : nobody<Answer>();
  }
};

}  // namespace fairlead::dropin

/// Calls the system's function of this name.
#define FAIRLEAD_FORWARD(name, ...) fairlead::dropin::Forward<&::name>::call(#name __VA_OPT__(, ) __VA_ARGS__)
