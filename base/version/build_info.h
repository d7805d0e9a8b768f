// What this binary was built from. Constants of the configure step: the commit is the one checked out then.
#pragma once

#include <string_view>

namespace fairlead {

struct BuildInfo {
  std::string_view version;     // "0.1.0"
  std::string_view commit;      // 12 hexadecimal digits, or "unknown" outside a git checkout
  std::string_view build_type;  // "Release", "Dev"
  std::string_view sanitizers;  // "address,undefined", "thread" or ""
  std::string_view compiler;    // "GNU 12.2.0"
};

[[nodiscard]] const BuildInfo& build_info() noexcept;

}  // namespace fairlead
