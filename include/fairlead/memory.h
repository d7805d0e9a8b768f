// Memory that transports may touch: a slice of a region that is registered once and named, never pointed at, by peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fairlead/export.h"
#include "fairlead/handle.h"
#include "fairlead/tensor.h"

namespace fairlead::inline v0 {

/// What a peer may do to a published region. Combine with |.
enum class Access : std::uint8_t {
  kNone = 0,
  kRemoteRead = 1,
  kRemoteWrite = 2,
  kRemoteReadWrite = 3,
  kLocalReadOnly = 4,  // the bytes are mapped read-only (a file, say): nobody may write them, the owner included
  kRemoteAtomic = 8,   // Peer::fetch_add and compare_swap of its words; what may be read and written may have it, too
};
[[nodiscard]] constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
[[nodiscard]] constexpr bool allows(Access have, Access want) {
  return (static_cast<std::uint8_t>(have) & static_cast<std::uint8_t>(want)) == static_cast<std::uint8_t>(want);
}

/// How Engine::allocate takes memory from the pool (docs/memory.md).
struct AllocateOptions {
  /// A power of two up to 1 GiB; 0: a page for a page and above, else 64 bytes.
  std::size_t alignment = 0;
  /// Who may come to see the bytes: names as for Engine::publish, no names are everybody. Memory that stays with an
  /// audience keeps what that left there, which costs nothing; memory of any other is cleared first. It can then be
  /// published for these principals and no others. Not set: the bytes are all 0, and may be published for anybody.
  std::optional<std::vector<std::string>> audience = {};
  /// The NUMA node that its pages come from, as long as that has some; -1: the engine's choice.
  int node = -1;
  /// On a memfd of its own, which another process can map (Memory::shared_file).
  bool shared = false;
};

/// Where memory lies that another process can map: mmap(MAP_SHARED) of `fd`, which the memory owns, from `offset` on.
/// Its size cannot be changed (it is sealed). Whoever gets the descriptor sees these bytes, whatever the audience.
struct SharedFile {
  int fd = -1;
  std::size_t offset = 0;
};

/// What an engine's pool has of arenas on pages of one kind.
struct PoolArenas {
  std::string pages;  // "ordinary", "transparent", "2M", "1G"
  std::uint64_t arenas = 0, bytes = 0;
};

/// An engine's pool. While others use it each figure is right at some moment, not all at the same.
struct PoolStats {
  std::uint64_t bytes = 0;                             // of all arenas
  std::uint64_t blocks = 0, used_bytes = 0;            // allocated; bytes counts whole classes and pages
  std::uint64_t cached_bytes = 0;                      // free blocks that are kept for threads
  std::uint64_t given_back = 0, given_back_bytes = 0;  // arenas that were idle, since the engine began
  std::vector<PoolArenas> arenas;                      // by kind, from the plainest on; also those that have none
  std::string pages;                                   // a sentence: which pages its arenas get and why not better ones
};

/// A slice [offset, offset + size) of registered local memory.
/// Ownership: a counted reference. The registration (and, for pool buffers and mapped files, the memory) lives until
/// the last slice and the last transfer in flight let go. For register_memory() the caller keeps the bytes alive
/// until then. Threads: distinct handles may be used from different threads; the bytes are the caller's to synchronise.
class FAIRLEAD_EXPORT Memory : public Handle {
 public:
  Memory() noexcept = default;
  Memory(const Passkey& key, std::shared_ptr<void> region, std::span<std::byte> bytes) noexcept
      : Handle(key, std::move(region)), data_(bytes.data()), size_(bytes.size()) {}

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  /// A part of this slice. Out of bounds gives an invalid Memory.
  [[nodiscard]] Memory slice(std::size_t offset, std::size_t length) const noexcept;
  /// Where another process finds this slice, if it was allocated with AllocateOptions::shared.
  [[nodiscard]] std::optional<SharedFile> shared_file() const noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A slice of a peer's published region, as learned by Peer::lookup or Peer::list: (region, offset, length).
/// Valid for the session that learned it, until its owner withdraws it or refuses an operation on it, since its memory
/// is gone (kProtectionError): then later ones fail the same way at once, and a new lookup tells what is there now.
/// A value; threads as Memory.
class FAIRLEAD_EXPORT RemoteMemory : public Handle {
 public:
  RemoteMemory() noexcept = default;
  RemoteMemory(const Passkey& key, std::shared_ptr<void> region, std::uint64_t offset, std::uint64_t size) noexcept
      : Handle(key, std::move(region)), offset_(offset), size_(size) {}

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] Access access() const noexcept;
  /// Operations on it fail: its owner has withdrawn it, or refused one. The news takes a moment to arrive.
  [[nodiscard]] bool withdrawn() const noexcept;
  /// The tensor that the owner published here, if it is one (describes the whole region, not the slice).
  [[nodiscard]] const std::optional<TensorSpec>& tensor() const noexcept;
  [[nodiscard]] RemoteMemory slice(std::uint64_t offset, std::uint64_t length) const noexcept;

 private:
  std::uint64_t offset_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace fairlead::inline v0
