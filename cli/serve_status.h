// What `fairlead serve` says at /status beside its engine: clients and what they do, and models. From any thread.
#pragma once

#include "bench/base/json.h"
#include "cli/push_server.h"

namespace fairlead::cli {

void add_serve_status(bench::Json::Object& document, const PushServer& server, const ServeCounters& counters,
                      const ModelStore& store);

}  // namespace fairlead::cli
