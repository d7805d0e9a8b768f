// The system's CUDA driver as a DriverApi, opened at run time: the same binary runs where there is none.
#pragma once

#include "fairlead/status.h"
#include "gpu/driver/driver_api.h"

namespace fairlead::gpu {

/// Opens `library` and fills `api` from it; both stay as long as the process. Errors: kNotFound (no such library, with
/// the package to install), kUnimplemented (a function that is missing from it: the driver is too old).
Status load_driver(const char* library, DriverApi& api);

}  // namespace fairlead::gpu
