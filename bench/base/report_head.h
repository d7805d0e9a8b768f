// What every report begins with.
#pragma once

#include <string_view>

#include "bench/base/json.h"

namespace fairlead::bench {

/// {"schema", "version", "commit", "build_type"}: what it is, and what made it; behind these, the members of `rest`.
[[nodiscard]] Json::Object report_head(std::string_view schema, Json::Object rest = {});

}  // namespace fairlead::bench
