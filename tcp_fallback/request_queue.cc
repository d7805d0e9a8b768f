#include "tcp_fallback/request_queue.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "tcp_fallback/frame.h"
#include "transport/message_bytes.h"

namespace fairlead::tcp_fallback {

using datapath::OpKind;

std::size_t slice(const Request& request, std::uint64_t offset, std::uint64_t length,
                  std::span<iovec> pieces) noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < request.segment_count && length > 0 && count < pieces.size(); ++i) {
    const iovec& segment = request.segments[i];
    if (offset >= segment.iov_len) {
      offset -= segment.iov_len;
      continue;
    }
    const std::size_t bytes = std::min<std::uint64_t>(segment.iov_len - offset, length);
    pieces[count++] = {static_cast<std::byte*>(segment.iov_base) + offset, bytes};
    length -= bytes;
    offset = 0;
  }
  return count;
}

RequestQueue::RequestQueue(std::uint32_t depth)
    : depth_(depth),
      slots_(std::bit_ceil(std::min<std::size_t>(depth, kFirstSlots))),
      store_(std::make_unique_for_overwrite<std::byte[]>(kStoreBytes)) {}

bool RequestQueue::push(const datapath::WorkRequest& work) noexcept {
  if (end_ - first_ == depth_) return false;
  if (end_ - first_ == slots_.size() && !grow()) return false;
  std::uint64_t length = 0;
  bool legal = work.local.size() <= kMaxSegments;
  for (const auto& segment : work.local) legal &= !__builtin_add_overflow(length, segment.length, &length);
  legal &= length <= (work.kind == OpKind::kMessage ? kMaxMessage : kMaxRead);

  Request& request = at(end_);
  request.id = work.id;
  request.kind = legal ? work.kind : OpKind::kWrite;
  request.code = legal ? Code::kOk : Code::kInvalidArgument;
  request.length = legal ? length : 0;
  request.remote_address = work.remote_address;
  request.remote_key = work.remote_key;
  request.received = 0;
  request.undeliverable = false;
  request.segment_count = 0;
  if (request.kind == OpKind::kMessage) {
    std::byte* copy = store(length);
    if (copy == nullptr) return false;
    request.message_end = store_end_;
    request.remote_key = refusals_;
    request.known_first = first_;
    request.segments[request.segment_count++] = {copy, length};
    datapath::copy_message(copy, work.local);
  } else if (legal) {
    for (const auto& segment : work.local) request.segments[request.segment_count++] = {segment.data, segment.length};
  }
  ++end_;
  return true;
}

/// Most peers are idle most of the time.
bool RequestQueue::grow() noexcept {
  try {
    std::vector<Request> larger(2 * slots_.size());
    for (std::uint64_t seq = first_; seq != end_; ++seq) larger[seq & (larger.size() - 1)] = at(seq);
    slots_ = std::move(larger);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

std::byte* RequestQueue::store(std::uint64_t bytes) noexcept {
  static_assert(kStoreBytes >= 2 * kMaxMessage, "an empty store must take any message, wherever it begins");
  const std::uint64_t offset = store_end_ % kStoreBytes;
  const std::uint64_t begin = offset + bytes > kStoreBytes ? store_end_ + kStoreBytes - offset : store_end_;
  if (begin + bytes - store_first_ > kStoreBytes) return nullptr;
  store_end_ = begin + bytes;
  return store_.get() + begin % kStoreBytes;
}

void RequestQueue::mark_sent() noexcept {
  const Request& request = at(sent_++);
  if (request.kind == OpKind::kMessage) store_first_ = request.message_end;
}

std::optional<std::uint64_t> RequestQueue::find_sent(std::uint32_t seq) const noexcept {
  const std::uint32_t ahead = seq - static_cast<std::uint32_t>(first_);
  if (ahead >= sent_ - first_) return std::nullopt;
  return first_ + ahead;
}

std::size_t limit(std::span<iovec> pieces, std::size_t most, std::size_t& bytes) noexcept {
  bytes = 0;
  std::size_t count = 0;
  while (count < pieces.size() && bytes < most) {
    iovec& piece = pieces[count++];
    piece.iov_len = std::min(piece.iov_len, most - bytes);
    bytes += piece.iov_len;
  }
  return count;
}

}  // namespace fairlead::tcp_fallback
