// The channels of a session at the server, and in which order each device runs its own: those of a higher priority
// first, those of one priority by turns.
//
// They stay where they are. Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "datapath/command/server_channel.h"

namespace fairlead::datapath::command {

/// Those of one device.
class ChannelOrder {
 public:
  [[nodiscard]] std::int32_t priority_of(const ServerChannel& channel) const noexcept {
    return priorities_[static_cast<std::size_t>(std::ranges::find(order_, &channel) - order_.begin())];
  }
  /// Behind those of its priority; a smaller number goes first.
  void insert(ServerChannel& channel, std::int32_t priority) {
    const auto at = std::ranges::upper_bound(priorities_, priority) - priorities_.begin();
    priorities_.insert(priorities_.begin() + at, priority);
    order_.insert(order_.begin() + at, &channel);
  }
  void remove(const ServerChannel& channel) {
    const auto at = std::ranges::find(order_, &channel) - order_.begin();
    order_.erase(order_.begin() + at);
    priorities_.erase(priorities_.begin() + at);
  }

  /// In the order in which they run, which the rest of this counts by, from 0.
  [[nodiscard]] std::span<ServerChannel* const> in_order() const noexcept { return order_; }
  /// Whether there are any of a higher priority.
  [[nodiscard]] bool gives_way(std::size_t at) const noexcept { return priorities_[at] > priorities_[0]; }
  /// Whether one of these has something that has not run.
  [[nodiscard]] bool any_waits_before(std::size_t at) const noexcept {
    for (std::size_t i = 0; i < at && priorities_[i] < priorities_[at]; ++i) {
      if (order_[i]->accepted() != order_[i]->executed()) return true;
    }
    return false;
  }
  /// It had its turn: it is the last of its priority.
  void had_turn(std::size_t at) noexcept {
    const auto end = std::ranges::upper_bound(priorities_, priorities_[at]) - priorities_.begin();
    std::rotate(order_.begin() + static_cast<std::ptrdiff_t>(at), order_.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                order_.begin() + end);
  }

 private:
  std::vector<ServerChannel*> order_;
  std::vector<std::int32_t> priorities_;  // of those, rising
};

class ServerChannels {
 public:
  /// Null: there is none.
  [[nodiscard]] ServerChannel* find(std::uint64_t number) noexcept {
    const auto found = channels_.find(number);
    return found != channels_.end() ? &found->second : nullptr;
  }
  /// The one of that number; if there is none it begins with this, at the first device and at priority 0. `late`: what
  /// that device is.
  [[nodiscard]] ServerChannel& open(std::uint16_t number, bool late) {
    const auto [at, is_new] = channels_.try_emplace(number, number);
    if (!is_new) return at->second;
    at->second.belongs_to(0, late);
    order_of(0).insert(at->second, 0);
    all_.push_back(&at->second);
    return at->second;
  }
  /// Before its first command.
  void place(ServerChannel& channel, std::size_t device, bool late, std::int32_t priority) {
    order_of(channel.device()).remove(channel);
    channel.belongs_to(device, late);
    order_of(device).insert(channel, priority);
  }
  void clear() noexcept {
    orders_.clear();
    all_.clear();
    channels_.clear();
  }

  [[nodiscard]] std::span<ServerChannel* const> all() const noexcept { return all_; }
  [[nodiscard]] ChannelOrder& order_of(std::size_t device) {
    if (orders_.size() <= device) orders_.resize(device + 1);
    return orders_[device];
  }

 private:
  std::map<std::uint64_t, ServerChannel> channels_;
  std::vector<ServerChannel*> all_;  // as they were opened
  std::deque<ChannelOrder> orders_;  // by device; who runs one holds it while another comes
};

}  // namespace fairlead::datapath::command
