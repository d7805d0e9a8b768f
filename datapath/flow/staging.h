// Staged mode: one-sided operations by message, over a path that has none.
//
// A write crosses as messages {region, offset, bytes}; the target copies and acknowledges. A read crosses as a request
// and is answered by messages. Operations are numbered per path; acknowledgements are cumulative, but for a refused
// one, which is acknowledged by itself with its code. Where the region is memory of a GPU the target copies later, and
// acknowledges then (device_target.h). The path's message credits bound what is under way towards a
// receiver, kWindow and kReads what a sender has unacknowledged. With the path goes the numbering: reset(). No input or
// output, no time. Threads: the driver. Errors of a peer that breaks the protocol are words in `why`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datapath/flow/device_target.h"
#include "datapath/lane/ring.h"
#include "datapath/protocol/path_messages.h"
#include "datapath/region/regions.h"
#include "datapath/transfer/transfer_impl.h"

namespace fairlead::datapath::staging {

inline constexpr std::size_t kWindow = 256;
inline constexpr std::size_t kReads = 16;
inline constexpr std::uint64_t kReadBytes = 65536;

/// What this end does for the peer.
class Target {
 public:
  /// Hands a message to the path; false: it has no room now.
  using Send = std::function<bool(const PathMessage&)>;

  /// `device`: who reaches memory of GPUs, and outlives this; null: nobody.
  explicit Target(DeviceTarget* device = nullptr) noexcept : device_(device) {}
  ~Target() { reset(); }

  /// Places the bytes, or notes why not. False: the peer broke the protocol.
  [[nodiscard]] bool on_write(const PathMessage& message, const RegionTable::View& regions, std::string& why);
  /// Notes what is to be read. False as above.
  [[nodiscard]] bool on_read(const PathMessage& message, std::string& why);
  /// Sends what is owed: refusals, the cumulative acknowledgement, data of reads in messages of `max_message` bytes.
  void pump(const RegionTable::View& regions, std::size_t max_message, const Send& send);
  [[nodiscard]] bool owes() const noexcept {
    return acknowledged_ < placed() || !refused_.empty() || !replies_.empty();
  }
  /// There is something for pump() to do, which may be nothing that the peer is told.
  [[nodiscard]] bool has_work() const noexcept { return owes() || acknowledged_ != handled_; }
  /// A copy for the peer is under way.
  [[nodiscard]] bool copies() const noexcept;
  void reset();

 private:
  struct Reply {
    std::uint64_t sequence = 0, region = 0, offset = 0;
    std::uint32_t length = 0, sent = 0;
    bool is_begun = false;                     // it is known whether it is of a device
    std::unique_ptr<SlotCopy> copy = nullptr;  // then: what is sent from
  };

  /// Up to here all is placed, or refused.
  [[nodiscard]] std::uint64_t placed() const noexcept {
    const std::uint64_t oldest = device_ != nullptr ? device_->oldest_write() : 0;
    return oldest != 0 ? oldest - 1 : handled_;
  }
  void refuse(std::uint64_t sequence, Code code);
  /// False: the path has no room.
  bool acknowledge(const Send& send);
  void begin_reads(const RegionTable::View& regions);
  /// False: the path has no room, or what is to be sent is not there yet.
  bool send_data(Reply& reply, const RegionTable::View& regions, std::size_t room, const Send& send);

  DeviceTarget* const device_;
  std::uint64_t handled_ = 0;  // the last operation taken
  std::uint64_t acknowledged_ = 0;
  Ring<std::pair<std::uint64_t, Code>> refused_;  // in order
  Ring<Reply> replies_;
  std::vector<std::byte> buffer_;
};

/// What this end asked of the peer.
class Initiator {
 public:
  struct Operation {
    TransferImpl* transfer = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t sequence = 0;
    std::uint64_t at = 0;  // where in the transfer's byte order it begins
    bool is_read = false;
    std::uint64_t received = 0;  // of a read
    bool done = false;
    Code code = Code::kOk;  // of a write whose source was gone, before it is answered
    Cursor cursor = {};     // of a read: where its next bytes go; at first where `at` is
  };
  using Ended = std::function<void(const Operation&)>;

  /// Whether one more may be begun while so many that have a number were not pushed yet.
  [[nodiscard]] bool has_room(bool read, std::size_t unposted, std::size_t unposted_reads) const noexcept {
    return operations_.size() + unposted < kWindow && (!read || reads_ + unposted_reads < kReads);
  }
  [[nodiscard]] std::uint64_t take_number() noexcept { return next_++; }
  /// The path did not take it, nor what has later numbers.
  void give_back(std::uint64_t number) noexcept { next_ = number; }
  void push(const Operation& operation);

  /// False: the peer broke the protocol.
  [[nodiscard]] bool on_ack(const PathMessage& message, std::string& why);
  [[nodiscard]] bool on_data(const PathMessage& message, std::string& why);
  /// Whether an answer since the last look ended an operation, or brought bytes of one: a peer may say more than that.
  [[nodiscard]] bool take_news() noexcept { return std::exchange(has_news_, false); }
  /// Those that ended, in the order in which they were begun.
  void retire(const Ended& ended);
  /// The path is gone: what had not ended is aborted.
  void reset(const Ended& ended);

 private:
  Ring<Operation> operations_;
  std::uint64_t next_ = 1;
  std::size_t reads_ = 0;  // of operations_
  bool has_news_ = false;
};

}  // namespace fairlead::datapath::staging
