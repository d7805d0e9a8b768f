// From a work completion's status to Fairlead's Code and a reason in words (IBTA 11.6.2, ibv_poll_cq(3)).
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

#include "fairlead/status.h"

namespace fairlead::verbs {

/// How a request that ended with `status` ends for its user.
[[nodiscard]] Code code_of(ibv_wc_status status) noexcept;

/// A sentence without a full stop: what it means and, where there is one, the remedy.
[[nodiscard]] std::string_view explain(ibv_wc_status status) noexcept;

}  // namespace fairlead::verbs
