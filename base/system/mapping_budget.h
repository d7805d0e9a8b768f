// Whether this process may have some more mappings, asked before it makes them.
//
// At vm.max_map_count not only mmap fails: so does any munmap that would cut a mapping in two, that of free() included,
// and of whoever else lives in the process. So who makes many mappings stays a little below. To count them reads a
// file as long as there are mappings; that is done again only when a quarter of what was left then has been taken.
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/system/system_files.h"
#include "fairlead/status.h"

namespace fairlead {

class MappingBudget {
 public:
  explicit MappingBudget(SystemFiles files = SystemFiles()) : files_(std::move(files)) {}

  /// ok, or kResourceExhausted where `mappings` more would leave fewer than kSpare: names both numbers and the remedy.
  /// Where the files cannot be read it is ok.
  Status take(std::uint32_t mappings);

  /// That of this process.
  static MappingBudget& own();

  static constexpr std::uint64_t kSpare = 32;  // for those that come and go, and that others must be able to cut

 private:
  const SystemFiles files_;
  std::atomic<std::int64_t> left_{0};  // may be taken before they are counted again
};

}  // namespace fairlead
