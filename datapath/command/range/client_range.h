// A session's range of addresses at the client: what is asked for, that this process keeps it free, and what the client
// placed where.
//
// Threads: ask() and mirror() while the session begins, by one; the rest any.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "datapath/command/range/local_range.h"
#include "datapath/command/wire.h"
#include "fairlead/command.h"
#include "fairlead/status.h"

namespace fairlead::datapath::command {

class ClientRange {
 public:
  using Limits = fairlead::command::Limits;
  using SessionOptions = fairlead::command::SessionOptions;

  /// What goes with the hello: addresses that are free here. Errors: there are none.
  Result<HelloMore> ask(const SessionOptions& options);
  /// ok: what the service gave is what was asked for, and kept free here.
  [[nodiscard]] Status mirror(const SessionOptions& options, const Limits& limits);

  /// A place that a command asked for.
  struct Placed {
    std::uint64_t address = 0, bytes = 0;
    fairlead::command::Mark by;
  };
  void add(std::uint64_t handle, const Placed& placed);
  void remove(std::uint64_t handle);
  [[nodiscard]] std::optional<Placed> find(std::uint64_t handle) const;

 private:
  LocalRange local_;
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<std::uint64_t, Placed> placed_;
};

}  // namespace fairlead::datapath::command
