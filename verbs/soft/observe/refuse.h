// How the verbs refuse: errno set, the reason logged and kept for who asks.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "fairlead/log.h"

namespace fairlead::soft {

void note_refusal(LogLevel level, std::string_view what);
/// Why a verb of this thread was refused last; empty if none was since the last call.
[[nodiscard]] std::string take_refusal();

/// A refusal is often the answer to a question (how much inline data?), so it is no error of itself.
inline std::nullptr_t refuse(int error, std::string_view what) {
  note_refusal(LogLevel::kInfo, what);
  errno = error;
  return nullptr;
}

/// The same for verbs that answer an errno.
inline int refuse_with(int error, std::string_view what) {
  refuse(error, what);
  return error;
}

/// What the verb needs and the system does not give: the limit and the remedy, where it is threads or descriptors.
[[nodiscard]] std::string what_lacks(std::string_view verb, const std::system_error& error);

/// Out of memory, threads or descriptors is an errno, not an exception through a C interface.
template <typename Make>
auto make_or_errno(std::string_view verb, Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM, fmt::format("{}: out of memory", verb));
  } catch (const std::system_error& error) {
    return refuse(error.code().value(), what_lacks(verb, error));
  }
}

}  // namespace fairlead::soft
