#include "verbs/soft/port/frame/frame_ring.h"

#include <algorithm>
#include <cstring>

namespace fairlead::soft {

FrameRing::FrameRing(std::size_t frame_bytes)
    : frame_bytes_(frame_bytes),
      stride_((kSizeBytes + frame_bytes + kLine - 1) / kLine * kLine),
      bytes_(std::make_unique_for_overwrite<std::byte[]>(kSlots * stride_)) {}

bool FrameRing::push(std::span<const std::byte> frame) noexcept {
  const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - seen_head_ == kSlots) seen_head_ = head_.load(std::memory_order_acquire);
  if (tail - seen_head_ == kSlots || frame.size() > frame_bytes_) return false;
  const auto size = static_cast<std::uint32_t>(frame.size());
  std::memcpy(slot(tail), &size, kSizeBytes);
  std::memcpy(slot(tail) + kSizeBytes, frame.data(), size);
  tail_.store(tail + 1, std::memory_order_release);
  return true;
}

std::size_t FrameRing::take(std::span<std::span<const std::byte>> frames) noexcept {
  const std::size_t there = tail_.load(std::memory_order_acquire) - taken_;
  const std::size_t count = std::min(frames.size(), there);
  for (auto& frame : frames.first(count)) {
    const std::byte* at = slot(taken_++);
    std::uint32_t size = 0;
    std::memcpy(&size, at, kSizeBytes);
    frame = {at + kSizeBytes, size};
  }
  return count;
}

}  // namespace fairlead::soft
