#include "shm/arena/peer_arenas.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "base/system/mapping_budget.h"
#include "fairlead/log.h"

namespace fairlead::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

/// Files of other kinds have no seals. Empty: it is as it should be.
std::string_view examine(const ArenaPacket& packet, const UniqueFd& descriptor) noexcept {
  if (!descriptor) return "an arena without memory";
  struct stat info{};
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return "an arena that is not sealed against a change and writing";
  if (::fstat(descriptor.get(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) != packet.bytes) {
    return "an arena of another size than it says";
  }
  return {};
}

/// Of all paths.
std::atomic<std::uint64_t> bytes_mapped{0}, arenas_mapped{0};

/// Whether this process may map so many more; then they are counted.
bool count_bytes(std::uint64_t bytes) noexcept {
  std::uint64_t before = bytes_mapped.load(std::memory_order_relaxed);
  do {
    if (bytes > kMostMapped - before) return false;
  } while (!bytes_mapped.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  return true;
}

void uncount(std::uint64_t bytes) noexcept {
  bytes_mapped.fetch_sub(bytes, std::memory_order_relaxed);
  arenas_mapped.fetch_sub(1, std::memory_order_relaxed);
}

/// Null: it cannot be mapped.
const std::byte* map(const UniqueFd& descriptor, std::uint64_t bytes) noexcept {
  if (!count_bytes(bytes)) return nullptr;
  const bool may = arenas_mapped.fetch_add(1, std::memory_order_relaxed) < kMostArenasMapped;
  // The pages are the peer's to reserve.
  void* const at = may && MappingBudget::own().take(1).ok()
                       ? ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, descriptor.get(), 0)
                       : MAP_FAILED;
  if (at == MAP_FAILED) {
    uncount(bytes);
    return nullptr;
  }
  ::madvise(at, bytes, MADV_DONTFORK);
  ::madvise(at, bytes, MADV_DONTDUMP);
  return static_cast<const std::byte*>(at);
}

}  // namespace

void PeerArenas::start(const Side* theirs, Side* ours, bool allowed) noexcept {
  theirs_ = theirs;
  ours_ = ours;
  allowed_ = allowed;
  owner_ = ::getpid();
}

void PeerArenas::stop() noexcept {
  for (std::size_t i = 0; i < kMostArenas; ++i) unmap(i);
  theirs_ = nullptr;
  ours_ = nullptr;
}

std::string_view PeerArenas::take(std::span<const std::byte> bytes, const UniqueFd& descriptor, bool lost) noexcept {
  const auto packet = parse_arena_packet(bytes);
  if (!packet) return "a packet of no known kind";
  if (!allowed_) return "an arena, which was not offered";
  const std::uint64_t bit = std::uint64_t{1} << packet->index;
  const bool given = packet->kind == ArenaNews::kGiven;
  if (((known_ & bit) != 0) == given)
    return given ? "an arena in place of another" : "the end of an arena that is none";
  std::string_view reason;
  if (given && lost) {
    warn_of_limit();
  } else if (given) {
    reason = take_given(*packet, descriptor);
  } else {
    unmap(packet->index);
  }
  if (!reason.empty()) return reason;
  known_ ^= bit;
  ++taken_;
  say();
  return {};
}

std::string_view PeerArenas::take_given(const ArenaPacket& packet, const UniqueFd& descriptor) noexcept {
  if (const std::string_view reason = examine(packet, descriptor); !reason.empty()) return reason;
  std::uint64_t bytes = packet.bytes;  // of this path, with it
  for (const Mapped& other : all_) {
    const bool apart = other.here == nullptr || packet.address + packet.bytes <= other.address ||
                       other.address + other.bytes <= packet.address;
    if (!apart) return "an arena at addresses of another";
    bytes += other.bytes;
  }
  const std::byte* const here = bytes <= kMostMappedOfPath ? map(descriptor, packet.bytes) : nullptr;
  if (here == nullptr) return {};  // it is copied by other ways
  all_[packet.index] = {here, packet.address, packet.bytes};
  mapped_ |= std::uint64_t{1} << packet.index;
  return {};
}

void PeerArenas::warn_of_limit() noexcept {
  if (std::exchange(warned_, true)) return;
  log(LogLevel::kWarning,
      "shm: no descriptor is left for memory that a peer gives to be mapped, which costs speed; raise `ulimit -n`");
}

void PeerArenas::unmap(std::size_t index) noexcept {
  Mapped& gone = all_[index];
  if (gone.here != nullptr && owner_ == ::getpid()) ::munmap(const_cast<std::byte*>(gone.here), gone.bytes);
  if (gone.here != nullptr) uncount(gone.bytes);  // in a child of fork(), too: it is not mapped there
  gone = {};
  mapped_ &= ~(std::uint64_t{1} << index);
}

/// In this order, so that who sees that a packet was taken sees what came of it.
void PeerArenas::say() noexcept {
  ours_->arenas.mapped.store(mapped_, std::memory_order_release);
  ours_->arenas.taken.store(taken_, std::memory_order_release);
}

const std::byte* PeerArenas::find(std::uint64_t address, std::uint64_t bytes) noexcept {
  for (std::size_t i = 0; mapped_ != 0 && i < kMostArenas; ++i) {
    const std::size_t index = (last_ + i) % kMostArenas;
    if (!all_[index].holds(address, bytes)) continue;
    last_ = index;
    return all_[index].here + (address - all_[index].address);
  }
  return nullptr;
}

}  // namespace fairlead::shm
