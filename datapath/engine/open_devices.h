// The devices of an engine, which its lanes share: opened, known to the region table, with an endpoint for each lane.
//
// Owner: the engine. Threads: any; one at a time opens.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "datapath/engine/line_limit.h"
#include "datapath/engine/transports.h"
#include "datapath/flow/choice.h"
#include "datapath/region/regions.h"
#include "fairlead/config.h"
#include "transport/device.h"

namespace fairlead::datapath {

class OpenDevices {
 public:
  explicit OpenDevices(RegionTable& regions) noexcept : regions_(regions) {}

  /// Before the first is opened: who is given an endpoint of each. The lanes' transports outlive it, or close().
  void add_lane(Transports& lane) { lanes_.push_back(&lane); }
  /// What the configuration asks for at once. Errors: what must be there is not.
  Status open_all(const EngineConfig& config);
  /// What the peer's offers ask for and the configuration allows, if it is not open. What cannot be opened is logged,
  /// and not tried for some seconds, whoever comes.
  void open_for_peer(const std::vector<Offer>& theirs, const EngineConfig& config);
  /// Those that are open, in order of preference.
  [[nodiscard]] std::vector<Offer> offers();
  /// Deregisters what the table holds. The lanes have closed their endpoints.
  void close();

 private:
  Status open(const std::string& name, const EngineConfig& config);

  RegionTable& regions_;
  std::vector<Transports*> lanes_;
  std::mutex opening_;  // guards what follows
  struct Open {
    std::shared_ptr<Device> device;
    Offer offer;
  };
  std::vector<Open> open_;
  std::optional<LineLimit::Clock::time_point> failed_at_;  // for a peer
  LineLimit failures_said_{std::chrono::minutes(1)};
};

}  // namespace fairlead::datapath
