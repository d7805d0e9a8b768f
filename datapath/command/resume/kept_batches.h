// Batches of a channel that its service may not have: they are said again if the client's peer is lost with them.
//
// Ownership: copies of the messages, whose memory is used again. At most what credits allow. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "datapath/command/codec.h"

namespace fairlead::datapath::command {

class KeptBatches {
 public:
  struct Batch {
    std::uint64_t first = 0, last = 0;  // commands
    std::vector<std::byte> message;
  };

  void add(std::uint64_t first, std::uint64_t last, Bytes message) {
    std::vector<std::byte> copy;
    if (!spare_.empty()) {
      copy = std::move(spare_.back());
      spare_.pop_back();
    }
    copy.assign(message.begin(), message.end());
    batches_.push_back({first, last, std::move(copy)});
  }
  /// The service has them, up to that command's.
  void accepted(std::uint64_t last) {
    for (; !batches_.empty() && batches_.front().last <= last; batches_.pop_front()) {
      if (spare_.size() < kSpare) spare_.push_back(std::move(batches_.front().message));
    }
  }
  [[nodiscard]] const std::deque<Batch>& all() const noexcept { return batches_; }

 private:
  static constexpr std::size_t kSpare = 32;

  std::deque<Batch> batches_;
  std::vector<std::vector<std::byte>> spare_;
};

}  // namespace fairlead::datapath::command
