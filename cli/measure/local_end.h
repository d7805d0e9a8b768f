// The passive end of a measurement between two processes: here, as a process of its own, or elsewhere, as this program.
#pragma once

#include <string>
#include <utility>

#include "bench/net/local_target.h"
#include "bench/net/local_wire.h"
#include "cli/base/console.h"
#include "fairlead/config.h"

namespace fairlead::cli {

/// For --local: ends with this object. Make it before any engine: it forks.
class LocalEnd {
 public:
  /// Of `config`, with `transports`, of which the initiator takes one or the other. `config` gets the initiator's end
  /// of the wire. Errors: those of LocalWire::make and LocalTarget::start.
  static Result<LocalEnd> start(EngineConfig& config, const std::string& transports,
                                const bench::LocalTarget::Serve& serve = bench::LocalTarget::measurements());

  [[nodiscard]] const std::string& address() const noexcept { return target_.address(); }

 private:
  LocalEnd(bench::LocalWire wire, bench::LocalTarget target) : wire_(std::move(wire)), target_(std::move(target)) {}
  bench::LocalWire wire_;  // the target goes first
  bench::LocalTarget target_;
};

/// For --server: listens at `address` and serves measurements, with `once` until the first initiator has gone. The exit
/// code. `memory`: where what it gives lies. `metrics`: where they are served meanwhile; empty: nowhere.
[[nodiscard]] int serve_measurements(EngineConfig config, const std::string& address, bool once, bench::Place memory,
                                     Console& console, const std::string& metrics = {});

}  // namespace fairlead::cli
