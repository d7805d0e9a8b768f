// The requests that this end has accepted and not yet reported: numbered from 0, sent, acknowledged and reported in
// that order. Also keeps the bytes of messages until they are in the kernel's hands.
// Storage is allocated once. Threads: the driving thread.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/path.h"

namespace fairlead::tcp_fallback {

inline constexpr std::size_t kMaxSegments = 16;

struct Request {
  std::uint64_t id = 0;
  datapath::OpKind kind = datapath::OpKind::kWrite;
  Code code = Code::kOk;       // not ok: it failed on this side, whatever the peer says
  bool undeliverable = false;  // message: it was sent as such
  std::uint32_t segment_count = 0;
  std::uint64_t length = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t remote_key = 0;                // message: refusals known when it was posted
  std::uint64_t known_first = 0;               // message: requests before this number were reported when it was posted
  std::uint64_t received = 0;                  // read: bytes that have come back
  std::uint64_t message_end = 0;               // message: the end of its bytes in the store
  std::array<iovec, kMaxSegments> segments{};  // message: one, in the store
};

/// Fills `pieces` with up to `length` bytes of the request's memory from `offset` on; returns how many pieces.
[[nodiscard]] std::size_t slice(const Request& request, std::uint64_t offset, std::uint64_t length,
                                std::span<iovec> pieces) noexcept;
/// Cuts `pieces` down to `most` bytes: how many of them are left, the last perhaps shorter; `bytes`: of all of those.
[[nodiscard]] std::size_t limit(std::span<iovec> pieces, std::size_t most, std::size_t& bytes) noexcept;

class RequestQueue {
 public:
  explicit RequestQueue(std::uint32_t depth);
  /// No deeper than this, either. Before the first push().
  void limit(std::uint32_t depth) noexcept { depth_ = std::min(depth_, depth); }
  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }

  /// False: full. A request that no peer could serve (too many segments, too long a message, lengths that overflow)
  /// is accepted and becomes an empty write with a local verdict, so that it is reported in its turn.
  bool push(const datapath::WorkRequest& work) noexcept;

  // first_ <= sent_ <= end_: [first_, sent_) wait for the peer, [sent_, end_) wait to be sent.
  [[nodiscard]] bool empty() const noexcept { return first_ == end_; }
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
  /// Good until the next push().
  [[nodiscard]] Request& at(std::uint64_t seq) noexcept { return slots_[seq & (slots_.size() - 1)]; }

  /// Every byte of the oldest unsent request is in the kernel's hands.
  void mark_sent() noexcept;
  /// The sent request whose number ends in these 32 bits; nothing if none waits.
  [[nodiscard]] std::optional<std::uint64_t> find_sent(std::uint32_t seq) const noexcept;
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  void pop() noexcept { ++first_; }
  /// The peer refused a write, and said so.
  void count_refusal() noexcept { ++refusals_; }
  /// What the peer may say instead of ok: a write or read was refused; a message was turned away behind a write that
  /// was, of which we were told before. Anything else would make a request neither done nor failed.
  [[nodiscard]] bool may_end_with(const Request& request, Code code) const noexcept {
    if (request.kind != datapath::OpKind::kMessage) return code == Code::kProtectionError;
    return code == Code::kAborted && (request.undeliverable || request.remote_key < refusals_);
  }

  /// Called for what is sent, in order: request `seq` failed on this side.
  void mark_lost(std::uint64_t seq) noexcept { lost_end_ = std::max(lost_end_, seq + 1); }
  /// Whether message `seq` was posted behind such a request, by a user who could not know.
  [[nodiscard]] bool behind_lost(std::uint64_t seq) noexcept {
    return at(seq).known_first < lost_end_ && lost_end_ <= seq;
  }

 private:
  static constexpr std::size_t kStoreBytes = 256 * 1024;
  static constexpr std::size_t kFirstSlots = 16;

  bool grow() noexcept;
  [[nodiscard]] std::byte* store(std::uint64_t bytes) noexcept;

  std::uint32_t depth_;
  std::vector<Request> slots_;  // a power of two; as many as were needed at once, up to depth_
  std::uint64_t first_ = 0, sent_ = 0, end_ = 0;
  std::uint64_t refusals_ = 0;
  std::uint64_t lost_end_ = 0;  // one past the last request that was marked lost

  // A ring of bytes, positions counted from 0; a message never wraps around its end.
  std::unique_ptr<std::byte[]> store_;
  std::uint64_t store_first_ = 0, store_end_ = 0;
};

}  // namespace fairlead::tcp_fallback
