// What became of the files that a measurement was to write. Threads: one.
#pragma once

#include <span>

#include "cli/base/console.h"
#include "fairlead/status.h"

namespace fairlead::cli {

/// Tells of each that could not be written; whether there was none.
[[nodiscard]] inline bool all_written(std::span<const Status> files, Console& console) {
  bool all = true;
  for (const Status& file : files) {
    if (file.ok()) continue;
    console.error(file);
    all = false;
  }
  return all;
}

}  // namespace fairlead::cli
