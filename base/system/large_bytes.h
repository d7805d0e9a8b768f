// Large vectors of bytes that are used again. Memory of some hundred kilobytes that is freed goes back to the system,
// and comes again page by page: for messages that come one behind the other that takes as long as copying them.
//
// A stock of the process, bounded; what was used last is given first, as it is in the caches. Threads: any.
#pragma once

#include <cstddef>
#include <vector>

namespace fairlead {

/// What is smaller is no business of the stock.
inline constexpr std::size_t kLargeBytes = std::size_t{32} << 10;

/// Empty, with room for so many.
[[nodiscard]] std::vector<std::byte> take_large(std::size_t bytes);
/// Of any size: it is kept, or freed.
void give_large(std::vector<std::byte>&& bytes) noexcept;

}  // namespace fairlead
