// Brings pages in before somebody touches them who is not to wait for a disk, or for memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/guarded.h"

namespace fairlead {

/// Makes the pages of the range present, for writing or only for reading. False when there is no memory in a part of
/// it. May wait for the disk, where a file is mapped. Threads: any.
inline bool prefetch(const std::byte* start, std::size_t length, bool writes) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(start) & ~(page - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(start) + length;
  auto* pages = reinterpret_cast<void*>(first);  // NOLINT(performance-no-int-to-ptr)
  if (::madvise(pages, end - first, writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) return true;
  return errno == EINVAL && readable(start, length);  // a kernel before 5.14
}

}  // namespace fairlead
