// Two devices joined in memory, on a clock that only the test moves: no sleeping, the same run every time.
#pragma once

#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/port/fault_port.h"

namespace fairlead::soft::test {

class Simulation {
 public:
  explicit Simulation(const FaultConfig& faults_a = {}, const FaultConfig& faults_b = {},
                      const EndpointOptions& options = {}) {
    auto [left, right] = LoopbackPort::make_pair();
    a = std::make_unique<Endpoint>(new Device(entry_, Profile::kFull, clock, wrap(std::move(left), faults_a)), options);
    b = std::make_unique<Endpoint>(new Device(entry_, Profile::kFull, clock, wrap(std::move(right), faults_b)),
                                   options);
  }

  /// Polls both ends, moving the clock a little each time. False when `limit` of simulated time went by first.
  bool run_until(const std::function<bool()>& finished, Nanos limit = 60 * kSecond) {
    const Nanos end = clock.now() + limit;
    while (!finished()) {
      if (clock.now() > end) return false;
      step();
    }
    return true;
  }
  void run_for(Nanos time) {
    const Nanos end = clock.now() + time;
    while (clock.now() < end) step();
  }

  ManualClock clock;
  std::unique_ptr<Endpoint> a;
  std::unique_ptr<Endpoint> b;
  Nanos step_time = 20 * kMicrosecond;

 private:
  static std::unique_ptr<PacketPort> wrap(std::unique_ptr<PacketPort> port, const FaultConfig& faults) {
    if (!faults.any()) return port;
    return std::make_unique<FaultPort>(std::move(port), faults);
  }
  void step() {
    a->poll();
    b->poll();
    clock.advance(step_time);
  }

  ibv_device entry_{};
};

}  // namespace fairlead::soft::test
