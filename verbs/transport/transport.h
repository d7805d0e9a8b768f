// RC queue pairs of one device as a datapath::Transport.
//
// One device context, one protection domain, one completion channel, completion queues that all paths share. Works
// within what VMware's paravirtual device has: RC, no inline data unless the device grants some, no
// ibv_wr_*, no extended completion queue.
//
// Ownership: owns all verbs objects; paths (owned by their creators) must be destroyed before the transport.
// Threads and errors: as transport/transport.h says. The table must outlive the transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fairlead/config.h"
#include "transport/transport.h"
#include "verbs/provider/objects.h"
#include "verbs/transport/completion_queues.h"
#include "verbs/transport/connection.h"
#include "verbs/transport/qp_setup.h"

namespace fairlead::verbs {

class VerbsTransport final : public datapath::Transport {
 public:
  struct Device {
    const VerbsApi* api = nullptr;
    DeviceContext context;
    std::string name;       // "mlx5_0"
    std::string detail;     // for describe(): which verbs, which packet I/O
    bool software = false;  // ranks below tcp in `auto`
  };

  /// Errors: kUnavailable (no usable GID, with the reason of each), kInvalidArgument (a setting beyond the device's
  /// limits that cannot be cut), kResourceExhausted.
  static Result<std::unique_ptr<VerbsTransport>> open(Device device, const VerbsConfig& config);
  ~VerbsTransport() override;

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] const datapath::Capabilities& capabilities() const noexcept override { return capabilities_; }
  [[nodiscard]] std::string describe() const override;
  Result<datapath::Registration> register_region(std::span<std::byte> bytes, Access access) override;
  void deregister_region(const datapath::Registration& registration) noexcept override;
  Result<std::unique_ptr<datapath::Path>> open_path(const datapath::PathConfig& config) override;
  bool poll(datapath::PathEvents& events) noexcept override;
  bool arm() noexcept override;
  [[nodiscard]] int wait_fd() const noexcept override { return wait_fd_; }
  [[nodiscard]] int wait_timeout_us() const noexcept override { return -1; }

 private:
  friend class VerbsPath;
  static constexpr int kBatch = 32;  // completions taken at a time

  struct Slot {
    std::unique_ptr<Connection> connection;
    std::uint32_t generation = 0;
    std::size_t queue = 0;  // its completion queue
  };

  VerbsTransport(Device device, const VerbsConfig& config, const QueueLimits& limits, const ibv_device_attr& attr,
                 const PortFacts& port);
  Status create_objects();

  /// Everything that `queue` has room for already.
  Result<std::unique_ptr<datapath::Path>> make_path(const datapath::PathConfig& config, const GidFacts& gid,
                                                    std::uint32_t mtu, bool same_host, std::size_t queue);
  /// The path's part of the transport goes away.
  void release(Connection& connection) noexcept;
  void bury() noexcept;
  Result<std::uint32_t> free_slot();
  void dispatch(const ibv_wc& completion, datapath::PathEvents& events) noexcept;
  bool poll_queue(CompletionQueues::Queue& queue, datapath::PathEvents& events) noexcept;
  bool device_moved() noexcept;
  bool attend(datapath::PathEvents& events) noexcept;
  /// Takes what the asynchronous event queue holds. Returns whether that was anything.
  bool take_async_events() noexcept;
  void drain_channel() noexcept;

  Device device_;
  VerbsConfig config_;
  std::string name_;
  datapath::Capabilities capabilities_;
  std::uint32_t max_cqe_;
  ProtectionDomain pd_;
  CompletionChannel channel_;
  std::unique_ptr<CompletionQueues> queues_;
  int wait_fd_ = -1;  // epoll over the completion channel and the asynchronous events

  ConnectionShared shared_;
  std::vector<Connection*> attending_;  // the other buffer of shared_.attention
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Connection>> graveyard_;  // released during this poll
  std::vector<ibv_wc> stash_;                           // taken by arm(), for the next poll
  std::uint32_t inline_wish_ = kInlineWish;
  std::uint32_t polls_since_async_ = 0;
  std::uint64_t activity_ = 0;  // VerbsApi::activity() as last seen
  bool polling_ = false;
};

}  // namespace fairlead::verbs
