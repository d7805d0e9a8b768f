// What a path took and has not reported, in the order of posting.
//
// A request's place in that order is its identity: the id that the transport gives back. Completions may come in any
// order. No allocation once it has grown to what the path takes. Threads: the driver.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "datapath/lane/ring.h"

namespace fairlead::datapath {

struct TransferImpl;

/// A work request that is on a path, and what its completion is to be told to.
struct PostedRequest {
  enum class Use : std::uint8_t {
    kMeasure,          // a write that measures the path; `sequence`: by which measurement
    kControl,          // the path's own messages: hello, credits, answers of staged mode
    kWrite,            // of a transfer's data
    kRead,             // of a transfer's data
    kSequenced,        // a notification or a fragment
    kNotifyingWrite,   // data and the notification behind it
    kStagedOperation,  // data by message: the peer's answer ends it, not this
    kApart,            // data that another carries (ApartCarrier): on no path of its own
    kEnded             // has been reported, unlike one before it
  };
  Use use = Use::kControl;
  std::uint8_t rail = 0;  // which of the flow's paths took it
  TransferImpl* transfer = nullptr;
  std::uint64_t at = 0;        // where in the transfer's data, or in its message, it begins
  std::uint64_t bytes = 0;     // of data
  std::uint64_t sequence = 0;  // of what is sequenced
};

/// Of requests for data of one transfer that ended well.
struct EndedData {
  TransferImpl* transfer = nullptr;
  std::uint64_t bytes = 0;
};

class InFlight {
 public:
  [[nodiscard]] bool empty() const noexcept { return unreported_ == 0; }
  /// Requests that the path has not reported.
  [[nodiscard]] std::size_t size() const noexcept { return unreported_; }
  /// How many more to post to a path that takes `depth`. Less where one request stays while many behind it end: what
  /// ended is kept until all before it has.
  [[nodiscard]] std::size_t room(std::size_t depth) const noexcept {
    const std::size_t kept = entries_.size(), most = 4 * depth;
    return std::min(depth - std::min(depth, unreported_), most - std::min(most, kept));
  }
  /// The id of the request that is pushed next; never 0.
  [[nodiscard]] std::uint64_t next_id() const noexcept { return first_id_ + entries_.size(); }

  /// Room for one more push(). False: there is no memory for it.
  [[nodiscard]] bool make_room() noexcept { return entries_.make_room(); }
  void push(const PostedRequest& request) {
    entries_.push_back(request);
    ++unreported_;
  }
  /// Takes a request out. None: no such request is on the path.
  [[nodiscard]] std::optional<PostedRequest> end(std::uint64_t id) noexcept {
    if (id < first_id_ || id >= next_id() || entries_[id - first_id_].use == Use::kEnded) return std::nullopt;
    PostedRequest& entry = entries_[id - first_id_];
    const PostedRequest request = entry;
    entry.use = Use::kEnded;
    --unreported_;
    drop_ended();
    return request;
  }
  /// Takes out, of the requests from `id` to before `behind`, those in a row that are data of one transfer; `sum` is
  /// what they had. How many they are; 0: the first is no data, or not on the path.
  [[nodiscard]] std::uint32_t end_data(std::uint64_t id, std::uint64_t behind, EndedData& sum) noexcept {
    if (id < first_id_) return 0;
    std::uint32_t count = 0;
    for (; id < std::min(behind, next_id()); ++id, ++count) {
      PostedRequest& entry = entries_[id - first_id_];
      const bool is_data = entry.use == Use::kWrite || entry.use == Use::kRead;
      if (!is_data || (count != 0 && entry.transfer != sum.transfer)) break;
      if (count == 0) {
        sum = {entry.transfer, entry.bytes};
      } else {
        sum.bytes += entry.bytes;
      }
      entry.use = Use::kEnded;
    }
    unreported_ -= count;
    drop_ended();
    return count;
  }
  /// The oldest; not of an empty one.
  [[nodiscard]] PostedRequest end_oldest() noexcept { return *end(first_id_); }

  /// Bytes of the oldest write or of the oldest read, whichever is larger: what completions are waited for.
  [[nodiscard]] std::uint64_t oldest_bytes() noexcept {
    return std::max(oldest_bytes(Use::kWrite), oldest_bytes(Use::kRead));
  }

  /// Bytes of all data that has not ended.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i) sum += entries_[i].use == Use::kEnded ? 0 : entries_[i].bytes;
    return sum;
  }

 private:
  using Use = PostedRequest::Use;

  void drop_ended() noexcept {
    while (!entries_.empty() && entries_.front().use == Use::kEnded) {
      entries_.drop_front();
      ++first_id_;
    }
  }

  // Where the search for the oldest stood last; what is before it ended, or is of another kind.
  [[nodiscard]] std::uint64_t oldest_bytes(Use kind) noexcept {
    std::uint64_t& id = searched_[kind == Use::kRead ? 1 : 0];
    for (id = std::max(id, first_id_); id < next_id(); ++id) {
      const PostedRequest& entry = entries_[id - first_id_];
      const bool writes = entry.use == Use::kNotifyingWrite || entry.use == Use::kMeasure;
      if (entry.use == kind || (kind == Use::kWrite && writes)) return entry.bytes;
    }
    return 0;
  }

  Ring<PostedRequest> entries_;  // the front one has not ended
  std::uint64_t first_id_ = 1;
  std::size_t unreported_ = 0;
  std::array<std::uint64_t, 2> searched_{};
};

}  // namespace fairlead::datapath
