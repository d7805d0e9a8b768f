// Registrations of memory that the application owns, kept for the next time it is used.
//
// Registering costs a millisecond or more, most of it for pinning pages; transfers go from the same buffers again and
// again. find() gives the registration that holds some bytes, and makes it where there is none. It stays when nobody
// uses it, until its memory changes, or others need its room.
//
// A registration that outlives its pages is worse than none: a device would send what lay there before. So what is
// found here is watched (watcher.h), and each find() first waits for all changes that are pending anywhere in the
// process. Memory that cannot be watched is not cached, ever: files, memory that is shared, all memory where
// userfaultfd is refused. The owner of such memory declares it, and withdraws it before unmapping; that is found
// without a system call.
//
// What is registered: whole pages; what touches or overlaps within one mapping becomes one. Bytes that nobody asked for
// are pinned along where they lie between some that were asked for in one call, or share a page with some.
//
// Contract: bytes that are named in a call stay mapped, and are not emptied, until it returns. Whoever has a Lease may
// have unmapped them: the registration then keeps the old pages until the last Lease goes, and nobody else finds it.
//
// Threads: all from any. Nothing is called under a lock: neither the hook nor what deregisters. After fork() the
// child's copy is inert: calls fail, Leases do nothing. Every Lease must have gone before the cache is destroyed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/spin_lock.h"
#include "base/system/fork_mark.h"
#include "fairlead/status.h"
#include "memreg/cache/entry.h"
#include "memreg/cache/mappings.h"
#include "memreg/cache/watcher.h"

namespace fairlead::memreg::cache {

/// Registers the bytes; what it returns is destroyed to deregister them. Called from several threads at once. A
/// kResourceExhausted makes the cache deregister what is idle, and try again.
using RegisterHook = std::function<Result<std::shared_ptr<void>>(std::span<std::byte> bytes)>;

struct CacheConfig {
  std::size_t max_bytes = 0;  // that may be pinned at once; 0: no limit
  // Larger ranges are registered in pieces, in parallel: three, as every registration costs a device's time and
  // tables, but none shorter than the first of these, longer than the second, or than any device takes.
  std::size_t chunk_bytes = std::size_t{1} << 30;
  std::size_t largest_chunk_bytes = std::size_t{64} << 30;
  std::function<std::size_t()> device_most_bytes = nullptr;  // asked each time; null: no such limit
  std::size_t gap_bytes = std::size_t{16} << 20;  // up to which, between ranges of one call, all is registered
  std::shared_ptr<Watcher> watcher = nullptr;     // null: that of the process
};

struct CacheStats {
  std::uint64_t hits = 0, declared_hits = 0;  // found registered, in watched memory and in declared memory
  std::uint64_t misses = 0;                   // had to be registered first
  std::uint64_t registrations = 0;            // made, pieces of large ones as one
  std::uint64_t merged = 0;                   // taken up into larger ones
  std::uint64_t evicted = 0;                  // idle, and gave way to others
  std::uint64_t invalidated = 0;              // whose memory changed
  std::size_t entries = 0;                    // that exist now, those that nobody finds any more included
  std::size_t pinned_bytes = 0;               // theirs
};

class RegistrationCache;

/// Keeps the registration of the bytes that were asked for. Move-only. Threads: a value; may go on any thread.
class Lease {
 public:
  Lease() noexcept = default;
  Lease(Lease&& other) noexcept { swap(other); }
  Lease& operator=(Lease&& other) noexcept {
    Lease taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Lease();

  [[nodiscard]] explicit operator bool() const noexcept { return entry_ != nullptr; }
  /// All of the registration, ascending; the bytes lie in it, and mostly in the first and only piece.
  [[nodiscard]] const std::vector<Piece>& pieces() const noexcept { return entry_->pieces; }
  /// The piece in which the byte at `address` lies.
  [[nodiscard]] const Piece& piece_at(std::uintptr_t address) const noexcept;

 private:
  friend class RegistrationCache;
  Lease(RegistrationCache& cache, Entry& entry) noexcept : cache_(&cache), entry_(&entry) {}
  void swap(Lease& other) noexcept {
    std::swap(cache_, other.cache_);
    std::swap(entry_, other.entry_);
  }

  RegistrationCache* cache_ = nullptr;
  Entry* entry_ = nullptr;
};

class RegistrationCache final : private Watcher::Listener {
 public:
  enum class When : std::uint8_t { kNow, kFirstUse };

  RegistrationCache(CacheConfig config, RegisterHook hook);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  /// The registration of these bytes. Errors: kInvalidArgument (0 bytes, a hole), kUnimplemented (memory that cannot be
  /// watched: declare it), kResourceExhausted (names the limit), kUnavailable (closed, inherited, or the memory changes
  /// all the time), and the hook's.
  Result<Lease> find(std::span<std::byte> bytes);
  /// Many at once; those of one mapping share a registration. All, or none and the first error.
  Result<std::vector<Lease>> find(std::span<const std::span<std::byte>> ranges);

  /// The memory stays where it is until withdraw(), whose caller promises so; any kind. It is never evicted.
  /// Errors: kAlreadyExists (overlaps what is declared), and find()'s, with kNow.
  Status declare(std::span<std::byte> bytes, When when = When::kNow);
  /// What was declared from this address on; when it returns, nobody finds it, and unless a Lease is out, it is
  /// deregistered. Errors: kNotFound.
  Status withdraw(const std::byte* begin);

  /// Deregisters all that is idle, but for what is declared.
  void trim() noexcept;
  /// Nothing is found any more; all that nobody uses is deregistered, the rest with its last Lease. Idempotent.
  void close() noexcept;
  [[nodiscard]] CacheStats stats() const;

 private:
  friend class Lease;
  struct Wanted {  // one registration to be
    Range hull, mapping;
    std::vector<Range> named;
    std::vector<std::size_t> members;  // which of the call's ranges
  };
  enum class Entered : std::uint8_t { kYes, kWaited, kChanged };
  using Ranges = std::span<const std::span<std::byte>>;

  // Watcher::Listener
  void on_gone(Range range, bool unmapped) noexcept override;
  void on_moved() noexcept override;
  [[nodiscard]] Range not_needed(Range range, std::uintptr_t from) noexcept override;

  // registration_cache.cc: what is there
  [[nodiscard]] Status usable() const;
  [[nodiscard]] Status check(std::span<std::byte> bytes) const;
  /// ok, or why no memory can be watched. Opens the watcher, once there is what it takes.
  Status watching();
  Status begin_watching();  // with opening_
  [[nodiscard]] Entry* take_declared(Range bytes) noexcept;
  [[nodiscard]] Entry* take_cached(Range pages) noexcept;
  void release(Entry& entry) noexcept;

  // declared_memory.cc
  /// The declared one that holds the bytes, registered by now; null: there is none.
  Result<Entry*> find_declared(Range bytes);
  Status register_declared(Entry& entry);

  // misses.cc: what is to come
  Result<std::vector<std::size_t>> take_known(Ranges ranges, std::vector<Lease>& leases);
  Result<std::vector<Wanted>> plan(Ranges ranges, const std::vector<std::size_t>& missing, bool alone);
  /// But for kYes, look again: another has registered some of it, or it changed meanwhile.
  Result<Entered> enter(const Wanted& wanted, bool alone, std::vector<Lease>& leases);
  Entry* place(const Wanted& wanted, bool alone);
  [[nodiscard]] Range grown(const Wanted& wanted) const noexcept;
  Status register_watched(Entry& entry);

  /// `use` with lock_ held and room in the index for one more.
  template <typename Use>
  bool with_room(EntryIndex& index, const Use& use) {
    for (std::vector<Entry*> other;;) {
      std::size_t room = 0;
      {
        const std::lock_guard lock(lock_);
        if (!index.has_room() && other.capacity() > index.size()) index.move_to(other);
        if (index.has_room()) return use();
        room = 2 * index.size() + kFirstRoom;
      }
      other.clear();
      other.reserve(room);
    }
  }

  // lifetimes.cc
  Status charge(Entry& entry);
  Status register_pieces(Entry& entry);
  Status make_pieces(Entry& entry);
  [[nodiscard]] std::size_t piece_bytes(std::size_t bytes) const;
  void wait_until_came(Entry& entry);
  void came() noexcept;
  /// With lock_ held: a user comes, and goes. True: it is to be deregistered now.
  static void use(Entry& entry) noexcept;
  [[nodiscard]] bool drop(Entry& entry) noexcept;
  /// With lock_ held: nobody finds it any more.
  void forget(Entry& entry) noexcept;
  bool evict_one() noexcept;
  void evict_all() noexcept;
  void bury() noexcept;
  void bury_soon() noexcept;
  void unwatch_forgotten() noexcept;
  void ring() noexcept;
  void sweep() noexcept;

  static constexpr std::size_t kFirstRoom = 64;  // entries

  const CacheConfig config_;
  const RegisterHook hook_;
  const ForkMark fork_mark_;
  std::atomic<bool> closed_{false};

  std::atomic<bool> watches_{false};
  std::mutex opening_;
  std::shared_ptr<Watcher> watcher_;  // set by whoever opens it, before watches_
  Status refused_;                    // opening_: ok, or why there was none the last time

  // Held for some dozens of instructions, also by who reads events: nothing is allocated or freed under it.
  mutable SpinLock lock_;
  EntryIndex declared_, cached_;
  List<Entry> idle_, dead_, unwatched_;
  CacheStats stats_;

  std::mutex burying_;  // whoever has it has seen off all that was dead
  std::atomic<std::uint64_t> buried_{0};
  std::mutex coming_;  // of who waits for another's registration
  std::condition_variable came_;

  std::atomic<std::uint32_t> rings_{0};  // of the sweeper
  std::atomic<bool> swept_{false};       // there is one
  std::unique_ptr<std::thread> sweeper_;
};

}  // namespace fairlead::memreg::cache
