// One of a session's devices at the server: its executor, and what is known of it.
//
// Owns the executor, and with it all that the session has there. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "datapath/command/graph/server_graphs.h"
#include "fairlead/command_service.h"

namespace fairlead::datapath::command {

struct ServerDevice {
  std::uint32_t number = 0;  // at the service
  ServerGraphs graphs;
  std::unique_ptr<fairlead::command::Executor> executor;
  fairlead::command::ExecutorLimits limits = executor->limits();
  fairlead::command::AddressRange range{};  // that clients place memory in
  bool late = executor->is_asynchronous();  // it works by itself
  bool takes_modules = limits.modules != 0;
  std::optional<fairlead::command::Outcome> lost{};  // its context is
  std::uint64_t asked = 0;                           // the function that was asked for last; 0: none
  bool is_short = false;                             // what it was

  [[nodiscard]] std::uint32_t bit() const noexcept { return std::uint32_t{1} << number; }
};

}  // namespace fairlead::datapath::command
