// Copies past the caches: for what is too large to be found there afterwards, so that it does not push out what is.
#pragma once

#include <cstddef>

namespace fairlead {

/// As memcpy. On return all that was written is visible to who is told of it. Where the CPU knows no such stores it is
/// memcpy. Touches both ranges in order; may be left by siglongjmp (guarded.h).
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace fairlead
