// fairlead::Engine: the public face of EngineImpl.
#include "fairlead/engine.h"

#include "datapath/engine/engine_impl.h"
#include "datapath/engine/handles.h"

namespace fairlead {

using datapath::EngineImpl;
using datapath::SessionImpl;

namespace {

/// What an engine that was not moved from holds; else null.
EngineImpl* behind(const std::shared_ptr<void>& object) noexcept { return static_cast<EngineImpl*>(object.get()); }

/// ok, or why calls of an engine come to nothing.
Status usable(const EngineImpl* impl) {
  return impl != nullptr ? impl->fork().usable() : Status(Code::kInvalidArgument, "this engine was moved from");
}
/// The same for calls that begin something.
Status working(const EngineImpl* impl) {
  Status fine = usable(impl);
  return fine.ok() && impl->commons().stopped ? Status(Code::kUnavailable, "the engine was shut down") : fine;
}
/// Of calls that had begun before.
Status was_shut_down() { return {Code::kCancelled, "the engine was shut down"}; }
/// The same where nobody asks why, as in calls that are made all the time.
bool is_usable(const EngineImpl* impl) noexcept { return impl != nullptr && !impl->fork().inherited(); }

Result<Peer> connect_with(EngineImpl* impl, std::string_view host_port) {
  if (Status fine = working(impl); !fine.ok()) return fine;
  auto session = impl->connect(host_port);
  if (!session) return session.error();
  return datapath::make_peer(std::move(*session));
}

Result<Memory> cached_or_registered(const std::weak_ptr<void>& engine, std::span<std::byte> bytes, Access access) {
  const std::shared_ptr<void> object = engine.lock();
  if (object == nullptr) return Status(Code::kUnavailable, "the engine has gone");
  EngineImpl* impl = behind(object);
  if (Status fine = working(impl); !fine.ok()) return fine;
  if (Result<Memory> cached = impl->cache().find(bytes)) return cached;
  return impl->register_memory(bytes, access, nullptr);
}

}  // namespace

Engine::Engine(std::shared_ptr<void> object) noexcept : object_(std::move(object)) {}
Engine::Engine(Engine&&) noexcept = default;

Engine& Engine::operator=(Engine&& other) noexcept {
  if (object_ != nullptr && object_ != other.object_) behind(object_)->shut_down();
  object_ = std::move(other.object_);
  return *this;
}

Engine::~Engine() {
  if (object_ != nullptr) behind(object_)->shut_down();
}

Result<Engine> Engine::create(EngineConfig config) {
  auto impl = EngineImpl::create(std::move(config));
  if (!impl) return impl.error();
  return Engine(std::move(*impl));
}

void Engine::shutdown() {
  if (object_ != nullptr) behind(object_)->shut_down();
}

std::string Engine::listen_address() const {
  return object_ != nullptr ? behind(object_)->listen_address() : std::string();
}

const EngineConfig& Engine::config() const noexcept {
  static const EngineConfig none;
  return object_ != nullptr ? behind(object_)->config() : none;
}

Result<Memory> Engine::allocate(std::size_t bytes) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->allocate(bytes, {});
}

Result<Memory> Engine::allocate(std::size_t bytes, const AllocateOptions& options) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->allocate(bytes, options);
}

void Engine::trim_pool() {
  if (EngineImpl* impl = behind(object_); is_usable(impl)) impl->trim_pool();
}

Result<Memory> Engine::register_memory(std::span<std::byte> bytes, Access access) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->register_memory(bytes, access, nullptr);
}

Result<Memory> Engine::register_memory(std::span<std::byte> bytes, const CudaOptions& options) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->register_memory(bytes, options);
}

Result<Memory> Engine::register_memory(std::span<std::byte> bytes, Access access, std::function<void()> release) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->register_memory(bytes, access, std::move(release));
}

Result<std::vector<Memory>> Engine::register_memory(std::span<const std::span<std::byte>> ranges, Access access) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->register_memory(ranges, access);
}

Result<Memory> Engine::cached_memory(std::span<std::byte> bytes) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->cache().find(bytes);
}

Result<std::vector<Memory>> Engine::cached_memory(std::span<const std::span<std::byte>> ranges) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->cache().find(ranges);
}

std::function<Result<Memory>(std::span<const std::byte>)> Engine::local_reader() const {
  return [engine = std::weak_ptr<void>(object_)](std::span<const std::byte> bytes) {
    const std::span<std::byte> memory(const_cast<std::byte*>(bytes.data()), bytes.size());  // it is read from alone
    return cached_or_registered(engine, memory, Access::kLocalReadOnly);
  };
}

std::function<Result<Memory>(std::span<std::byte>)> Engine::local_writer() const {
  return [engine = std::weak_ptr<void>(object_)](std::span<std::byte> bytes) {
    return cached_or_registered(engine, bytes, Access::kNone);
  };
}

Status Engine::declare_memory(std::span<std::byte> bytes, bool at_once) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->cache().declare(bytes, at_once);
}

Status Engine::withdraw_memory(const std::byte* begin) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->cache().withdraw(begin);
}

Result<Memory> Engine::map_file(const std::string& path, Access access) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->map_file(path, access);
}

Status Engine::publish(std::string_view name, const Memory& memory, Access access, std::optional<TensorSpec> tensor,
                       std::vector<std::string> audience) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->publish(name, memory, access, tensor, std::move(audience));
}

Status Engine::unpublish(std::string_view name) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->unpublish(name);
}

Result<std::string> Engine::export_(const Memory& memory, Access access, std::vector<std::string> audience) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->export_memory(memory, access, std::move(audience));
}

Status Engine::unexport(std::string_view capability) {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->unexport(capability);
}

Status Engine::reload_keys() {
  EngineImpl* impl = behind(object_);
  if (Status fine = working(impl); !fine.ok()) return fine;
  return impl->reload_keys();
}

bool Engine::knows(std::string_view principal) const {
  const EngineImpl* impl = behind(object_);
  return is_usable(impl) && impl->commons().principals.knows(principal);
}

Result<Peer> Engine::connect(std::string_view host_port) { return connect_with(behind(object_), host_port); }

std::function<Result<Peer>(std::string_view)> Engine::connector() const {
  return [engine = std::weak_ptr<void>(object_)](std::string_view host_port) -> Result<Peer> {
    const std::shared_ptr<void> object = engine.lock();
    if (object == nullptr) return Status(Code::kUnavailable, "the engine has gone");
    return connect_with(behind(object), host_port);
  };
}

std::optional<Peer> Engine::accept() {
  EngineImpl* impl = behind(object_);
  if (!is_usable(impl)) return std::nullopt;
  const auto take = [&] { return std::static_pointer_cast<SessionImpl>(impl->sinks().take_accepted()); };
  std::shared_ptr<SessionImpl> session = take();
  if (session == nullptr) {
    impl->poll_once();
    session = take();
  }
  if (session == nullptr) return std::nullopt;
  return datapath::make_peer(std::move(session));
}

Result<Peer> Engine::accept(std::chrono::nanoseconds timeout) {
  const auto held = object_;  // another thread may destroy the engine while this one waits
  EngineImpl* impl = behind(held);
  if (Status fine = working(impl); !fine.ok()) return fine;
  if (impl->config().listen.empty()) {
    return Status(Code::kInvalidArgument,
                  "nobody can connect to this engine, which does not listen; set "
                  "EngineConfig::listen");
  }
  const auto deadline = datapath::deadline_after(timeout);
  const auto anything = [impl] { return impl->sinks().any_accepted() || impl->commons().stopped; };
  while (impl->wait_until(anything, deadline)) {
    if (auto session = std::static_pointer_cast<SessionImpl>(impl->sinks().take_accepted())) {
      return datapath::make_peer(std::move(session));
    }
    if (impl->commons().stopped) return was_shut_down();
  }
  return Status(Code::kDeadlineExceeded, "nobody connected in time");
}

int Engine::event_fd() const noexcept {
  EngineImpl* impl = behind(object_);
  return is_usable(impl) ? impl->sinks().fd() : -1;
}

std::pair<Peer, Event> Engine::next_event(std::chrono::nanoseconds timeout) {
  std::pair<Peer, Event> result;
  const auto held = object_;  // another thread may destroy the engine while this one waits
  EngineImpl* impl = behind(held);
  if (result.second.status = usable(impl); !result.second.status.ok()) return result;
  const auto take = [&] {
    datapath::Taken taken;
    auto session = std::static_pointer_cast<SessionImpl>(impl->sinks().take_any_event(result.second, taken));
    if (session == nullptr) return false;
    session->event_taken(result.second, taken);
    result.first = datapath::make_peer(std::move(session));
    return true;
  };
  if (take()) return result;
  if (impl->commons().stopped) {
    result.second.status = working(impl);
    return result;
  }
  if (timeout.count() <= 0) {
    impl->poll_once();
    if (!take() && impl->commons().stopped) result.second.status = was_shut_down();
    return result;
  }
  const auto deadline = datapath::deadline_after(timeout);
  const auto anything = [&] { return impl->sinks().any_events() || impl->commons().stopped; };
  while (impl->wait_until(anything, deadline)) {
    if (take()) break;
    if (!impl->commons().stopped) continue;
    result.second.status = was_shut_down();
    break;
  }
  return result;
}

std::optional<Transfer> Engine::next_completed() {
  EngineImpl* impl = behind(object_);
  if (!is_usable(impl)) return std::nullopt;
  const auto take = [&] { return static_cast<datapath::TransferImpl*>(impl->sinks().take_completed()); };
  datapath::TransferImpl* done = take();
  if (done == nullptr) {
    impl->poll_once();
    done = take();
  }
  if (done == nullptr) return std::nullopt;
  return datapath::make_transfer(done);
}

bool Engine::poll() noexcept {
  EngineImpl* impl = behind(object_);
  return is_usable(impl) && impl->poll_once();
}

PlacementReport Engine::placement() const {
  EngineImpl* impl = behind(object_);
  return is_usable(impl) ? impl->commons().placement.report() : PlacementReport();
}
std::vector<DeviceInfo> Engine::devices(std::string_view peer) const {
  return object_ != nullptr ? behind(object_)->devices(peer) : std::vector<DeviceInfo>();
}

std::vector<Peer> Engine::peers() const {
  EngineImpl* impl = behind(object_);
  std::vector<Peer> peers;
  if (!is_usable(impl)) return peers;
  for (auto& session : impl->commons().sessions.all()) peers.push_back(datapath::make_peer(std::move(session)));
  return peers;
}

EngineStats Engine::stats() const {
  EngineImpl* impl = behind(object_);
  return is_usable(impl) ? impl->stats() : EngineStats();
}

}  // namespace fairlead
