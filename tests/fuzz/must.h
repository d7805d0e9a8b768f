// What has to hold whatever the input is: if it does not, the program says where and ends.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace fairlead::fuzz {

inline void must(bool holds, const std::source_location& where = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: this must hold\n", where.file_name(), where.line());
  std::abort();
}

}  // namespace fairlead::fuzz
