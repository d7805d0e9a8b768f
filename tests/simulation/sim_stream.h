// A control connection without sockets: bytes that arrive later, in pieces of any size, and an end that ends it.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "datapath/session/control_stream.h"
#include "world.h"

namespace fairlead::simulation {

class SimStream final : public datapath::ControlStream {
  struct Pipe;

 public:
  /// The connection from outside, for who makes trouble; for as long as anybody wants it.
  class Line {
   public:
    /// Slips bytes into what end `hearer` hears.
    void slip(int hearer, const std::string& bytes) const { heard_[hearer]->arrived += bytes; }
    /// Nothing passes any more, and nobody is told: a machine that is gone, or a cable.
    void cut() const {
      for (const auto& pipe : heard_) pipe->cut = true;
    }
    [[nodiscard]] bool is_cut() const { return heard_[0]->cut; }
    /// The same, and this end is told.
    void reset(int end) const {
      cut();
      heard_[end]->reset = true;
    }
    /// What arrives at this end from now on is noise, and some is there at once.
    void garble(World& world, int hearer) const {
      heard_[hearer]->noise = true;
      heard_[hearer]->arrived += noise(world, 1 + world.below(40));
    }

   private:
    friend class SimStream;
    std::shared_ptr<Pipe> heard_[2];  // by end 0, by end 1
  };
  struct Pair {
    std::unique_ptr<SimStream> ends[2];
    Line line;
  };
  static Pair pair(World& world, const std::string& first = "10.0.0.1", const std::string& second = "10.0.0.2") {
    auto there = std::make_shared<Pipe>(), back = std::make_shared<Pipe>();
    Pair made;
    made.ends[0].reset(new SimStream(world, there, back, first, second));
    made.ends[1].reset(new SimStream(world, back, there, second, first));
    made.line.heard_[0] = back;
    made.line.heard_[1] = there;
    return made;
  }
  ~SimStream() override {
    world_.at(out_->last, [pipe = out_] { pipe->ended = true; });
    in_->ended = true;
  }

  IoResult send(std::span<iovec> pieces) noexcept override {
    const std::size_t room = kCapacity - std::min(kCapacity, out_->on_the_way + out_->arrived.size());
    const std::size_t size = std::min(pieces[0].iov_len, room);
    if (size == 0) return {0, EAGAIN};
    std::string bytes(static_cast<const char*>(pieces[0].iov_base), size);
    if (out_->noise) bytes = noise(world_, size);
    out_->on_the_way += size;
    out_->last = std::max(out_->last, world_.now() + microseconds(5 + world_.below(200)));
    world_.at(out_->last, [pipe = out_, bytes = std::move(bytes)] {
      if (pipe->cut) return;
      pipe->on_the_way -= bytes.size();
      pipe->arrived += bytes;
    });
    return {size, 0};
  }
  IoResult receive(std::span<iovec> pieces) noexcept override {
    if (in_->arrived.empty() && in_->reset) return {0, ECONNRESET};
    if (in_->arrived.empty()) return in_->ended && !in_->cut ? IoResult{0, 0} : IoResult{0, EAGAIN};
    std::size_t size = std::min(pieces[0].iov_len, in_->arrived.size());
    if (world_.chance(0.1)) size = 1 + world_.below(size);
    std::memcpy(pieces[0].iov_base, in_->arrived.data(), size);
    in_->arrived.erase(0, size);
    return {size, 0};
  }
  Result<bool> connected() override { return true; }
  std::string peer_host() const override { return peer_; }
  std::string local_host() const override { return local_; }
  std::string peer_address() const override { return peer_ + ":7400"; }

 private:
  static constexpr std::size_t kCapacity = 64 << 10;
  struct Pipe {
    std::string arrived;
    std::size_t on_the_way = 0;
    bool ended = false, cut = false, reset = false, noise = false;
    Clock::time_point last{};
  };
  SimStream(World& world, std::shared_ptr<Pipe> out, std::shared_ptr<Pipe> in, std::string local, std::string peer)
      : world_(world), out_(std::move(out)), in_(std::move(in)), local_(std::move(local)), peer_(std::move(peer)) {}

  static std::string noise(World& world, std::size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(world.bits());
    return bytes;
  }

  World& world_;
  std::shared_ptr<Pipe> out_, in_;
  std::string local_, peer_;
};

}  // namespace fairlead::simulation
