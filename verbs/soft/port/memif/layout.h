// What the two ends of a memif have in common in memory: rings of descriptors, which say where buffers lie.
//
// Both processes write here, and neither trusts the other: a view reads each word once, and whoever uses a value looks
// at it first. Values are in the host's byte order. Threads: any; what orders the ends is said at each function.
// Source: the memif protocol, version 2.0, as libmemif, VPP and DPDK have it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/system/shared_lines.h"

namespace fairlead::soft::memif {

inline constexpr std::uint16_t kVersion = 0x0200;
inline constexpr std::uint32_t kCookie = 0x3e31f20;
inline constexpr unsigned kMostLog2Slots = 14;

/// Master makes nothing: the slave brings memory, rings and buffers.
enum class Role : std::uint8_t { kMaster, kSlave };
enum class Direction : std::uint8_t { kToMaster, kToSlave };

struct Descriptor {
  static constexpr std::size_t kBytes = 16;
  static constexpr std::uint16_t kNext = 1;  // flags: the frame goes on in the next one
  std::uint16_t flags = 0;
  std::uint16_t region = 0;
  std::uint32_t length = 0;
  std::uint32_t offset = 0;
  std::uint32_t metadata = 0;
};
static_assert(sizeof(Descriptor) == Descriptor::kBytes);

/// One ring: a line with the head, a line with the tail, then descriptors. Indices count up for ever, modulo 2^16.
class RingView {
 public:
  static constexpr std::uint16_t kMaskInterrupt = 1;  // flags, the receiver's: do not wake me
  static constexpr std::size_t kHeaderBytes = 128;
  static constexpr std::size_t kAlignment = 8;

  RingView() noexcept = default;
  explicit RingView(std::byte* at) noexcept : at_(at) {}
  [[nodiscard]] static constexpr std::size_t bytes(unsigned log2_slots) noexcept {
    return kHeaderBytes + (Descriptor::kBytes << log2_slots);
  }

  [[nodiscard]] auto cookie() const noexcept { return word<std::uint32_t>(0); }
  [[nodiscard]] auto flags() const noexcept { return word<std::uint16_t>(4); }
  [[nodiscard]] auto head() const noexcept { return word<std::uint16_t>(6); }
  [[nodiscard]] auto tail() const noexcept { return word<std::uint16_t>(64); }

  /// Behind an acquiring load of the other end's index.
  [[nodiscard]] Descriptor read(std::size_t slot) const noexcept {
    const std::uint64_t first = half(slot, 0).load(std::memory_order_relaxed);
    const std::uint64_t second = half(slot, 1).load(std::memory_order_relaxed);
    return {static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(first >> 16),
            static_cast<std::uint32_t>(first >> 32), static_cast<std::uint32_t>(second),
            static_cast<std::uint32_t>(second >> 32)};
  }
  /// Before a releasing store of one's own index.
  void write(std::size_t slot, const Descriptor& descriptor) const noexcept {
    write_length(slot, descriptor);
    half(slot, 1).store(std::uint64_t{descriptor.metadata} << 32 | descriptor.offset, std::memory_order_relaxed);
  }
  /// All but the offset.
  void write_length(std::size_t slot, const Descriptor& descriptor) const noexcept {
    half(slot, 0).store(
        std::uint64_t{descriptor.length} << 32 | std::uint64_t{descriptor.region} << 16 | descriptor.flags,
        std::memory_order_relaxed);
  }
  void prefetch(std::size_t slot) const noexcept { __builtin_prefetch(descriptor(slot)); }
  void fetch_to_write(std::size_t slot) const noexcept { fairlead::fetch_to_write(descriptor(slot)); }

 private:
  template <typename Word>
  [[nodiscard]] std::atomic_ref<Word> word(std::size_t offset) const noexcept {
    return std::atomic_ref<Word>(*reinterpret_cast<Word*>(at_ + offset));
  }
  [[nodiscard]] std::byte* descriptor(std::size_t slot) const noexcept {
    return at_ + kHeaderBytes + slot * Descriptor::kBytes;
  }
  [[nodiscard]] std::atomic_ref<std::uint64_t> half(std::size_t slot, std::size_t which) const noexcept {
    return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(descriptor(slot) + which * 8));
  }

  std::byte* at_ = nullptr;
};

}  // namespace fairlead::soft::memif
