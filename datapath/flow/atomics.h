// Atomics by message: what an operation on a word does at its target, and what asked for it until the outcome is here.
//
// An atomic and its outcome are sequenced messages: each comes once, whatever becomes of the paths, so the target's
// lane carries each operation out once. The word is the target's CPU's: its own std::atomic_ref works beside it. The
// outcome names the atomic by a ticket, which stays the same when it is said again. Pure. Threads: the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datapath/protocol/path_messages.h"
#include "datapath/region/regions.h"
#include "datapath/transfer/transfer_impl.h"

namespace fairlead::datapath::atomics {

inline constexpr std::size_t kOperandBytes = 16;

struct Outcome {
  Code code = Code::kOk;
  std::uint64_t held = 0;  // by the word, before
};

/// Carries out what the peer asks for. None: it broke the protocol; `why` says how.
[[nodiscard]] std::optional<Outcome> carry_out(const PathMessage& message, const RegionTable::View& regions,
                                               std::string& why);

/// Makes `message` say what is added, or put in, and what a swap compares with.
void put_operands(std::vector<std::byte>& message, std::uint64_t value, std::uint64_t expected);

/// Those of ours that have a ticket, and whose outcome has not come.
class Awaited {
 public:
  static constexpr std::size_t kMost = 256;  // at a time

  [[nodiscard]] bool has_room() const noexcept { return slots_.empty() || slots_[next_ % kMost] == nullptr; }
  /// Gives it a ticket; has_room().
  void add(TransferImpl& transfer) {
    if (slots_.empty()) slots_.resize(kMost);
    slots_[next_ % kMost] = &transfer;
    transfer.ticket = next_++;
  }
  /// Null: there is none of this ticket.
  [[nodiscard]] TransferImpl* find(std::uint64_t ticket) const noexcept {
    TransferImpl* const found = slots_.empty() ? nullptr : slots_[ticket % kMost];
    return found != nullptr && found->ticket == ticket ? found : nullptr;
  }
  void remove(const TransferImpl& transfer) noexcept {
    if (find(transfer.ticket) == &transfer) slots_[transfer.ticket % kMost] = nullptr;
  }

 private:
  std::vector<TransferImpl*> slots_;  // by ticket; empty until the first
  std::uint64_t next_ = 1;
};

}  // namespace fairlead::datapath::atomics
