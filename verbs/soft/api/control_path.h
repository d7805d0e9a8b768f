// The verbs of the control path, as VerbsApi wants them. Semantics and errno: the man page of each.
#pragma once

#include "verbs/provider/verbs_api.h"

namespace fairlead::soft {

/// Fills in every entry that concerns an open context; the device list is soft.cc's.
void add_control_path(verbs::VerbsApi& api) noexcept;

}  // namespace fairlead::soft
