#include "verbs/transport/endpoint.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include "base/system/no_watch.h"
#include "verbs/discovery/device_list.h"
#include "verbs/transport/path.h"
#include "verbs/transport/wr_id.h"

namespace fairlead::verbs {
namespace {

Status set_non_blocking(int fd, std::string_view what) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0) return {};
  return {Code::kInternal, fmt::format("cannot make the {} non-blocking: {}", what, std::strerror(errno))};
}

}  // namespace

Result<std::unique_ptr<VerbsEndpoint>> VerbsEndpoint::open(VerbsDevice& device) {
  std::unique_ptr<VerbsEndpoint> endpoint(new VerbsEndpoint(device));
  Status status = endpoint->create_objects();
  if (!status.ok()) return status;
  return endpoint;
}

VerbsEndpoint::VerbsEndpoint(VerbsDevice& device)
    : owner_(device),
      device_(device.parts()),
      events_(device.events()),
      shared_{.api = device_.api(),
              .device = device_.source.name,
              .config = device_.config,
              .limits = device_.limits,
              .max_rd_atomic = device_.max_rd_atomic,
              .max_dest_rd_atomic = device_.max_dest_rd_atomic,
              .clock = *device_.clock,
              .traffic = traffic_,
              .events = events_,
              .chain = WorkChain(device_.limits),
              .attention = {}} {
  stash_.reserve(kBatch);
}

Status VerbsEndpoint::create_objects() {
  const VerbsApi& api = device_.api();
  ibv_context* context = device_.source.context.get();
  channel_ = CompletionChannel(api, api.create_comp_channel(context));
  if (!channel_) {
    return {Code::kResourceExhausted,
            fmt::format("{}: cannot create a completion channel: {}", device_.source.name, std::strerror(errno))};
  }
  queues_ = std::make_unique<CompletionQueues>(api, context, channel_.get(), device_.max_cqe, device_.config);

  wait_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (wait_fd_ < 0) return {Code::kResourceExhausted, fmt::format("epoll_create1: {}", std::strerror(errno))};
  if (!events_.valid()) return {Code::kResourceExhausted, fmt::format("eventfd: {}", std::strerror(errno))};
  for (const int fd : {channel_->fd, context->async_fd, events_.left_fd()}) {
    if (fd < 0) continue;  // a device without asynchronous events
    Status status = set_non_blocking(fd, fd == channel_->fd ? "completion channel" : "asynchronous event queue");
    if (!status.ok()) return status;
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(wait_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
      return no_watch(fmt::format("the events of {}", device_.source.name), errno);
    }
  }
  // For which softroce has a thread: it is to begin here, not on the CPU of a lane that is about to sleep.
  (void)take_async_events();
  return {};
}

VerbsEndpoint::~VerbsEndpoint() {
  // Completion events must be acknowledged before their queues can be destroyed.
  if (queues_) drain_channel();
  if (wait_fd_ >= 0) ::close(wait_fd_);
}

Result<std::uint32_t> VerbsEndpoint::free_slot() {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].connection) return i;
  }
  if (slots_.size() == kMaxSlots) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{} has {} paths open, which is the limit; close some", device_.name, kMaxSlots));
  }
  slots_.emplace_back();
  shared_.attention.reserve(slots_.size());
  shared_.leaving.reserve(slots_.size());
  attending_.reserve(slots_.size());
  graveyard_.reserve(slots_.size());
  return static_cast<std::uint32_t>(slots_.size() - 1);
}

namespace {

// Where the peer may be reached, as text, and our end of a connection to it; the best first.
std::vector<std::pair<std::string, std::string>> hosts_of(const datapath::PathConfig& config) {
  std::vector<std::pair<std::string, std::string>> hosts;
  if (const auto theirs = parse_path_description(config.peer_description); theirs && !theirs->gid.is_link_local()) {
    const std::string at = theirs->gid.to_string();
    hosts.emplace_back(at, at == config.peer_host ? config.local_host : "");
  }
  if (!config.addresses_first) hosts.emplace_back(config.peer_host, config.local_host);
  for (const std::string& address : config.peer_addresses) hosts.emplace_back(address, "");
  if (config.addresses_first) hosts.emplace_back(config.peer_host, config.local_host);
  return hosts;
}

}  // namespace

/// Errors are those of where the session itself is. What a peer says of where it is may not make it one of this host,
/// which its session does not come from.
Result<VerbsEndpoint::Start> VerbsEndpoint::start_of(const datapath::PathConfig& config) const {
  auto port = query_port_facts(device_.api(), device_.source.context.get(), device_.source.name, device_.config.port);
  if (!port) return port.error();
  Status why{Code::kUnavailable, "no address of the peer is known"};
  const auto session =
      config.peer_host.empty() ? Result<Route>(Route{}) : route_to(config.peer_host, config.local_host);
  for (const auto& [host, local] : hosts_of(config)) {
    std::optional<Route> route;
    if (!host.empty()) {
      auto found = route_to(host, local);
      if (!found) {
        if (host == config.peer_host) why = found.error();
        continue;
      }
      if (host != config.peer_host && (!session || found->same_host() != session->same_host())) continue;
      route = *found;
    }
    const Route* const way = route ? &*route : nullptr;
    const GidChoice choice = choose_gid(*port, way, device_.config.gid_index);
    if (choice.chosen) {
      if (log_enabled(LogLevel::kDebug)) {
        log(LogLevel::kDebug, fmt::format("{}: GID {} {} {}", device_.name, choice.chosen->index,
                                          choice.chosen->address.to_string(), choice.reason));
      }
      return Start{*choice.chosen, path_mtu(*port, *choice.chosen, way, device_.config.mtu),
                   route && route->same_host()};
    }
    if (host == config.peer_host) why = {Code::kUnavailable, choice.reason};
  }
  return why;
}

Result<std::unique_ptr<datapath::Path>> VerbsEndpoint::open_path(const datapath::PathConfig& config) {
  const Result<Start> start = start_of(config);
  if (!start) return start.error();
  const std::uint32_t entries = shared_.limits.send_slots() + shared_.limits.receive_slots();
  auto queue = queues_->reserve(entries);
  if (!queue) return queue.error();
  auto path = make_path(config, *start, *queue);
  if (!path) queues_->release(*queue, entries);
  return path;
}

Result<std::unique_ptr<datapath::Path>> VerbsEndpoint::make_path(const datapath::PathConfig& config, const Start& start,
                                                                 std::size_t queue) {
  const VerbsApi& api = device_.api();
  ibv_pd* const pd = owner_.pd_of(config.domain);
  auto arena = MessageArena::create(api, pd, device_.source.name, shared_.limits, device_.regions);
  if (!arena) return arena.error();
  auto created = create_rc_qp(api, pd, queues_->cq(queue), device_.source.name, shared_.limits, inline_wish_);
  if (!created) return created.error();
  Status status = move_to_init(api, created->qp.get(), device_.source.name, device_.config, shared_.limits.one_sided);
  if (!status.ok()) return status;
  auto slot = free_slot();
  if (!slot) return slot.error();

  auto path = std::make_unique<VerbsPath>(*this, *config.events);
  Connection::Parts parts{.arena = std::move(*arena),
                          .qp = std::move(created->qp),
                          .max_inline = created->max_inline,
                          .mtu = start.mtu,
                          .gid = start.gid,
                          .role = config.role,
                          .same_host = start.same_host,
                          .priority = config.urgent && device_.source.software};
  auto connection =
      std::make_unique<Connection>(shared_, std::move(parts), make_wr_id(*slot, slots_[*slot].generation), *path);
  status = connection->prepare();
  if (!status.ok()) return status;
  path->attach(*connection);
  slots_[*slot].queue = queue;
  slots_[*slot].connection = std::move(connection);
  return Result<std::unique_ptr<datapath::Path>>(std::move(path));
}

void VerbsEndpoint::release(Connection& connection) noexcept {
  Slot& slot = slots_[slot_of(connection.wr_id())];
  connection.release();
  ++slot.generation;
  queues_->release(slot.queue, shared_.limits.send_slots() + shared_.limits.receive_slots());
  graveyard_.push_back(std::move(slot.connection));
  if (!polling_) bury();
}

void VerbsEndpoint::bury() noexcept {
  if (graveyard_.empty()) return;
  std::erase_if(shared_.attention, [](const Connection* connection) { return connection->released(); });
  std::erase_if(shared_.leaving, [](const Connection* connection) { return connection->released(); });
  graveyard_.clear();
}

}  // namespace fairlead::verbs
