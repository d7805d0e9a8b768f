// What crosses a ring: slots of one cache line, which carry little payload themselves, and have the rest beside them.
//
//   0: u32 stamp | 4: u8 kind | 5: u8 flags | 6: u16 bytes | 8: u32 word | 12: u32 ended
//   16: u64 key | 24: u64 address | 32: u64 length | 40: 24 bytes
//
// The stamp says in which lap around the ring the slot was filled, and is written last: one line tells the consumer
// that there is something and what. `bytes` of payload follow: in the slot, if they fit behind what its kind uses of
// it, else in the ring of data. Requests are numbered from 0 by counting them; those marked # are one each, with their
// last slot. A slot of requests says in `ended`, too, how many of the other end's requests have ended, modulo 2^32: so
// an answer ends what it answers, and that end need not look at another line for it.
//
//   kind        goes with  fields in use                                 payload
//   write data  requests#  key, address, flags                           of a write, in pieces
//   write from  requests#  key, address, length, flag notifies           the writer's segments (SourceSegment)
//   read        requests#  key, address, length                          -
//   message     requests#  word: refusals known (tcp's frame.h)          the message
//   pulled      requests   word: number of the read                      -
//   read data   responses  word: number of the read, address: offset     of the read, in pieces
//   read from   responses  word: number of the read, address: there      -
//   refused     responses  word: number of the request, key: the code    -
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

#include "base/system/shared_lines.h"
#include "fairlead/status.h"

namespace fairlead::shm {

inline constexpr std::size_t kSlotBytes = 64;
inline constexpr std::size_t kMessageInSlot = 48;                    // from byte 16 on
inline constexpr std::size_t kPayloadInSlot = 24;                    // from byte 40 on
inline constexpr std::size_t kPayloadBesideValue = 20;               // the same, of one that notifies
inline constexpr std::uint16_t kMaxPiece = 16 * 1024;                // payload of one slot
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
  std::uint16_t bytes = 0;
  std::uint32_t word = 0;
  std::uint32_t ended = 0;  // put() has its own: the two would be loaded as one
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
  /// All of it to a slot of the ring, the stamp last. Word by word: whoever fills a slot stores its fields, and a wider
  /// load waits until these, and all that was stored before, to lines that the other end has, have left the processor.
  void put(Slot& there, std::uint32_t as, std::uint32_t ended) const noexcept {
    using Word = std::uint64_t;
    const auto to = [&there](std::size_t at) {
      return std::atomic_ref(*reinterpret_cast<Word*>(reinterpret_cast<std::byte*>(&there) + at));
    };
    for (std::size_t at = offsetof(Slot, key); at < kSlotBytes; at += sizeof(Word)) {
      Word each = 0;
      std::memcpy(&each, reinterpret_cast<const std::byte*>(this) + at, sizeof each);
      to(at).store(each, std::memory_order_relaxed);
    }
    to(offsetof(Slot, word)).store(Word{ended} << 32 | word, std::memory_order_relaxed);
    const Word first = Word{as} | Word{static_cast<std::uint8_t>(kind)} << 32 | Word{flags} << 40 | Word{bytes} << 48;
    tell_tsan_of_release();
    to(0).store(first, std::memory_order_release);
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
