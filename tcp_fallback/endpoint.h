// Sockets, and who polls them: see transport/endpoint.h for the contract and frame.h for what crosses the wire.
//
// One listening socket per endpoint, one data connection per path. A completion means placed at the target, or
// delivered to its on_message: the target's acknowledgement frame says so. A request that the target refuses fails
// alone; what was posted behind it goes on.
//
// Few ready paths are read directly at every poll(), for latency; many are asked about with one epoll_wait.
#pragma once

#include <memory>

#include "tcp_fallback/device.h"
#include "tcp_fallback/listener.h"
#include "tcp_fallback/path.h"
#include "transport/endpoint.h"

namespace fairlead::tcp_fallback {

class TcpEndpoint final : public datapath::Endpoint {
 public:
  static Result<std::unique_ptr<TcpEndpoint>> open(TcpDevice& device);
  ~TcpEndpoint() override;

  Result<std::unique_ptr<datapath::Path>> open_path(const datapath::PathConfig& config) override;
  bool poll() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  [[nodiscard]] int wait_fd() const noexcept override { return shared_.epoll.get(); }
  [[nodiscard]] int wait_timeout_us() const noexcept override;

  [[nodiscard]] std::uint16_t port() const noexcept { return shared_.port; }
  /// Connections that were dropped before they belonged to a path.
  [[nodiscard]] std::uint64_t refused_connections() const noexcept { return listener_.refused(); }

 private:
  TcpEndpoint(TcpDevice& device, Listener listener);

  bool look_around() noexcept;
  bool advance_paths(bool urgent, bool look) noexcept;
  void count_retransmissions() noexcept;

  TcpDevice& device_;
  std::size_t number_ = 0;  // of the device's endpoints, from 0
  datapath::GrantReader grants_;
  Shared shared_;
  Listener listener_;
  std::size_t ready_paths_ = 0;  // at the last poll()
  std::uint32_t polls_ = 0;
  Nanos counted_at_ = 0;  // when retransmissions were
  bool armed_ = false;
  bool others_wait_ = false;  // for a turn, since something came over an urgent path
};

}  // namespace fairlead::tcp_fallback
