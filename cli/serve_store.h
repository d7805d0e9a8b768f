// The models of `serve --store`, when the server begins.
#pragma once

#include <functional>

#include "cli/base/console.h"
#include "cli/models/model_disk.h"
#include "cli/push_server.h"
#include "cli/server/front.h"

namespace fairlead::cli {

/// Loads and checks what is there, as much as the store has room for, the newest before older ones. What is damaged is
/// named and set aside, what does not fit is named and left where it is. Errors: the folder cannot be read; kCancelled
/// once stop(), which is asked again and again, says so, with how many there are.
Status load_models(ModelDisk& disk, ModelStore& store, ServeCounters& counters, Front& front, Console& console,
                   const std::function<bool()>& stop);

}  // namespace fairlead::cli
