// The ways across that a lane has: its endpoints at the engine's devices, and the bytes that prove a path.
//
// Owner: the lane. Threads: the driver, but for what is under "any thread".
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/flow/choice.h"
#include "datapath/lane/lane.h"
#include "datapath/session/session_host.h"
#include "fairlead/config.h"
#include "fairlead/engine.h"
#include "transport/endpoint.h"

namespace fairlead::datapath {

class Transports {
 public:
  Transports(std::size_t number, Lane& lane) noexcept : number_(number), lane_(lane) {}

  // --- any thread
  /// What a lane needs to use a device.
  [[nodiscard]] Result<OpenTransport> prepare(const std::shared_ptr<Device>& device, const Offer& offer);
  /// The next device, by number from 0; the lane uses it once it has adopted it.
  void hand_over(OpenTransport coming);
  /// Before the lane starts: `weight_of` says how much each should carry, when the least of its kind has 1.
  void begin_with(const std::function<double(std::string_view)>& weight_of);
  /// What was open at close() stays as it was.
  [[nodiscard]] std::vector<TransportStats> stats() const;

  // --- driver
  /// Takes what was handed over.
  void adopt();
  /// Forgets them all; no path is left.
  void close();

  [[nodiscard]] std::vector<OpenTransport>& all() noexcept { return open_; }
  [[nodiscard]] std::vector<Offer> offers() const;

  /// Those with paths, and `everyone` now and then: a completion of the last path's, a stranger's connection.
  bool poll(bool everyone) noexcept;
  [[nodiscard]] bool arm() noexcept;
  void disarm() noexcept;
  void settle() noexcept;
  /// How long all of them may be left alone, at most `limit`.
  [[nodiscard]] std::chrono::milliseconds sleep_limit(std::chrono::milliseconds limit) const noexcept;

 private:
  TransportStats stats_of(const OpenTransport& open) const;

  const std::size_t number_;  // the lane's
  Lane& lane_;
  mutable std::mutex counting_;  // taken by the driver when open_ gets longer or shorter, and by who reads its counters
  std::vector<TransportStats> closed_;  // guarded by it, as the next
  std::vector<OpenTransport> coming_;
  std::vector<OpenTransport> open_;
};

}  // namespace fairlead::datapath
