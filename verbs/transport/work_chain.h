// Work requests that are being put together for one doorbell.
//
// Storage for the longest list that fits a send queue, made once; shared by the paths of a transport, since one thread
// drives them and a list never outlives the call that builds it.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/guarded.h"
#include "verbs/transport/queue_limits.h"

namespace fairlead::verbs {

class WorkChain {
 public:
  static constexpr std::uint32_t kMostInline = 4096;  // no more than a page, which begins and ends in two at most

  explicit WorkChain(const QueueLimits& limits)
      : requests_(limits.send_slots()), segments_(std::size_t{limits.send_slots()} * limits.max_segments) {}

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] ibv_send_wr* first() noexcept { return requests_.data(); }
  [[nodiscard]] ibv_send_wr& last() noexcept { return requests_[size_ - 1]; }

  void clear() noexcept {
    size_ = segments_used_ = 0;
    inline_begin_ = std::numeric_limits<std::uint64_t>::max();
    inline_end_ = 0;
  }
  /// A request at the end, linked to the one before. What its opcode wants beside flags and segments is to be set; the
  /// rest is zero, or another's.
  ibv_send_wr& append() noexcept {
    ibv_send_wr& request = requests_[size_];
    request.next = nullptr;
    request.sg_list = &segments_[segments_used_];
    request.num_sge = 0;
    request.send_flags = 0;
    if (size_ > 0) requests_[size_ - 1].next = &request;
    ++size_;
    return request;
  }
  /// One more segment of the last request.
  void add_segment(const std::byte* data, std::uint32_t length, std::uint32_t lkey) noexcept {
    segments_[segments_used_++] = {reinterpret_cast<std::uintptr_t>(data), length, lkey};
    ++last().num_sge;
  }
  /// The last request goes inline if it can: whoever posts it copies its data, kMostInline at most.
  void set_inline() noexcept {
    ibv_send_wr& request = last();
    request.send_flags |= IBV_SEND_INLINE;
    for (int i = 0; i < request.num_sge; ++i) guard(request.sg_list[i]);
  }
  /// A signalless write of one segment, which goes inline if it can: append(), add_segment() and set_inline() in one.
  void append_small_write(std::uint64_t id, const std::byte* data, std::uint32_t length, std::uint32_t lkey,
                          std::uint64_t remote_address, std::uint32_t remote_key) noexcept {
    ibv_sge& segment = segments_[segments_used_++];
    segment = {reinterpret_cast<std::uintptr_t>(data), length, lkey};
    ibv_send_wr& request = requests_[size_];
    request.wr_id = id;
    request.next = nullptr;
    request.sg_list = &segment;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_INLINE;
    request.wr.rdma.remote_addr = remote_address;
    request.wr.rdma.rkey = remote_key;
    if (size_ > 0) requests_[size_ - 1].next = &request;
    ++size_;
    guard(segment);
  }
  /// Requests whose memory is gone do not go inline, where copying would fault: the device says it instead.
  void keep_inline_what_is_there() noexcept {
    if (inline_end_ == 0) return;
    // One guard for all of them, where they lie together; which it was is asked only where there is one.
    const std::uint64_t range = inline_end_ - inline_begin_;
    const bool all = range <= kMostGuarded && attempt(bytes_at(inline_begin_), range, [this] {
                       for (std::size_t i = 0; i < size_; ++i) touch_inline(requests_[i]);
                     });
    for (std::size_t i = 0; !all && i < size_; ++i) {
      ibv_send_wr& request = requests_[i];
      if ((request.send_flags & IBV_SEND_INLINE) == 0) continue;
      const bool there = std::all_of(request.sg_list, request.sg_list + request.num_sge,
                                     [](const ibv_sge& each) { return readable(bytes_at(each.addr), each.length); });
      if (!there) request.send_flags &= ~unsigned{IBV_SEND_INLINE};
    }
  }

 private:
  /// It goes inline: what keep_inline_what_is_there() guards reaches as far.
  void guard(const ibv_sge& segment) noexcept {
    inline_begin_ = std::min<std::uint64_t>(inline_begin_, segment.addr);
    inline_end_ = std::max<std::uint64_t>(inline_end_, segment.addr + segment.length);
  }
  /// verbs hands addresses as numbers.
  static const std::byte* bytes_at(std::uint64_t address) noexcept {
    return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  static void touch_inline(const ibv_send_wr& request) noexcept {
    if ((request.send_flags & IBV_SEND_INLINE) == 0) return;
    for (int i = 0; i < request.num_sge; ++i) {
      const ibv_sge& each = request.sg_list[i];
      touch(bytes_at(each.addr));
      touch(bytes_at(each.addr + each.length - 1));
    }
  }

  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> segments_;
  std::size_t size_ = 0;
  std::size_t segments_used_ = 0;
  std::uint64_t inline_begin_ = 0, inline_end_ = 0;  // where all that goes inline lies; end 0: nothing does
};

}  // namespace fairlead::verbs
