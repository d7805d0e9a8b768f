// Send and receive queues: rings that a poster fills under the queue's mutex and the domain empties under its lock.
//
// Indices run freely and wrap at 2^32; the ring is a power of two. Entry, segments and inline bytes of a slot are
// written before tail is published and read after it was seen.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/spin_lock.h"
#include "verbs/soft/wire/psn.h"

namespace fairlead::soft {

struct SendWqe {
  std::uint64_t id = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;         // of a window to bind: its new one
  std::uint32_t immediate = 0;    // network byte order
  std::uint32_t invalidate = 0;   // rkey that a SEND with invalidate or a local invalidate ends
  std::uint64_t compare_add = 0;  // of an atomic
  std::uint64_t swap = 0;
  ibv_mw* window = nullptr;         // to bind, to remote_address and the three below
  std::uint32_t window_region = 0;  // its lkey: the region itself may be gone when the request's turn comes
  std::uint64_t window_length = 0;
  unsigned window_access = 0;  // ibv_access_flags
  ibv_ah* ah = nullptr;        // of a datagram, with the two below
  std::uint32_t remote_qpn = 0;
  std::uint32_t remote_qkey = 0;
  std::uint32_t length = 0;  // bytes
  std::uint32_t segments = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  bool signaled = false;
  bool solicited = false;
  bool fence = false;
  bool inlined = false;
  // Set when it starts.
  std::uint32_t packets = 0;  // PSNs it takes; for a READ those of its responses, none for a local operation
  bool executed = false;      // of a local operation: it waits for its turn to complete
  bool refers = false;        // its packets may refer to payload (rc/referring.h)
  std::uint32_t charge = 0;   // window bytes per packet
  Psn first;
  Psn messages_before;  // SendState::messages then

  void bind(ibv_mw* to_bind, std::uint32_t new_rkey, const ibv_mw_bind_info& info) noexcept {
    window = to_bind;
    rkey = new_rkey;
    window_region = info.mr != nullptr ? info.mr->lkey : 0;
    remote_address = info.addr;
    window_length = info.length;
    window_access = info.mw_access_flags;
  }

  [[nodiscard]] bool is_read() const noexcept { return opcode == IBV_WR_RDMA_READ; }
  [[nodiscard]] bool is_send() const noexcept {
    return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
  }
  [[nodiscard]] bool is_write() const noexcept {
    return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  [[nodiscard]] bool is_atomic() const noexcept {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  }
  /// Its responses, not an acknowledgement, complete it; max_rd_atomic bounds how many of these are in flight.
  [[nodiscard]] bool is_answered() const noexcept { return is_read() || is_atomic(); }
  /// Executed by the requester itself: nothing is sent.
  [[nodiscard]] bool is_local() const noexcept { return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW; }
  [[nodiscard]] bool has_immediate() const noexcept {
    return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  [[nodiscard]] Psn end() const noexcept { return first + packets; }
  [[nodiscard]] ibv_wc_opcode completion_opcode() const noexcept {
    switch (opcode) {
      case IBV_WR_RDMA_WRITE:
      case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
      case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
      case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
      case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
      case IBV_WR_LOCAL_INV:
        return IBV_WC_LOCAL_INV;
      case IBV_WR_BIND_MW:
        return IBV_WC_BIND_MW;
      default:
        return IBV_WC_SEND;
    }
  }
};

struct RecvWqe {
  std::uint64_t id = 0;
  std::uint64_t length = 0;
  std::uint32_t segments = 0;
};

template <typename Wqe>
class WorkQueue {
 public:
  WorkQueue(std::uint32_t entries, std::uint32_t max_segments, std::uint32_t max_inline)
      : mask_(std::bit_ceil(entries == 0 ? 1 : entries) - 1),
        limit_(entries == 0 ? 0 : mask_ + 1),
        max_segments_(max_segments),
        max_inline_(max_inline),
        entries_(mask_ + 1),
        segments_(std::size_t{mask_ + 1} * max_segments),
        inline_(std::size_t{mask_ + 1} * max_inline) {}

  [[nodiscard]] std::uint32_t capacity() const noexcept { return limit_; }
  /// Of the ring, a power of two: at least capacity().
  [[nodiscard]] std::uint32_t slots() const noexcept { return mask_ + 1; }
  [[nodiscard]] std::uint32_t max_segments() const noexcept { return max_segments_; }
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return max_inline_; }

  [[nodiscard]] Wqe& at(std::uint32_t index) noexcept { return entries_[index & mask_]; }
  [[nodiscard]] std::span<ibv_sge> segments(std::uint32_t index) noexcept {
    return {segments_.data() + std::size_t{index & mask_} * max_segments_, max_segments_};
  }
  [[nodiscard]] std::byte* inline_bytes(std::uint32_t index) noexcept {
    return inline_.data() + std::size_t{index & mask_} * max_inline_;
  }

  // Poster, under mutex.
  [[nodiscard]] bool full(std::uint32_t tail) const noexcept {
    return tail - head_.load(std::memory_order_acquire) >= limit_;
  }
  [[nodiscard]] std::uint32_t poster_tail() const noexcept { return tail_.load(std::memory_order_relaxed); }
  void publish(std::uint32_t tail) noexcept { tail_.store(tail, std::memory_order_release); }

  // Domain, under its lock.
  [[nodiscard]] std::uint32_t head() const noexcept { return head_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint32_t tail() const noexcept { return tail_.load(std::memory_order_acquire); }
  [[nodiscard]] bool empty() const noexcept { return head() == tail(); }
  [[nodiscard]] std::uint32_t size() const noexcept { return tail() - head(); }
  void pop() noexcept { head_.store(head() + 1, std::memory_order_release); }
  /// Forgets everything. Both locks held.
  void reset() noexcept { head_.store(tail()); }
  /// To `entries` or more, which must hold what is queued. Not of a queue with inline bytes. Both locks held.
  void resize(std::uint32_t entries) {
    WorkQueue other(entries, max_segments_, 0);
    for (std::uint32_t i = head(); i != tail(); ++i) {
      other.at(i) = at(i);
      std::ranges::copy(segments(i), other.segments(i).begin());
    }
    mask_ = other.mask_;
    limit_ = other.limit_;
    entries_.swap(other.entries_);
    segments_.swap(other.segments_);
  }

  SpinLock mutex;

 private:
  std::uint32_t mask_;
  std::uint32_t limit_;
  std::uint32_t max_segments_;
  std::uint32_t max_inline_;
  std::vector<Wqe> entries_;
  std::vector<ibv_sge> segments_;
  std::vector<std::byte> inline_;
  alignas(64) std::atomic<std::uint32_t> head_{0};
  alignas(64) std::atomic<std::uint32_t> tail_{0};
};

/// The receive request that a message fills, taken from its queue with the message's first packet.
struct CurrentReceive {
  bool taken = false;
  RecvWqe wqe;
  const ibv_pd* domain = nullptr;  // of the memory that the segments name
  std::vector<ibv_sge> segments;   // as many as a request of the queue may have
  [[nodiscard]] std::span<const ibv_sge> list() const noexcept { return {segments.data(), wqe.segments}; }

  /// From a queue that is not empty.
  void take(WorkQueue<RecvWqe>& queue, const ibv_pd& protection) noexcept {
    const std::uint32_t index = queue.head();
    wqe = queue.at(index);
    std::copy_n(queue.segments(index).data(), wqe.segments, segments.data());
    domain = &protection;
    taken = true;
    queue.pop();
  }
};

}  // namespace fairlead::soft
