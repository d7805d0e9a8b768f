// The system's libibverbs as a VerbsApi, opened at run time: the same binary runs where rdma-core is not installed.
#pragma once

#include "fairlead/status.h"
#include "verbs/provider/verbs_api.h"

namespace fairlead::verbs {

/// The table, filled once per process and never closed. Errors: kNotFound (no libibverbs.so.1, with the package to
/// install), kUnimplemented (a function that is missing from it). Threads: any.
Result<const VerbsApi*> system_api();

}  // namespace fairlead::verbs
