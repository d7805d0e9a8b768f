// What a server says of itself at /status: one JSON document, which `fairlead status` reads. docs/metrics.md has its
// fields. From any thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "bench/base/json.h"
#include "fairlead/engine.h"

namespace fairlead::cli {

inline constexpr std::string_view kStatusSchema = "fairlead.server/1";

struct StatusFacts {
  std::string service, state, listen;  // "serve"; "starting", "ready" or "draining"
  std::chrono::steady_clock::time_point since;
};

/// `own` adds what the service has.
[[nodiscard]] std::string status_page(const StatusFacts& facts, const Engine& engine,
                                      const std::function<void(bench::Json::Object&)>& own);

/// The engine's peers, where a service knows no more of its clients.
[[nodiscard]] bench::Json peers_of(const Engine& engine);

}  // namespace fairlead::cli
