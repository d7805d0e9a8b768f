// fairlead::Engine: the public face of EngineImpl.
#include "fairlead/engine.h"

#include "datapath/engine_impl.h"

namespace fairlead {

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

std::string Engine::listen_address() const { return impl_->listen_address(); }
const EngineConfig& Engine::config() const noexcept { return impl_->config(); }

Result<Memory> Engine::allocate(std::size_t bytes) { return impl_->allocate(bytes); }
Result<Memory> Engine::register_memory(std::span<std::byte> bytes, Access access) {
  return impl_->register_memory(bytes, access);
}
Result<Memory> Engine::map_file(const std::string& path, Access access) { return impl_->map_file(path, access); }

Status Engine::publish(std::string_view name, const Memory& memory, Access access, std::optional<TensorSpec> tensor) {
  return impl_->publish(name, memory, access, tensor);
}
Status Engine::unpublish(std::string_view name) { return impl_->regions().unpublish(name); }

Result<Peer> Engine::connect(std::string_view host_port) {
  auto session = impl_->connect(host_port);
  if (!session) return session.error();
  Peer peer;
  peer.impl_ = std::move(*session);
  return peer;
}

std::optional<Peer> Engine::accept() {
  Peer peer;
  peer.impl_ = impl_->queues().take_accepted();
  if (peer.impl_ == nullptr) {
    impl_->lane().poll_once();
    peer.impl_ = impl_->queues().take_accepted();
  }
  return peer.valid() ? std::optional<Peer>(std::move(peer)) : std::nullopt;
}

int Engine::event_fd() const noexcept { return impl_->queues().fd(); }

std::pair<Peer, Event> Engine::next_event(std::chrono::nanoseconds timeout) {
  std::pair<Peer, Event> result;
  const auto take = [&] {
    std::size_t taken = 0;
    result.first.impl_ = impl_->queues().take_any_event(result.second, taken);
    if (result.first.impl_ == nullptr) return false;
    result.first.impl_->event_taken(taken);
    return true;
  };
  if (take()) return result;
  if (timeout.count() <= 0) {
    impl_->lane().poll_once();
    take();
    return result;
  }
  const auto deadline = datapath::deadline_after(timeout);
  while (impl_->lane().wait_until([this] { return impl_->queues().any_events(); }, deadline)) {
    if (take()) break;
  }
  return result;
}

std::optional<Transfer> Engine::next_completed() {
  datapath::TransferImpl* done = impl_->queues().take_completed();
  if (done == nullptr) {
    impl_->lane().poll_once();
    done = impl_->queues().take_completed();
  }
  if (done == nullptr) return std::nullopt;
  return Transfer(done);
}

bool Engine::poll() noexcept { return impl_->lane().poll_once(); }

std::vector<DeviceInfo> Engine::devices() const { return impl_->devices(); }

std::vector<Peer> Engine::peers() const {
  std::vector<Peer> peers;
  for (auto& session : impl_->sessions()) {
    Peer peer;
    peer.impl_ = std::move(session);
    peers.push_back(std::move(peer));
  }
  return peers;
}

EngineStats Engine::stats() const { return impl_->stats(); }

}  // namespace fairlead
