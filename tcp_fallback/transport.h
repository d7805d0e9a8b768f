// TCP as a Transport: see transport/transport.h for the contract and frame.h for what crosses the wire.
//
// One listening socket per transport, one data connection per path. A completion means placed at the target, or
// delivered to its on_message: the target's acknowledgement frame says so. A request that the target refuses fails
// alone; what was posted behind it goes on.
//
// Few ready paths are read directly at every poll(), for latency; many are asked about with one epoll_wait.
#pragma once

#include <memory>

#include "tcp_fallback/listener.h"
#include "tcp_fallback/path.h"
#include "transport/transport.h"

namespace fairlead::tcp_fallback {

class TcpTransport final : public datapath::Transport {
 public:
  /// `clock` outlives the transport.
  static Result<std::unique_ptr<TcpTransport>> open(const TcpConfig& config, const Clock& clock = steady_clock());
  ~TcpTransport() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "tcp"; }
  [[nodiscard]] const datapath::Capabilities& capabilities() const noexcept override { return capabilities_; }
  [[nodiscard]] std::string describe() const override;
  Result<datapath::Registration> register_region(std::span<std::byte> bytes, Access access) override;
  void deregister_region(const datapath::Registration& registration) noexcept override;
  Result<std::unique_ptr<datapath::Path>> open_path(const datapath::PathConfig& config) override;
  bool poll(datapath::PathEvents& events) noexcept override;
  bool arm() noexcept override;
  [[nodiscard]] int wait_fd() const noexcept override { return shared_.epoll.get(); }
  [[nodiscard]] int wait_timeout_us() const noexcept override;

  [[nodiscard]] std::uint16_t port() const noexcept { return shared_.port; }
  /// Connections that were dropped before they belonged to a path.
  [[nodiscard]] std::uint64_t refused_connections() const noexcept { return listener_.refused(); }

 private:
  TcpTransport(const TcpConfig& config, const Clock& clock, Listener listener);

  bool look_around() noexcept;

  Shared shared_;
  Listener listener_;
  datapath::Capabilities capabilities_;
  std::size_t ready_paths_ = 0;  // at the last poll()
  std::uint32_t polls_ = 0;
  bool armed_ = false;
};

}  // namespace fairlead::tcp_fallback
