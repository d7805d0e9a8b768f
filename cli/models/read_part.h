// Reads ranges of a file that somebody may cut meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fairlead/status.h"

namespace fairlead::cli {

/// Where bytes are in a file that stays open.
struct FileRange {
  int fd = -1;
  const std::string* path = nullptr;  // for messages
  std::uint64_t offset = 0, bytes = 0;
  const std::byte* mapped = nullptr;  // where its bytes are in memory, if they are
};

/// Reads bytes of the range from its byte `at` on, as many as fit into `to` or fewer, but one at least; gives how many.
/// Errors: kDataLoss for a file that ends too early, and what reading it gave; they name the file.
Result<std::size_t> read_part(const FileRange& range, std::uint64_t at, std::span<std::byte> to);
/// That the file goes on to the end of the range now: within the page in which it ends, mapped bytes that were cut are
/// 0, which is no fault. Errors as of read_part.
Status check_end(const FileRange& range);

}  // namespace fairlead::cli
