// The graphs of a session at the server: what it may have of them, and their records as commands. What becomes of those
// is the executor's.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "datapath/command/codec.h"
#include "fairlead/command_service.h"

namespace fairlead::datapath::command {

class ServerGraphs {
 public:
  using Outcome = fairlead::command::Outcome;
  using Executor = fairlead::command::Executor;

  /// Of all graphs together.
  ServerGraphs(std::uint64_t most_records, std::uint64_t most_bytes) noexcept
      : most_records_(most_records), most_bytes_(most_bytes) {}

  /// `records`: what the client sent for it.
  Outcome make(Executor& executor, const GraphBody& body, Bytes records);
  Outcome release(Executor& executor, std::uint64_t handle);

 private:
  struct Size {
    std::uint64_t records = 0, bytes = 0;
  };

  const std::uint64_t most_records_, most_bytes_;
  Size all_;
  std::unordered_map<std::uint64_t, Size> sizes_;  // by handle
};

}  // namespace fairlead::datapath::command
