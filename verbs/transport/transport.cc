#include "verbs/transport/transport.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "verbs/discovery/device_list.h"
#include "verbs/provider/registration.h"
#include "verbs/transport/path.h"
#include "verbs/transport/wr_id.h"

namespace fairlead::verbs {
namespace {

std::uint8_t to_byte(int value) noexcept { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); }

Status set_non_blocking(int fd, std::string_view what) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0) return {};
  return {Code::kInternal, fmt::format("cannot make the {} non-blocking: {}", what, std::strerror(errno))};
}

}  // namespace

Result<std::unique_ptr<VerbsTransport>> VerbsTransport::open(Device device, const VerbsConfig& config) {
  const VerbsApi& api = *device.api;
  ibv_context* context = device.context.get();
  auto port = query_port_facts(api, context, device.name, config.port);
  if (!port) return port.error();
  const GidChoice choice = choose_gid(*port, nullptr, config.gid_index);
  if (!choice.chosen) return Status(Code::kUnavailable, choice.reason);
  ibv_device_attr attr{};
  const int error = api.query_device(context, &attr);
  if (error != 0) {
    return Status(Code::kUnavailable,
                  fmt::format("{}: cannot query the device: {}", device.name, std::strerror(error)));
  }
  auto limits = queue_limits_for(device.name, config, attr, *port);
  if (!limits) return limits.error();

  std::unique_ptr<VerbsTransport> transport(new VerbsTransport(std::move(device), config, *limits, attr, *port));
  Status status = transport->create_objects();
  if (!status.ok()) return status;
  return transport;
}

VerbsTransport::VerbsTransport(Device device, const VerbsConfig& config, const QueueLimits& limits,
                               const ibv_device_attr& attr, const PortFacts& port)
    : device_(std::move(device)),
      config_(config),
      name_("verbs:" + device_.name),
      max_cqe_(static_cast<std::uint32_t>(std::max(attr.max_cqe, 0))),
      shared_{.api = *device_.api,
              .device = device_.name,
              .config = config,
              .limits = limits,
              .max_rd_atomic = to_byte(attr.max_qp_init_rd_atom),
              .max_dest_rd_atomic = to_byte(attr.max_qp_rd_atom),
              .chain = WorkChain(limits),
              .attention = {}} {
  capabilities_.one_sided = limits.one_sided;
  capabilities_.write_notifies = limits.one_sided;
  capabilities_.software = device_.software;
  capabilities_.max_message = limits.message_bytes - kMessageHeaderBytes;
  capabilities_.max_segments = limits.max_segments;
  capabilities_.max_outstanding = limits.send_depth;
  capabilities_.link_bits_per_second = port.bits_per_second;
  stash_.reserve(kBatch);
}

Status VerbsTransport::create_objects() {
  const VerbsApi& api = *device_.api;
  ibv_context* context = device_.context.get();
  pd_ = ProtectionDomain(api, api.alloc_pd(context));
  if (!pd_) {
    return {Code::kResourceExhausted,
            fmt::format("{}: cannot allocate a protection domain: {}", device_.name, std::strerror(errno))};
  }
  channel_ = CompletionChannel(api, api.create_comp_channel(context));
  if (!channel_) {
    return {Code::kResourceExhausted,
            fmt::format("{}: cannot create a completion channel: {}", device_.name, std::strerror(errno))};
  }
  queues_ = std::make_unique<CompletionQueues>(api, context, channel_.get(), max_cqe_, config_);

  wait_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (wait_fd_ < 0) return {Code::kResourceExhausted, fmt::format("epoll_create1: {}", std::strerror(errno))};
  for (const int fd : {channel_->fd, context->async_fd}) {
    if (fd < 0) continue;  // a device without asynchronous events
    Status status = set_non_blocking(fd, fd == channel_->fd ? "completion channel" : "asynchronous event queue");
    if (!status.ok()) return status;
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(wait_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
      return {Code::kInternal, fmt::format("epoll_ctl: {}", std::strerror(errno))};
    }
  }
  return {};
}

VerbsTransport::~VerbsTransport() {
  // Completion events must be acknowledged before their queues can be destroyed.
  if (queues_) drain_channel();
  if (wait_fd_ >= 0) ::close(wait_fd_);
}

std::string VerbsTransport::describe() const {
  return fmt::format("{} ({}), port {}", name_, device_.detail, config_.port);
}

Result<datapath::Registration> VerbsTransport::register_region(std::span<std::byte> bytes, Access access) {
  auto region = register_user_memory(*device_.api, pd_.get(), device_.name, bytes, access);
  if (!region) return region.error();
  ibv_mr* mr = *region;
  return datapath::Registration{.local = mr->lkey,
                                .remote_address = reinterpret_cast<std::uintptr_t>(bytes.data()),
                                .remote = mr->rkey,
                                .handle = reinterpret_cast<std::uintptr_t>(mr)};
}

void VerbsTransport::deregister_region(const datapath::Registration& registration) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the handle is opaque to the engine, a pointer to us
  MemoryRegion(*device_.api, reinterpret_cast<ibv_mr*>(registration.handle)).reset();
}

Result<std::uint32_t> VerbsTransport::free_slot() {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].connection) return i;
  }
  if (slots_.size() == kMaxSlots) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{} has {} paths open, which is the limit; close some", name_, kMaxSlots));
  }
  slots_.emplace_back();
  shared_.attention.reserve(slots_.size());
  attending_.reserve(slots_.size());
  graveyard_.reserve(slots_.size());
  return static_cast<std::uint32_t>(slots_.size() - 1);
}

Result<std::unique_ptr<datapath::Path>> VerbsTransport::open_path(const datapath::PathConfig& config) {
  const VerbsApi& api = *device_.api;
  auto port = query_port_facts(api, device_.context.get(), device_.name, config_.port);
  if (!port) return port.error();
  std::optional<Route> route;
  if (!config.peer_host.empty()) {
    auto found = route_to(config.peer_host, config.local_host);
    if (!found) return found.error();
    route = *found;
  }
  const GidChoice choice = choose_gid(*port, route ? &*route : nullptr, config_.gid_index);
  if (!choice.chosen) return Status(Code::kUnavailable, choice.reason);
  if (log_enabled(LogLevel::kDebug)) {
    log(LogLevel::kDebug, fmt::format("{}: GID {} {} {}", name_, choice.chosen->index,
                                      choice.chosen->address.to_string(), choice.reason));
  }

  const std::uint32_t entries = shared_.limits.send_slots() + shared_.limits.receive_slots();
  auto queue = queues_->reserve(entries);
  if (!queue) return queue.error();
  auto path = make_path(config, *choice.chosen, path_mtu(*port, *choice.chosen, route ? &*route : nullptr, config_.mtu),
                        route && route->same_host(), *queue);
  if (!path) queues_->release(*queue, entries);
  return path;
}

Result<std::unique_ptr<datapath::Path>> VerbsTransport::make_path(const datapath::PathConfig& config,
                                                                  const GidFacts& gid, std::uint32_t mtu,
                                                                  bool same_host, std::size_t queue) {
  const VerbsApi& api = *device_.api;
  auto arena = MessageArena::create(api, pd_.get(), device_.name, shared_.limits);
  if (!arena) return arena.error();
  auto created = create_rc_qp(api, pd_.get(), queues_->cq(queue), device_.name, shared_.limits, inline_wish_);
  if (!created) return created.error();
  Status status = move_to_init(api, created->qp.get(), device_.name, config_, shared_.limits.one_sided);
  if (!status.ok()) return status;
  auto slot = free_slot();
  if (!slot) return slot.error();

  auto path = std::make_unique<VerbsPath>(*this, config.user);
  Connection::Parts parts{.arena = std::move(*arena),
                          .qp = std::move(created->qp),
                          .max_inline = created->max_inline,
                          .mtu = mtu,
                          .gid = gid,
                          .role = config.role,
                          .same_host = same_host};
  auto connection =
      std::make_unique<Connection>(shared_, std::move(parts), make_wr_id(*slot, slots_[*slot].generation), *path);
  status = connection->prepare();
  if (!status.ok()) return status;
  path->attach(*connection);
  slots_[*slot].queue = queue;
  slots_[*slot].connection = std::move(connection);
  return Result<std::unique_ptr<datapath::Path>>(std::move(path));
}

void VerbsTransport::release(Connection& connection) noexcept {
  Slot& slot = slots_[slot_of(connection.wr_id())];
  connection.release();
  ++slot.generation;
  queues_->release(slot.queue, shared_.limits.send_slots() + shared_.limits.receive_slots());
  graveyard_.push_back(std::move(slot.connection));
  if (!polling_) bury();
}

void VerbsTransport::bury() noexcept {
  if (graveyard_.empty()) return;
  std::erase_if(shared_.attention, [](const Connection* connection) { return connection->released(); });
  graveyard_.clear();
}

}  // namespace fairlead::verbs
