// A session's range of addresses at the client: what is asked for, that this process keeps it free, and what the client
// placed where.
//
// Threads: ask() and mirror() while the session begins, by one; the rest any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "datapath/command/range/local_range.h"
#include "datapath/command/wire.h"
#include "fairlead/command.h"
#include "fairlead/status.h"

namespace fairlead::datapath::command {

class ClientRange {
 public:
  using Limits = fairlead::command::Limits;
  using SessionOptions = fairlead::command::SessionOptions;

  /// What goes with the hello: addresses that are free here, for each device that there may be. Errors: there are none.
  Result<HelloMore> ask(const SessionOptions& options);
  /// ok: what the service gave of each device is what was asked for, apart from the others', and kept free here.
  [[nodiscard]] Status mirror(const SessionOptions& options, std::span<const Limits> devices);

  /// A place that a command asked for.
  struct Placed {
    std::uint64_t address = 0, bytes = 0;
    fairlead::command::Mark by;
    std::optional<fairlead::command::Mark> released{};  // by that command, which may be passed over
  };
  /// What a device's handle names.
  struct Name {
    std::uint32_t device = 0;
    std::uint64_t handle = 0;
    bool operator==(const Name&) const = default;
  };
  void add(const Name& name, const Placed& placed);
  /// By that command. Where it is passed over the memory stays placed.
  void release(const Name& name, const fairlead::command::Mark& by);
  enum class Fate : std::uint8_t { kOpen, kRan, kPassedOver };
  /// Forgets what was released by commands that ran; it looks at some of them.
  void settle(const std::function<Fate(const fairlead::command::Mark&)>& fate_of);
  [[nodiscard]] std::optional<Placed> find(const Name& name) const;

 private:
  struct Hash {
    std::size_t operator()(const Name& name) const noexcept {
      return std::hash<std::uint64_t>()(name.handle * kMaxDevices + name.device);
    }
  };
  std::vector<LocalRange> local_;
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<Name, Placed, Hash> placed_;
  std::deque<std::pair<Name, fairlead::command::Mark>> releases_;  // that have yet to run
};

}  // namespace fairlead::datapath::command
