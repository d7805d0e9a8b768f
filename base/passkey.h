// Shows that the bearer belongs to the library (fairlead/handle.h).
#pragma once

#include "fairlead/handle.h"

namespace fairlead::inline v0 {
class Passkey {};
}  // namespace fairlead::inline v0
