// RC queue pairs of one device, and who polls them: a datapath::Endpoint.
//
// One completion channel, completion queues that all paths share. Works within what VMware's paravirtual device has:
// RC, no inline data unless the device grants some, no ibv_wr_*, no extended completion queue.
//
// Ownership: owns its verbs objects, and the connections behind its paths, which their creators must have destroyed.
// Threads and errors: as transport/endpoint.h says.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "transport/endpoint.h"
#include "verbs/provider/objects.h"
#include "verbs/transport/completion_queues.h"
#include "verbs/transport/connection.h"
#include "verbs/transport/device.h"
#include "verbs/transport/qp_setup.h"

namespace fairlead::verbs {

class VerbsEndpoint final : public datapath::Endpoint {
 public:
  /// Errors: kResourceExhausted.
  static Result<std::unique_ptr<VerbsEndpoint>> open(VerbsDevice& device);
  ~VerbsEndpoint() override;

  Result<std::unique_ptr<datapath::Path>> open_path(const datapath::PathConfig& config) override;
  bool poll() noexcept override;
  bool arm() noexcept override;
  [[nodiscard]] int wait_fd() const noexcept override { return wait_fd_; }
  [[nodiscard]] int wait_timeout_us() const noexcept override { return shared_.leaving.empty() ? -1 : kLeavingLook; }

  /// A path's handle on the connection is gone, perhaps from inside poll(): so goes the connection, after it.
  void release(Connection& connection) noexcept;

 private:
  static constexpr int kBatch = 32;                // completions taken at a time
  static constexpr int kLeavingLook = 500 * 1000;  // us until somebody looks after the connections that leave

  struct Slot {
    std::unique_ptr<Connection> connection;
    std::uint32_t generation = 0;
    std::size_t queue = 0;  // its completion queue
  };

  explicit VerbsEndpoint(VerbsDevice& device);
  Status create_objects();

  /// Where a path begins.
  struct Start {
    GidFacts gid;
    std::uint32_t mtu = 0;   // bytes
    bool same_host = false;  // the peer is on this host
  };
  [[nodiscard]] Result<Start> start_of(const datapath::PathConfig& config) const;
  /// Everything that `queue` has room for already.
  Result<std::unique_ptr<datapath::Path>> make_path(const datapath::PathConfig& config, const Start& start,
                                                    std::size_t queue);
  void bury() noexcept;
  Result<std::uint32_t> free_slot();
  void dispatch(const ibv_wc& completion) noexcept;
  bool poll_queue(CompletionQueues::Queue& queue) noexcept;
  DeviceActivity device_did() noexcept;
  [[nodiscard]] bool lingers() noexcept;
  bool attend() noexcept;
  bool see_off() noexcept;
  /// Takes what the asynchronous event queue holds. Returns whether that was anything.
  bool take_async_events() noexcept;
  void drain_channel() noexcept;

  const VerbsDevice& owner_;
  const DeviceParts& device_;
  AsyncEvents::Reader events_;
  CompletionChannel channel_;
  std::unique_ptr<CompletionQueues> queues_;
  int wait_fd_ = -1;  // epoll over the completion channel and the asynchronous events

  ConnectionShared shared_;
  std::vector<Connection*> attending_;  // the other buffer of shared_.attention
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Connection>> graveyard_;  // released during this poll
  std::vector<ibv_wc> stash_;                           // taken, for the next poll; of one batch
  std::uint32_t inline_wish_ = kInlineWish;
  std::uint32_t polls_since_async_ = 0;
  DeviceActivity activity_;  // as last seen
  bool moved_ = false;       // something happened since arm() looked last,
  Nanos moved_at_ = 0;       // and when it saw that
  bool polling_ = false;
};

}  // namespace fairlead::verbs
