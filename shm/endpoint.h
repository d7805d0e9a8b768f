// Rings, and who polls them: see transport/endpoint.h for the contract and ring/slot.h for what crosses.
//
// One listening socket per endpoint; per path a socket, over which its ends met and wake each other, and a segment of
// shared memory. While both ends poll there is no system call, but for a look at the sockets every so often: a peer
// that ends is noticed by that.
#pragma once

#include <memory>

#include "shm/device.h"
#include "shm/meeting/listener.h"
#include "shm/path.h"
#include "transport/endpoint.h"

namespace fairlead::shm {

class ShmEndpoint final : public datapath::Endpoint {
 public:
  static Result<std::unique_ptr<ShmEndpoint>> open(ShmDevice& device);
  ~ShmEndpoint() override;

  Result<std::unique_ptr<datapath::Path>> open_path(const datapath::PathConfig& config) override;
  bool poll() noexcept override;
  bool arm() noexcept override;
  void disarm() noexcept override;
  void settle() noexcept override;
  [[nodiscard]] int wait_fd() const noexcept override { return shared_.epoll.get(); }
  [[nodiscard]] int wait_timeout_us() const noexcept override;

  /// Connections that were dropped before they belonged to a path.
  [[nodiscard]] std::uint64_t refused_connections() const noexcept { return listener_.refused(); }

 private:
  ShmEndpoint(ShmDevice& device, Listener listener);

  bool look_around() noexcept;

  datapath::GrantReader grants_;
  Context shared_;
  Listener listener_;
  std::size_t ready_paths_ = 0;  // at the last poll()
  std::uint32_t polls_ = 0;
  bool armed_ = false;  // since the last poll()
};

}  // namespace fairlead::shm
