// Frames on their way from one thread to one other, as copies: a bounded queue that neither end ever waits for.
//
// A thread that is preempted anywhere in here keeps the other from nothing, so the two may share a core. Memory is
// taken when frames first lie in it. Threads: push() by the sender, take() and release() by the receiver.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace fairlead::soft {

class FrameRing {
 public:
  /// More than all that a peer has on its way over shared memory.
  static constexpr std::size_t kSlots = 256;

  /// For frames of at most so many bytes.
  explicit FrameRing(std::size_t frame_bytes);

  /// False when it is full, or the frame too long; the frame is lost then.
  [[nodiscard]] bool push(std::span<const std::byte> frame) noexcept;
  /// Fills at most frames.size() and returns how many. They stay valid until release().
  [[nodiscard]] std::size_t take(std::span<std::span<const std::byte>> frames) noexcept;
  /// Gives back what take() handed out.
  void release() noexcept { head_.store(taken_, std::memory_order_release); }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kSizeBytes = sizeof(std::uint32_t);

  [[nodiscard]] std::byte* slot(std::uint32_t index) const noexcept { return &bytes_[index % kSlots * stride_]; }

  const std::size_t frame_bytes_;
  const std::size_t stride_;  // of a slot: the frame's size, then the frame
  const std::unique_ptr<std::byte[]> bytes_;
  alignas(kLine) std::atomic<std::uint32_t> tail_{0};  // frames ever pushed
  std::uint32_t seen_head_ = 0;                        // the sender's idea of head_
  alignas(kLine) std::atomic<std::uint32_t> head_{0};  // frames ever released
  std::uint32_t taken_ = 0;                            // the receiver's: frames ever taken
};

}  // namespace fairlead::soft
