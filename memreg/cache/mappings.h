// What this process has mapped where: /proc/self/maps (proc(5)), as far as the cache needs it.
//
// Threads: any. A look is no snapshot: other threads map and unmap meanwhile.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "memreg/cache/pages.h"

namespace fairlead::memreg::cache {

struct Mapping {
  Range range;
  bool anonymous = false;   // and private: nobody but this process changes which pages lie there
  std::string permissions;  // "rw-p"
  std::string name;         // the file's path, "[heap]"; empty for most anonymous memory

  bool operator==(const Mapping&) const = default;
};

/// The mappings that overlap `range`, or touch it, in the order of their addresses, as the kernel keeps them.
/// Errors: kUnavailable (/proc is not mounted).
Result<std::vector<Mapping>> mappings_near(Range range);

/// The same from all of the file's lines, as kernels before 6.11 need it.
[[nodiscard]] std::vector<Mapping> read_mappings(int maps, Range range);

/// Those of which userfaultfd keeps what is write-protected ("uw" in /proc/self/smaps), this process's own ones as well
/// as those of other users of it. None where the kernel does not say.
[[nodiscard]] std::vector<Range> tracked_mappings();

/// One line of /proc/self/maps. False: it is none.
bool read_mapping(std::string_view line, Mapping& mapping);

/// Neighbours without a hole between them that are anonymous and allow the same become one: the kernel splits what the
/// application mapped at once, for example where a part of it is watched.
[[nodiscard]] std::vector<Mapping> joined(std::vector<Mapping> mappings);

/// ok, or why the whole range is not memory that can be watched: a hole, or a mapping that is not anonymous.
Status check_watchable(std::span<const Mapping> mappings, Range range);

}  // namespace fairlead::memreg::cache
