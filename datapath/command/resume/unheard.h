// What a channel's copy-outs gave and its client has not said to have: messages whose headers are not written yet, kept
// for a client that lost them with its peer.
//
// Ownership: the bytes. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "datapath/command/wire.h"

namespace fairlead::datapath::command {

class UnheardResults {
 public:
  struct Result {
    std::uint64_t sequence = 0;
    std::vector<std::byte> message;
  };

  /// What one counts for.
  static std::uint64_t cost(const std::vector<std::byte>& message) noexcept {
    return message.size() - sizeof(MessageHeader) + kResultCost;
  }

  /// In the order of sequences.
  void add(std::uint64_t sequence, std::vector<std::byte> message) {
    bytes_ += cost(message);
    results_.push_back({sequence, std::move(message)});
  }
  /// The client has what that command and those before it gave.
  void heard(std::uint64_t sequence) noexcept {
    for (; !results_.empty() && results_.front().sequence <= sequence; results_.pop_front()) {
      bytes_ -= cost(results_.front().message);
    }
  }
  /// The same of all.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::deque<Result>& results() noexcept { return results_; }

  /// Beside these: up to which command payload has come, which is not to be sent again.
  std::uint64_t last_payload = 0;

 private:
  std::deque<Result> results_;
  std::uint64_t bytes_ = 0;
};

}  // namespace fairlead::datapath::command
