// What decorators of a port share: everything but packets is the inner port's. Each overrides what it alters.
#pragma once

#include <memory>
#include <utility>

#include "verbs/soft/port/packet_port.h"

namespace fairlead::soft {

class PortDecorator : public PacketPort {
 public:
  [[nodiscard]] const Gid& address() const noexcept override { return inner_->address(); }
  [[nodiscard]] Gid link_local() const noexcept override { return inner_->link_local(); }
  [[nodiscard]] std::uint32_t max_v1_mtu() const noexcept override { return inner_->max_v1_mtu(); }
  [[nodiscard]] std::uint32_t max_mtu() const noexcept override { return inner_->max_mtu(); }
  [[nodiscard]] ReceiveWindow receive_window() const noexcept override { return inner_->receive_window(); }
  [[nodiscard]] std::size_t peer_window() const noexcept override { return inner_->peer_window(); }
  [[nodiscard]] std::uint32_t least_charge() const noexcept override { return inner_->least_charge(); }
  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                                 std::uint8_t hop_limit) override {
    Route route = inner_->make_route(destination, flow, traffic_class, hop_limit);
    route.apart = nullptr;  // what comes by that way would come past us
    return route;
  }
  void count_in(Counters& counters) noexcept override { inner_->count_in(counters); }
  [[nodiscard]] std::optional<Route> make_v1_route(const Gid& source, const Gid& destination, std::uint32_t flow_label,
                                                   std::uint8_t traffic_class, std::uint8_t hop_limit) override {
    return inner_->make_v1_route(source, destination, flow_label, traffic_class, hop_limit);
  }
  void report_traffic_class() noexcept override { inner_->report_traffic_class(); }
  [[nodiscard]] Status take_requests(std::uint32_t service) override { return inner_->take_requests(service); }
  void leave_requests(std::uint32_t service) noexcept override { inner_->leave_requests(service); }
  [[nodiscard]] std::uint64_t refused() const noexcept override { return inner_->refused(); }
  [[nodiscard]] LinkState link() noexcept override { return inner_->link(); }
  [[nodiscard]] bool lends() const noexcept override { return inner_->lends(); }
  [[nodiscard]] Loans loans() noexcept override { return inner_->loans(); }
  void end_loans() noexcept override { inner_->end_loans(); }
  void map(const void* start, std::size_t bytes) noexcept override { inner_->map(start, bytes); }
  void unmap(const void* start, std::size_t bytes) noexcept override { inner_->unmap(start, bytes); }
  [[nodiscard]] int wait_fd() const noexcept override { return inner_->wait_fd(); }
  bool on_wait(bool begins) noexcept override { return inner_->on_wait(begins); }
  [[nodiscard]] Nanos next_event() const noexcept override { return inner_->next_event(); }

 protected:
  explicit PortDecorator(std::unique_ptr<PacketPort> inner) noexcept : inner_(std::move(inner)) {}

  std::unique_ptr<PacketPort> inner_;
};

}  // namespace fairlead::soft
