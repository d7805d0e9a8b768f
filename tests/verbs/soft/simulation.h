// Two devices joined in memory, on a clock that only the test moves: no sleeping, the same run every time.
//
// Packets cross as such, or, where the tests run over memif (over_memif()), in Ethernet frames between ports that own
// their wire: all but the driver of a port over DPDK. So they do where what is urgent is to have a way of its own.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "tests/verbs/soft/endpoint.h"
#include "tests/verbs/soft/segment.h"
#include "verbs/soft/port/frame/frame_port.h"
#include "verbs/soft/port/wrap/fault_port.h"

namespace fairlead::soft::test {

enum class Ways : std::uint8_t { kOne, kTwo };

class Simulation {
  Segment segment_{.stations = {}, .seen = {}, .keep = false};  // outlives the ends

 public:
  explicit Simulation(const FaultConfig& faults_a = {}, const FaultConfig& faults_b = {},
                      const EndpointOptions& options = {}, Ways ways = Ways::kOne) {
    segment_.two_ways = ways == Ways::kTwo;
    const bool frames = segment_.two_ways || fairlead::test::over_memif();
    auto [left, right] = frames ? frame_ports() : loopback_ports();
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
  using Ports = std::pair<std::unique_ptr<PacketPort>, std::unique_ptr<PacketPort>>;

  static Ports loopback_ports() { return LoopbackPort::make_pair(); }
  Ports frame_ports() {
    const auto make = [this](std::uint8_t number) {
      const FramePortConfig config{Gid::from_ipv4(0x0a000000U + number), 24, {}};
      return std::make_unique<FramePort>(std::make_unique<MemoryDevice>(segment_, number), config, clock.now());
    };
    Ports ports{make(1), make(2)};
    // They find each other before the test begins.
    std::array<RxPacket, 4> none;
    static_cast<void>(ports.first->make_route(ports.second->address(), 0, 0, 0));
    for (PacketPort* port : {ports.second.get(), ports.first.get()}) port->rx_burst(none, clock.now());
    return ports;
  }
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
