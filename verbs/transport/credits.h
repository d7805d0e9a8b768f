// Flow control of messages: nothing is sent into a queue pair that has no buffer for it, so RNR never happens.
//
// Each end owns R message buffers and K control buffers (one receive queue; the numbers are what counts). A message
// takes one message credit of the peer, a credit message one control credit. Buffers that were posted again are *owed*
// to the peer; every message and credit message carries all that is owed. When half of either kind is owed, a credit
// message is sent even if there is no message to carry it.
//
// No deadlock: the last control credit is spent only on a credit message that itself returns at least two. So when
// nothing is in flight, either end that lacks credits faces an end that owes at least half of K, holds a control credit
// that it may spend, and therefore speaks (K >= 4). No storm: a credit message that returns only control credits
// returns at least K/2 >= 2 and costs one.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <utility>

namespace fairlead::verbs {

/// Buffers that are free again, as carried by a message header.
struct CreditReturn {
  std::uint32_t messages = 0;
  std::uint32_t controls = 0;
};

class Credits {
 public:
  Credits() noexcept = default;
  /// Ours: what we posted. Theirs: what the peer announced.
  Credits(std::uint32_t our_messages, std::uint32_t our_controls, std::uint32_t their_messages,
          std::uint32_t their_controls) noexcept
      : our_messages_(our_messages),
        our_controls_(our_controls),
        their_messages_(their_messages),
        their_controls_(their_controls),
        messages_(their_messages),
        controls_(their_controls) {}

  /// Takes the credit for one message; false: none left.
  [[nodiscard]] bool take_message() noexcept {
    if (messages_ == 0) return false;
    --messages_;
    return true;
  }
  /// Takes the credit for one credit message; false: none that may be spent now.
  [[nodiscard]] bool take_control() noexcept {
    if (controls_ < 2 && !(controls_ == 1 && owed_.controls >= 2)) return false;
    --controls_;
    return true;
  }

  /// Our buffers were posted again.
  void freed(CreditReturn buffers) noexcept {
    owed_.messages += buffers.messages;
    owed_.controls += buffers.controls;
  }
  /// Half of a kind is owed: say so even without a message to carry it.
  [[nodiscard]] bool worth_returning() const noexcept {
    return owed_.messages * 2 >= our_messages_ + 1 || owed_.controls * 2 >= our_controls_;
  }
  /// All that is owed, which the caller now sends.
  [[nodiscard]] CreditReturn take_owed() noexcept { return std::exchange(owed_, {}); }

  /// The peer returned credits; false: more than it has buffers (it broke the protocol; nothing was added).
  [[nodiscard]] bool add(CreditReturn returned) noexcept {
    if (returned.messages > their_messages_ - messages_ || returned.controls > their_controls_ - controls_)
      return false;
    messages_ += returned.messages;
    controls_ += returned.controls;
    return true;
  }

  [[nodiscard]] std::uint32_t messages() const noexcept { return messages_; }
  [[nodiscard]] std::uint32_t controls() const noexcept { return controls_; }

 private:
  std::uint32_t our_messages_ = 0, our_controls_ = 0;
  std::uint32_t their_messages_ = 0, their_controls_ = 0;
  std::uint32_t messages_ = 0, controls_ = 0;  // what we may send
  CreditReturn owed_;
};

}  // namespace fairlead::verbs
