// What crosses a ring: slots of one cache line, which carry little payload themselves, and have the rest beside them.
//
//   0: u32 stamp | 4: u8 kind | 5: u8 flags | 6: u8 code | 7: u8 count | 8: u32 word | 12: u32 bytes
//   16: u64 key | 24: u64 address | 32: u64 length | 40: 24 bytes
//
// The stamp says in which lap around the ring the slot was filled, and is written last: one line tells the consumer
// that there is something and what. `bytes` of payload follow: in the slot, if they fit behind what its kind uses of
// it, else in the ring of data. Requests are numbered from 0 by counting them; those marked # are one each, with their
// last slot.
//
//   kind        goes with  fields in use                                 payload
//   write data  requests#  key, address, flags                           of a write, in pieces
//   write from  requests#  key, address, length, count, flag notifies    the writer's segments (SourceSegment)
//   read        requests#  key, address, length                          -
//   message     requests#  word: refusals known (tcp's frame.h)          the message
//   pulled      requests   word: number of the read                      -
//   read data   responses  word: number of the read, address: offset     of the read, in pieces
//   read from   responses  word: number of the read, address: there      -
//   refused     responses  word: number of the request, code             -
//
// "There" is in the answering process.
//
// A request has ended well once the answering end's count of ended requests has passed it, unless a refusal came
// before. A flag "lost" says that the source of a write is gone on the writer's side: it counts as refused, with
// kDataLoss. The last slot of a write, and no other, may have the flag "notifies": then its last 4 bytes are a value
// that is delivered once the write is placed, and `word` is as a message's. Like a message it is turned away behind
// a write that was refused; what came of it in slots before is placed then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fairlead/status.h"

namespace fairlead::shm {

inline constexpr std::size_t kSlotBytes = 64;
inline constexpr std::size_t kMessageInSlot = 48;                    // from byte 16 on
inline constexpr std::size_t kPayloadInSlot = 24;                    // from byte 40 on
inline constexpr std::size_t kPayloadBesideValue = 20;               // the same, of one that notifies
inline constexpr std::uint32_t kMaxPiece = 16 * 1024;                // payload of one slot
inline constexpr std::size_t kMaxSegments = 16;                      // of a write
inline constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 62;  // of a request

enum class SlotKind : std::uint8_t {
  kWriteData = 1,
  kWriteFrom,
  kRead,
  kMessage,
  kPulled,
  kReadData,
  kReadFrom,
  kRefused,
};

inline constexpr std::uint8_t kLast = 1, kLost = 2, kNotifies = 4;  // flags

/// A slot's content. Read once, out of shared memory, before anything in it is looked at.
struct Slot {
  std::uint32_t stamp = 0;
  SlotKind kind = SlotKind::kRefused;
  std::uint8_t flags = 0;
  std::uint8_t code = 0;
  std::uint8_t count = 0;
  std::uint32_t word = 0;
  std::uint32_t bytes = 0;
  std::uint64_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::byte payload[kPayloadInSlot]{};

  /// Where payload lies that is in the slot: of a message it takes the place of what only others use.
  [[nodiscard]] std::byte* inside() noexcept {
    return reinterpret_cast<std::byte*>(this) +
           (kind == SlotKind::kMessage ? kSlotBytes - kMessageInSlot : kSlotBytes - kPayloadInSlot);
  }
  [[nodiscard]] bool fits_inside() const noexcept {
    return bytes <= (kind == SlotKind::kMessage ? kMessageInSlot : notifies() ? kPayloadBesideValue : kPayloadInSlot);
  }
  [[nodiscard]] bool notifies() const noexcept { return (flags & kNotifies) != 0; }
  [[nodiscard]] std::uint32_t value() const noexcept {
    std::uint32_t value = 0;
    std::memcpy(&value, payload + kPayloadBesideValue, sizeof value);
    return value;
  }
  void notify(std::uint32_t value) noexcept {
    flags |= kNotifies;
    std::memcpy(payload + kPayloadBesideValue, &value, sizeof value);
  }
};
static_assert(sizeof(Slot) == kSlotBytes && offsetof(Slot, key) == 16 && offsetof(Slot, payload) == 40);

/// A segment of the writer's memory, as its process names it.
struct SourceSegment {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};

}  // namespace fairlead::shm
