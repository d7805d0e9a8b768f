#include "shm/arena/given_arenas.h"

#include "base/system/unix_packets.h"

namespace fairlead::shm {

void GivenArenas::start(const Side* theirs, Side* ours, int socket, bool allowed) noexcept {
  theirs_ = theirs;
  ours_ = ours;
  socket_ = socket;
  allowed_ = allowed;
  settled_ = own_.removed();
}

bool GivenArenas::reaches(ArenaNumber arena) noexcept {
  if (!allowed_ || arena < OwnArenas::kFirst) return false;
  if (theirs_->state.maps.load(std::memory_order_relaxed) != 1) return false;
  if (given_[last_].arena != arena) {
    const std::uint64_t taken = theirs_->arenas.taken.load(std::memory_order_acquire);
    std::size_t index = kMostArenas, free = kMostArenas;
    for (std::size_t i = 0; i < kMostArenas && index == kMostArenas; ++i) {
      if (given_[i].arena == arena) index = i;
      if (free == kMostArenas && given_[i].arena == 0 && given_[i].free_from <= taken) free = i;
    }
    if (index == kMostArenas && (free == kMostArenas || !give(arena, index = free))) return false;
    last_ = index;
  }
  return (theirs_->arenas.mapped.load(std::memory_order_acquire) >> last_ & 1) != 0;
}

bool GivenArenas::give(ArenaNumber arena, std::size_t index) noexcept {
  bool sent = false;
  own_.visit(arena, [&](std::span<std::byte> bytes, int descriptor) {
    sent = send({.kind = ArenaNews::kGiven,
                 .index = static_cast<std::uint8_t>(index),
                 .address = reinterpret_cast<std::uint64_t>(bytes.data()),
                 .bytes = bytes.size()},
                descriptor);
  });
  if (sent) given_[index].arena = arena;
  return sent;
}

bool GivenArenas::take_back() noexcept {
  const std::uint64_t removed = own_.removed();
  for (std::size_t i = 0; allowed_ && i < kMostArenas; ++i) {
    Given& given = given_[i];
    if (given.arena == 0 || own_.visit(given.arena, [](auto, int) {})) continue;
    if (!send({.kind = ArenaNews::kTakenBack, .index = static_cast<std::uint8_t>(i), .bytes = 1}, -1)) return false;
    given = {.arena = 0, .free_from = ours_->arenas.told.load(std::memory_order_relaxed)};
  }
  settled_ = removed;
  return true;
}

/// Counted before the peer is told of any address that depends on it.
bool GivenArenas::send(const ArenaPacket& packet, int descriptor) noexcept {
  if (!send_packet(socket_, std::as_bytes(std::span(&packet, 1)), descriptor)) return false;
  ours_->arenas.told.fetch_add(1, std::memory_order_release);
  return true;
}

}  // namespace fairlead::shm
