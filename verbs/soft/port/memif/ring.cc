#include "verbs/soft/port/memif/ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace fairlead::soft::memif {
namespace {

constexpr const char* kWrongIndex = "its index is where a ring of this size cannot be";
constexpr const char* kWrongDescriptor = "its descriptor is of memory that no region holds";
constexpr const char* kNoRoom = "its descriptor is of a buffer without room";
constexpr const char* kWrongLength = "its descriptor is longer than the buffer";
constexpr const char* kEndless = "its frame goes on where it has written nothing";
constexpr std::size_t kLine = 64;

}  // namespace

RingEnd::RingEnd(const RingPlace& place) : place_(place), slots_(static_cast<std::uint16_t>(1U << place.log2_slots)) {}

Sender::Sender(const RingPlace& place) : RingEnd(place) {
  if (!owns_buffers()) given_.resize(slots_);
  for (std::size_t i = 0; owns_buffers() && i < slots_; ++i) place_.view.write(i, own_descriptor(i));
}

std::size_t Sender::free(std::size_t wanted) noexcept {
  if (free_ >= wanted) return wanted;
  const auto index = to_master() ? place_.view.tail() : place_.view.head();
  // Toward the master its index is what it has emptied, toward the slave what that has given.
  const unsigned ahead = to_master() ? slots_ : 0U;
  free_ = static_cast<std::uint16_t>(index.load(std::memory_order_acquire) + ahead - sent_);
  if (free_ > slots_) {
    free_ = 0;
    fault_ = kWrongIndex;
  }
  return std::min<std::size_t>(free_, wanted);
}

std::byte* Sender::buffer(std::size_t ahead, std::uint32_t& bytes) noexcept {
  const std::size_t at = slot(static_cast<std::uint16_t>(sent_ + ahead));
  if (owns_buffers()) {
    bytes = place_.buffer_bytes;
    return own_buffer(at);
  }
  const Descriptor given = place_.view.read(at);
  bytes = given.length;
  std::byte* const found = place_.regions->find(given.region, given.offset, given.length);
  given_[at] = {given.region, found};
  if (found == nullptr) fault_ = kWrongDescriptor;
  if (given.length == 0) fault_ = kNoRoom;
  return given.length == 0 ? nullptr : found;
}

void Sender::fill(std::size_t ahead, std::uint32_t bytes, bool goes_on) noexcept {
  const std::size_t at = slot(static_cast<std::uint16_t>(sent_ + ahead));
  const std::uint16_t region = owns_buffers() ? std::uint16_t{0} : given_[at].region;
  place_.view.write_length(at, {goes_on ? Descriptor::kNext : std::uint16_t{0}, region, bytes, 0, 0});
}

bool Sender::publish(std::size_t count) noexcept {
  sent_ = static_cast<std::uint16_t>(sent_ + count);
  free_ = static_cast<std::uint16_t>(free_ - count);
  const auto index = to_master() ? place_.view.head() : place_.view.tail();
  index.store(sent_, std::memory_order_release);
  std::atomic_signal_fence(
      std::memory_order_seq_cst);  // the compiler must not look first; the processor may, see README
  const bool wakes = (place_.view.flags().load(std::memory_order_relaxed) & RingView::kMaskInterrupt) == 0;
  fetch_next();
  return wakes;
}

/// The peer has read, or written, what the next frame is to be written to: while it works on this one, those lines
/// come.
void Sender::fetch_next() const noexcept {
  const std::size_t at = slot(sent_);
  if (at % (kLine / Descriptor::kBytes) == 0) place_.view.fetch_to_write(at);
  const std::byte* const next = owns_buffers() ? own_buffer(at) : given_[at].buffer;
  if (next == nullptr) return;
  fetch_to_write(next);
  fetch_to_write(next + kLine);
}

std::size_t Sender::copy(std::size_t ahead, std::span<const std::byte> frame) noexcept {
  std::size_t used = 0;
  while (!frame.empty()) {
    std::uint32_t room = 0;
    const std::size_t next = ahead + used;
    if (free(next + 1) <= next) return 0;
    std::byte* const to = buffer(next, room);
    if (to == nullptr) return 0;
    const std::size_t part = std::min<std::size_t>(room, frame.size());
    std::memcpy(to, frame.data(), part);
    frame = frame.subspan(part);
    fill(next, static_cast<std::uint32_t>(part), !frame.empty());
    ++used;
  }
  return used;
}

Receiver::Receiver(const RingPlace& place) : RingEnd(place) {
  if (!owns_buffers()) {
    places_.resize(slots_);
    return;
  }
  for (std::size_t i = 0; i < slots_; ++i) place_.view.write(i, own_descriptor(i));
  place_.view.head().store(slots_, std::memory_order_release);
}

std::size_t Receiver::available() noexcept {
  const auto index = to_master() ? place_.view.head() : place_.view.tail();
  const std::uint16_t there = index.load(std::memory_order_acquire);
  if (static_cast<std::uint16_t>(there - released_) > slots_ ||
      static_cast<std::uint16_t>(there - released_) < static_cast<std::uint16_t>(taken_ - released_)) {
    fault_ = kWrongIndex;
    return 0;
  }
  return static_cast<std::uint16_t>(there - taken_);
}

void Receiver::release() noexcept {
  if (released_ == taken_) return;
  if (owns_buffers()) {
    for (; released_ != taken_; ++released_) place_.view.write(slot(released_), own_descriptor(slot(released_)));
    place_.view.head().store(static_cast<std::uint16_t>(released_ + slots_), std::memory_order_release);
  } else {
    released_ = taken_;
    place_.view.tail().store(released_, std::memory_order_release);
  }
}

const std::byte* Receiver::resolve(std::size_t slot, const Descriptor& descriptor) noexcept {
  if (owns_buffers()) {
    if (descriptor.length > place_.buffer_bytes) fault_ = kWrongLength;
    return fault_ == nullptr ? own_buffer(slot) : nullptr;
  }
  const std::byte* const found = place_.regions->find(descriptor.region, descriptor.offset, descriptor.length);
  if (found == nullptr) fault_ = kWrongDescriptor;
  places_[slot] = found;
  return found;
}

// The frame that begins at taken_, whose first buffer is not its last. Empty: too long, or a fault.
std::span<const std::byte> Receiver::join(std::size_t available) noexcept {
  joined_.resize(kMostFrame);
  std::size_t length = 0;
  while (available-- > 0) {
    const std::size_t at = slot(taken_++);
    const Descriptor descriptor = place_.view.read(at);
    const std::byte* const from = resolve(at, descriptor);
    if (from == nullptr) return {};
    const std::size_t part = std::min<std::size_t>(descriptor.length, kMostFrame - std::min(length, kMostFrame));
    if (part > 0) std::memcpy(&joined_[length], from, part);
    length += descriptor.length;
    if ((descriptor.flags & Descriptor::kNext) != 0) continue;
    return length <= kMostFrame ? std::span<const std::byte>(joined_).first(length) : std::span<const std::byte>();
  }
  fault_ = kEndless;
  return {};
}

std::size_t Receiver::take(std::span<std::span<const std::byte>> frames) noexcept {
  release();
  std::size_t left = available();
  if (left == 0) return 0;
  // What comes next is in the peer's cache: the descriptor and, where it was the last time, the frame, all at once.
  const std::size_t soon = std::min(left, frames.size());
  for (std::size_t i = 0; i < soon; ++i) {
    const std::size_t at = slot(static_cast<std::uint16_t>(taken_ + i));
    if (i % (kLine / Descriptor::kBytes) == 0) place_.view.prefetch(at);
    const std::byte* const frame = owns_buffers() ? own_buffer(at) : places_[at];
    if (frame == nullptr) continue;
    __builtin_prefetch(frame);
    __builtin_prefetch(frame + kLine);
  }
  std::size_t count = 0;
  bool joined = false;
  while (count < frames.size() && left > 0) {
    const std::size_t at = slot(taken_);
    const Descriptor descriptor = place_.view.read(at);
    if ((descriptor.flags & Descriptor::kNext) == 0) {
      const std::byte* const frame = resolve(at, descriptor);
      if (frame == nullptr) break;
      ++taken_;
      --left;
      frames[count++] = {frame, descriptor.length};
      continue;
    }
    if (joined) break;  // there is room for one
    const std::uint16_t before = taken_;
    const auto frame = join(left);
    left -= static_cast<std::uint16_t>(taken_ - before);
    if (fault_ != nullptr) break;
    if (frame.empty()) continue;
    frames[count++] = frame;
    joined = true;
  }
  return count;
}

}  // namespace fairlead::soft::memif
