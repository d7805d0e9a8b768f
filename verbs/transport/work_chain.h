// Work requests that are being put together for one doorbell.
//
// Storage for the longest list that fits a send queue, made once; shared by the paths of a transport, since one thread
// drives them and a list never outlives the call that builds it.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/guarded.h"
#include "verbs/transport/queue_limits.h"

namespace fairlead::verbs {

class WorkChain {
 public:
  explicit WorkChain(const QueueLimits& limits)
      : requests_(limits.send_slots()), segments_(std::size_t{limits.send_slots()} * limits.max_segments) {}

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] ibv_send_wr* first() noexcept { return requests_.data(); }
  [[nodiscard]] ibv_send_wr& last() noexcept { return requests_[size_ - 1]; }

  void clear() noexcept { size_ = segments_used_ = 0; }
  /// A zeroed request at the end, linked to the one before.
  ibv_send_wr& append() noexcept {
    ibv_send_wr& request = requests_[size_];
    request = {};
    request.sg_list = &segments_[segments_used_];
    if (size_ > 0) requests_[size_ - 1].next = &request;
    ++size_;
    return request;
  }
  /// One more segment of the last request.
  void add_segment(const std::byte* data, std::uint32_t length, std::uint32_t lkey) noexcept {
    segments_[segments_used_++] = {reinterpret_cast<std::uintptr_t>(data), length, lkey};
    ++last().num_sge;
  }
  /// Whether all of the last request's data can be read now.
  [[nodiscard]] bool last_is_readable() const noexcept {
    const ibv_send_wr& last = requests_[size_ - 1];
    return std::all_of(last.sg_list, last.sg_list + last.num_sge, [](const ibv_sge& each) {
      // verbs hands addresses as numbers.
      return readable(reinterpret_cast<const std::byte*>(each.addr), each.length);  // NOLINT(performance-no-int-to-ptr)
    });
  }

 private:
  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> segments_;
  std::size_t size_ = 0;
  std::size_t segments_used_ = 0;
};

}  // namespace fairlead::verbs
