// A control connection without sockets: bytes that arrive later, in pieces of any size, and an end that ends it.
#pragma once

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "datapath/session/control_stream.h"
#include "world.h"

namespace fairlead::simulation {

class SimStream final : public datapath::ControlStream {
 public:
  /// Both ends of one connection.
  static std::pair<std::unique_ptr<SimStream>, std::unique_ptr<SimStream>> pair(World& world) {
    auto there = std::make_shared<Pipe>(), back = std::make_shared<Pipe>();
    return {std::unique_ptr<SimStream>(new SimStream(world, there, back, "10.0.0.2")),
            std::unique_ptr<SimStream>(new SimStream(world, back, there, "10.0.0.1"))};
  }
  ~SimStream() override {
    world_.at(out_->last, [pipe = out_] { pipe->ended = true; });
    in_->ended = true;
  }

  /// A way to slip bytes into what this end hears, for as long as anybody wants it.
  [[nodiscard]] std::function<void(const std::string&)> tap() const {
    return [pipe = in_](const std::string& bytes) { pipe->arrived += bytes; };
  }

  IoResult send(std::span<iovec> pieces) noexcept override {
    const std::size_t room = kCapacity - std::min(kCapacity, out_->on_the_way + out_->arrived.size());
    const std::size_t size = std::min(pieces[0].iov_len, room);
    if (size == 0) return {0, EAGAIN};
    std::string bytes(static_cast<const char*>(pieces[0].iov_base), size);
    out_->on_the_way += size;
    out_->last = std::max(out_->last, world_.now() + microseconds(5 + world_.below(200)));
    world_.at(out_->last, [pipe = out_, bytes = std::move(bytes)] {
      pipe->on_the_way -= bytes.size();
      pipe->arrived += bytes;
    });
    return {size, 0};
  }
  IoResult receive(std::span<iovec> pieces) noexcept override {
    if (in_->arrived.empty()) return in_->ended ? IoResult{0, 0} : IoResult{0, EAGAIN};
    std::size_t size = std::min(pieces[0].iov_len, in_->arrived.size());
    if (world_.chance(0.1)) size = 1 + world_.below(size);
    std::memcpy(pieces[0].iov_base, in_->arrived.data(), size);
    in_->arrived.erase(0, size);
    return {size, 0};
  }
  Result<bool> connected() override { return true; }
  std::string peer_host() const override { return peer_; }
  std::string local_host() const override { return peer_ == "10.0.0.2" ? "10.0.0.1" : "10.0.0.2"; }
  std::string peer_address() const override { return peer_ + ":7400"; }

 private:
  static constexpr std::size_t kCapacity = 64 << 10;
  struct Pipe {
    std::string arrived;
    std::size_t on_the_way = 0;
    bool ended = false;
    Clock::time_point last{};
  };
  SimStream(World& world, std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> in, std::string peer)
      : world_(world), out_(std::move(out)), in_(std::move(in)), peer_(std::move(peer)) {}

  World& world_;
  std::shared_ptr<Pipe> out_, in_;
  std::string peer_;
};

}  // namespace fairlead::simulation
