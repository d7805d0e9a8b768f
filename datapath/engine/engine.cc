// fairlead::Engine: the public face of EngineImpl.
#include "fairlead/engine.h"

#include "datapath/engine/engine_impl.h"

namespace fairlead {
namespace {

/// ok, or why calls of an engine come to nothing.
Status usable(const std::shared_ptr<datapath::EngineImpl>& impl) {
  return impl != nullptr ? impl->usable() : Status(Code::kInvalidArgument, "this engine was moved from");
}
/// The same where nobody asks why, as in calls that are made all the time.
bool is_usable(const std::shared_ptr<datapath::EngineImpl>& impl) noexcept {
  return impl != nullptr && !impl->inherited();
}

}  // namespace

Engine::Engine(std::shared_ptr<datapath::EngineImpl> impl) noexcept : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;

Engine& Engine::operator=(Engine&& other) noexcept {
  if (impl_ != nullptr && impl_ != other.impl_) impl_->shut_down();
  impl_ = std::move(other.impl_);
  return *this;
}

Engine::~Engine() {
  if (impl_ != nullptr) impl_->shut_down();
}

Result<Engine> Engine::create(EngineConfig config) {
  auto impl = datapath::EngineImpl::create(std::move(config));
  if (!impl) return impl.error();
  return Engine(std::move(*impl));
}

std::string Engine::listen_address() const { return impl_ != nullptr ? impl_->listen_address() : std::string(); }

const EngineConfig& Engine::config() const noexcept {
  static const EngineConfig none;
  return impl_ != nullptr ? impl_->config() : none;
}

Result<Memory> Engine::allocate(std::size_t bytes) {
  if (Status fine = usable(impl_); !fine.ok()) return fine;
  return impl_->allocate(bytes);
}

Result<Memory> Engine::register_memory(std::span<std::byte> bytes, Access access) {
  if (Status fine = usable(impl_); !fine.ok()) return fine;
  return impl_->register_memory(bytes, access);
}

Result<Memory> Engine::map_file(const std::string& path, Access access) {
  if (Status fine = usable(impl_); !fine.ok()) return fine;
  return impl_->map_file(path, access);
}

Status Engine::publish(std::string_view name, const Memory& memory, Access access, std::optional<TensorSpec> tensor) {
  if (Status fine = usable(impl_); !fine.ok()) return fine;
  return impl_->publish(name, memory, access, tensor);
}

Status Engine::unpublish(std::string_view name) {
  if (Status fine = usable(impl_); !fine.ok()) return fine;
  return impl_->regions().unpublish(name);
}

Result<Peer> Engine::connect(std::string_view host_port) {
  if (Status fine = usable(impl_); !fine.ok()) return fine;
  auto session = impl_->connect(host_port);
  if (!session) return session.error();
  Peer peer;
  peer.impl_ = std::move(*session);
  return peer;
}

std::optional<Peer> Engine::accept() {
  if (!is_usable(impl_)) return std::nullopt;
  Peer peer;
  const auto take = [&] { return std::static_pointer_cast<datapath::SessionImpl>(impl_->queues().take_accepted()); };
  peer.impl_ = take();
  if (peer.impl_ == nullptr) {
    impl_->lane().poll_once();
    peer.impl_ = take();
  }
  return peer.valid() ? std::optional<Peer>(std::move(peer)) : std::nullopt;
}

int Engine::event_fd() const noexcept { return is_usable(impl_) ? impl_->queues().fd() : -1; }

std::pair<Peer, Event> Engine::next_event(std::chrono::nanoseconds timeout) {
  std::pair<Peer, Event> result;
  if (result.second.status = usable(impl_); !result.second.status.ok()) return result;
  const auto impl = impl_;  // another thread may destroy the engine while this one waits
  const auto take = [&] {
    std::size_t taken = 0;
    result.first.impl_ =
        std::static_pointer_cast<datapath::SessionImpl>(impl->queues().take_any_event(result.second, taken));
    if (result.first.impl_ == nullptr) return false;
    result.first.impl_->event_taken(taken);
    return true;
  };
  if (take()) return result;
  if (timeout.count() <= 0) {
    impl->lane().poll_once();
    take();
    return result;
  }
  const auto deadline = datapath::deadline_after(timeout);
  const auto anything = [&] { return impl->queues().any_events() || impl->stopped(); };
  while (impl->lane().wait_until(anything, deadline)) {
    if (take()) break;
    if (!impl->stopped()) continue;
    result.second.status = Status(Code::kCancelled, "the engine was destroyed");
    break;
  }
  return result;
}

std::optional<Transfer> Engine::next_completed() {
  if (!is_usable(impl_)) return std::nullopt;
  const auto take = [&] { return static_cast<datapath::TransferImpl*>(impl_->queues().take_completed()); };
  datapath::TransferImpl* done = take();
  if (done == nullptr) {
    impl_->lane().poll_once();
    done = take();
  }
  if (done == nullptr) return std::nullopt;
  return Transfer(done);
}

bool Engine::poll() noexcept { return is_usable(impl_) && impl_->lane().poll_once(); }

std::vector<DeviceInfo> Engine::devices(std::string_view peer) const {
  return impl_ != nullptr ? impl_->devices(peer) : std::vector<DeviceInfo>();
}

std::vector<Peer> Engine::peers() const {
  std::vector<Peer> peers;
  if (!is_usable(impl_)) return peers;
  for (auto& session : impl_->sessions()) {
    Peer peer;
    peer.impl_ = std::move(session);
    peers.push_back(std::move(peer));
  }
  return peers;
}

EngineStats Engine::stats() const { return is_usable(impl_) ? impl_->stats() : EngineStats(); }

}  // namespace fairlead
