// One channel of a session at the server: what came and has not run, how far it got, and what is to be said of it.
//
// Its records are well formed and within the credits before they are here. Sequences are the client's, from 1, without
// gaps. Ownership: batches and payload are kept until they have run. Threads: one at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "datapath/command/codec.h"
#include "datapath/command/device/channel_place.h"
#include "datapath/command/device/copy_across.h"
#include "datapath/command/resume/unheard.h"
#include "fairlead/command_service.h"

namespace fairlead::datapath::command {

/// What copy-outs give when they are complete: messages whose headers are not written yet. They stay where they are.
class PendingResults {
 public:
  struct Result {
    std::uint64_t sequence = 0;
    std::vector<std::byte> message;
  };
  void add(std::uint64_t sequence, std::vector<std::byte> message) {
    bytes_ += UnheardResults::cost(message);
    results_.push_back({sequence, std::move(message)});
  }
  /// What they count for: also one of no bytes is kept.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// The first, if it is of a command up to that one.
  [[nodiscard]] std::optional<Result> take(std::uint64_t complete);

 private:
  std::deque<Result> results_;
  std::uint64_t bytes_ = 0;
};

/// What goes with a command of a channel.
struct Payload {
  std::uint64_t sequence = 0;
  std::vector<std::byte> message;  // that holds it
  Bytes bytes;
  bool is_placed = false;  // where the client may write: there it stays for who keeps it until the command has run

  static Payload sent(std::uint64_t sequence, std::vector<std::byte> message, std::size_t at) {
    const Bytes bytes = Bytes(message).subspan(at);  // where it lies, also when the vector is another's
    return {sequence, std::move(message), bytes};
  }
  static Payload placed(std::uint64_t sequence, Bytes bytes) { return {sequence, {}, bytes, true}; }
};

class ServerChannel : public ChannelPlace {
 public:
  using Clock = std::chrono::steady_clock;

  using ChannelPlace::ChannelPlace;

  [[nodiscard]] std::uint64_t accepted() const noexcept { return accepted_; }
  [[nodiscard]] std::uint64_t executed() const noexcept { return executed_; }
  [[nodiscard]] std::uint64_t complete() const noexcept { return complete_; }
  [[nodiscard]] std::uint64_t payload_bytes() const noexcept { return payload_bytes_; }
  [[nodiscard]] const std::optional<fairlead::command::Failure>& failure() const noexcept { return failure_; }

  /// Records that begin at `at` of `message`.
  void add_batch(std::vector<std::byte> message, std::size_t at, std::uint32_t count);
  /// False: the payload of that command, or of a later one, is here.
  [[nodiscard]] bool add_payload(Payload payload);

  /// The next record, of number executed() + 1; nothing: there is none. It stays until advance().
  [[nodiscard]] const Record* front() noexcept {
    if (!front_ && !batches_.empty()) front_ = next_record(batches_.front().rest);
    return front_ ? &*front_ : nullptr;
  }
  /// It has run, or was passed over.
  void advance() noexcept;
  /// As front() and advance() for one record after the other, while `run(record, sequence)` says that it ran, at most
  /// so many, up to a full reply. How many that were; the one that did not is the next.
  template <typename Run>
  std::uint32_t advance_while(std::uint32_t most, Run run);
  /// Its payload. Null: it has not come.
  [[nodiscard]] const Payload* payload() const noexcept;
  /// The payload that came first is another record's: the client left one out.
  [[nodiscard]] bool lacks_payload() const noexcept;

  /// Whether the next record may copy; once it might, it may, though it is put off.
  template <typename May>
  [[nodiscard]] bool pays_once(May may) {
    if (paid_ != executed_ + 1 && may()) paid_ = executed_ + 1;
    return paid_ == executed_ + 1;
  }

  /// That command is the first that failed since the last recovery. Later ones are of no interest; but a context that
  /// is lost is, whatever failed before.
  void fail(fairlead::command::Outcome outcome, std::uint64_t sequence);
  void recover();
  /// Why that command did not run; null: it did, or its turn has not come.
  [[nodiscard]] const fairlead::command::Failure* passed_over(std::uint64_t sequence) const noexcept;

  // Of a device that works by itself.
  /// The next command was told to the executor.
  void begin() noexcept { begun_ = executed_ + 1; }
  /// The device is past that command. Whether that is further than was known.
  bool reach(std::uint64_t sequence) noexcept;
  /// Bytes that copy-outs that were begun are to give, what they gave and its client may not have, and what comes from
  /// another device.
  struct Results {
    PendingResults pending;
    UnheardResults unheard;
    CopyAcross across;
  };
  [[nodiscard]] Results& results() noexcept { return results_; }

  // What the client is to hear.
  void add_data(std::uint64_t sequence, Bytes bytes) {
    put_data(data_, sequence, bytes);
    ++items_;
    news_ = true;
  }
  [[nodiscard]] bool owes_reply() const noexcept { return news_; }
  /// Whether to say it now although more could run.
  [[nodiscard]] bool reply_is_full() const noexcept {
    return unreported_ >= kCommandsPerReply || data_.size() >= kReplyBytes;
  }
  [[nodiscard]] bool is_old(Clock::time_point now, Clock::duration most) noexcept;
  /// Into `message`, whose room is used again.
  void take_reply(std::vector<std::byte>& message);

  // Of a session that its client may go on with over another peer.
  /// All of that is news again, but for results; so is a failure, unless the client was told of this one.
  void say_again(std::uint64_t failed, std::uint64_t scope) noexcept;

 private:
  struct Batch {
    std::vector<std::byte> message;
    Bytes rest;  // of it, from the next record on
    std::uint32_t left = 0;
  };

  /// So many more have run, of one batch.
  void passed(std::uint32_t count) noexcept;

  std::deque<Batch> batches_;
  std::deque<Payload> payload_;
  std::uint64_t payload_bytes_ = 0;
  std::optional<Record> front_;
  std::uint64_t accepted_ = 0, executed_ = 0, complete_ = 0;
  std::uint64_t begun_ = 0, paid_ = 0;
  Results results_;
  std::optional<fairlead::command::Failure> failure_;
  bool failure_said_ = false;
  struct Gap {
    fairlead::command::Failure why;
    std::uint64_t end = 0;  // the recovery
  };
  std::deque<Gap> gaps_;                     // the latest
  bool news_ = false;                        // something is unreported
  std::uint32_t unreported_ = 0;             // commands
  std::optional<Clock::time_point> oldest_;  // of what is unreported, when it was looked at
  std::vector<std::byte> data_;
  std::uint32_t items_ = 0;
};

template <typename Run>
std::uint32_t ServerChannel::advance_while(std::uint32_t most, Run run) {
  if (front_ || batches_.empty() || unreported_ >= kCommandsPerReply) return 0;
  Batch& batch = batches_.front();
  most = std::min({most, batch.left, kCommandsPerReply - unreported_});
  Bytes rest = batch.rest;
  std::uint32_t ran = 0;
  for (; ran < most; ++ran) {
    if (!run(next_record(rest), executed_ + ran + 1)) break;
    batch.rest = rest;
  }
  if (ran != 0) passed(ran);
  return ran;
}

}  // namespace fairlead::datapath::command
