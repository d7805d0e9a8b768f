// The system's libibverbs as a VerbsApi, opened at run time: the same binary runs where rdma-core is not installed.
#pragma once

#include <string_view>

#include "fairlead/status.h"
#include "verbs/provider/verbs_api.h"

namespace fairlead::verbs {

/// The table, filled once per process and never closed. Errors: kNotFound (no libibverbs.so.1, with the package to
/// install), kUnimplemented (a function that is missing from it). Threads: any.
Result<const VerbsApi*> system_api();

/// Whether a kernel of that release ("6.1.0-18-amd64") gives a forked child copies of pinned pages, so that the parent
/// keeps those that devices use. Others give the parent new ones when it writes, and devices go on with the old.
[[nodiscard]] bool copies_pinned_pages(std::string_view release) noexcept;

}  // namespace fairlead::verbs
