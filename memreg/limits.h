// Why memory cannot be had: the number that a request met, and what to do. Files are those of this machine, but in
// tests.
#pragma once

#include <cstdint>
#include <string>

#include "base/system/system_files.h"
#include "fairlead/status.h"

namespace fairlead::memreg {

/// Requests below this are not checked beforehand: reading the files takes some 50 us.
inline constexpr std::uint64_t kCheckedBytes = std::uint64_t{16} << 20;

/// ok, or kResourceExhausted where `bytes` that are all to be touched are more than the control groups or the machine
/// can ever hold: touching them would end in the OOM killer. It refuses nothing that could have worked: what is in use
/// now may be given back, and is not counted. Fewer bytes than kCheckedBytes are ok.
Status check_fits(std::uint64_t bytes, const SystemFiles& files = SystemFiles());

enum class Mapped { kMemory, kFile };  // a file of which pages are written back counts against fewer limits

/// For an mmap of `bytes` that failed with `error` (an errno): which limit it met (RLIMIT_AS, RLIMIT_DATA,
/// vm.max_map_count, vm.overcommit_memory), with the remedy: "RLIMIT_AS is ...: raise it with ...". Where none of them
/// explains it, what to look at.
[[nodiscard]] std::string mapping_limit(std::uint64_t bytes, Mapped what, int error,
                                        const SystemFiles& files = SystemFiles());

}  // namespace fairlead::memreg
