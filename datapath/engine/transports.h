// The ways across that an engine has open: devices, the lane's endpoints at them, and the bytes that prove a path.
//
// Owner: the engine. Threads: the driver, from the first round of the lane on, but for stats().
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "datapath/flow/choice.h"
#include "datapath/lane/lane.h"
#include "datapath/region/regions.h"
#include "datapath/session/session_host.h"
#include "fairlead/config.h"
#include "fairlead/engine.h"
#include "transport/endpoint.h"

namespace fairlead::datapath {

class Transports {
 public:
  Transports(RegionTable& regions, Lane& lane) noexcept : regions_(regions), lane_(lane) {}

  /// What the configuration asks for at once. Errors: what must be there is not.
  Status open_all(const EngineConfig& config);
  /// What the peer's offers ask for and the configuration allows. What cannot be opened is logged.
  void open_for_peer(const std::vector<Offer>& theirs, const EngineConfig& config);
  /// Forgets them all; no path is left. Deregisters what the table holds.
  void close();

  [[nodiscard]] std::vector<OpenTransport>& all() noexcept { return open_; }
  [[nodiscard]] std::vector<Offer> offers() const;
  /// Any thread. What was open at close() stays as it was.
  [[nodiscard]] std::vector<TransportStats> stats() const;
  /// Our eight bytes that are written into peers' probes.
  [[nodiscard]] LocalSegment probe_source(std::size_t transport) const noexcept;

  /// Those with paths, and `everyone` now and then: a completion of the last path's, a stranger's connection.
  bool poll(bool everyone) noexcept;
  [[nodiscard]] bool arm() noexcept;
  /// How long all of them may be left alone, at most `limit`.
  [[nodiscard]] std::chrono::milliseconds sleep_limit(std::chrono::milliseconds limit) const noexcept;

 private:
  static constexpr std::size_t kProbeBytes = 8;

  Status open(const std::string& name, const EngineConfig& config);

  RegionTable& regions_;
  Lane& lane_;
  mutable std::mutex counting_;  // taken by the driver when open_ gets longer or shorter, and by who reads its counters
  std::vector<TransportStats> closed_;  // guarded by it
  std::vector<OpenTransport> open_;
  std::array<std::byte, 2 * kProbeBytes> probe_memory_{};  // the target of peers' probes, the source of ours
  std::vector<Registration> probe_registrations_;          // by transport
};

}  // namespace fairlead::datapath
