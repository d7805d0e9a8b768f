// How the rest of the house gets shared memory as a Device.
#pragma once

#include <memory>
#include <string>

#include "fairlead/config.h"
#include "fairlead/status.h"
#include "transport/device.h"

namespace fairlead::shm {

/// A device whose endpoints listen in a directory of this user's. Errors: those of find_place() (meeting/place.h).
Result<std::unique_ptr<datapath::Device>> open_device(const ShmConfig& config);

/// Where processes would find each other, for people: a directory. Errors: the same.
Result<std::string> meeting_place(const ShmConfig& config);

}  // namespace fairlead::shm
