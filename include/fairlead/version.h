// Which Fairlead this is. The build takes its version from here.
//
// Before 1.0 a new minor version may change the API and the ABI; the inline namespace and the library's SOVERSION
// change with the ABI. Fairlead's wire protocol has a version of its own.
#pragma once

#define FAIRLEAD_VERSION_MAJOR 0
#define FAIRLEAD_VERSION_MINOR 1
#define FAIRLEAD_VERSION_PATCH 0
/// One number to compare: 10203 is 1.2.3.
#define FAIRLEAD_VERSION (FAIRLEAD_VERSION_MAJOR * 10000 + FAIRLEAD_VERSION_MINOR * 100 + FAIRLEAD_VERSION_PATCH)

#if defined(__cplusplus) && __cplusplus >= 202002L  // C, and older C++ by way of fairlead.h, take the numbers alone
#include <string_view>

#include "fairlead/export.h"

namespace fairlead::inline v0 {

/// "0.1.0": of the library that runs, which may be newer than the headers it was compiled with.
[[nodiscard]] FAIRLEAD_EXPORT std::string_view version() noexcept;

}  // namespace fairlead::inline v0
#endif
