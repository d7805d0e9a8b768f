// The channels of a session at the server, and in which order they run: those of a higher priority first, those of one
// priority by turns.
//
// They stay where they are. Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "datapath/command/server_channel.h"

namespace fairlead::datapath::command {

class ServerChannels {
 public:
  /// Null: there is none.
  [[nodiscard]] ServerChannel* find(std::uint64_t number) noexcept {
    const auto found = channels_.find(number);
    return found != channels_.end() ? &found->second : nullptr;
  }
  /// The one of that number, which begins with this if there is none.
  [[nodiscard]] ServerChannel& open(std::uint16_t number, bool late) {
    const auto [at, is_new] = channels_.try_emplace(number, number, late);
    if (is_new) insert(at->second);
    return at->second;
  }
  /// A smaller number goes first.
  void set_priority(ServerChannel& channel, std::int32_t priority) {
    std::erase(order_, &channel);
    channel.set_priority(priority);
    insert(channel);
  }
  void clear() noexcept {
    order_.clear();
    channels_.clear();
  }

  /// In the order in which they run.
  [[nodiscard]] std::span<ServerChannel* const> in_order() const noexcept { return order_; }
  /// Whether those before it have something to run, of which there is none in a session of one priority.
  [[nodiscard]] bool any_waits_before(const ServerChannel& channel) const noexcept {
    for (const ServerChannel* const before : order_) {
      if (before->priority() >= channel.priority()) return false;
      if (before->waiting() != 0) return true;
    }
    return false;
  }
  [[nodiscard]] bool is_first_level(const ServerChannel& channel) const noexcept {
    return order_.front()->priority() >= channel.priority();
  }
  /// It had its turn: it is the last of its priority.
  void had_turn(const ServerChannel& channel) noexcept {
    const auto level = std::ranges::equal_range(order_, channel.priority(), {}, &ServerChannel::priority);
    const auto own = std::ranges::find(level, &channel);
    if (own != level.end()) std::rotate(level.begin(), own + 1, level.end());
  }

 private:
  void insert(ServerChannel& channel) {
    order_.insert(std::ranges::upper_bound(order_, channel.priority(), {}, &ServerChannel::priority), &channel);
  }

  std::map<std::uint64_t, ServerChannel> channels_;
  std::vector<ServerChannel*> order_;
};

}  // namespace fairlead::datapath::command
