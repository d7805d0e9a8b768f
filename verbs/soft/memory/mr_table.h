// Memory regions and windows, and the checks between a key on the wire and a byte in memory.
//
// A key is an index of 24 bits, which nothing else has, and a tag of 8 bits, which of a window is its consumer's (IBTA
// 10.6.7.2.2). Both are the kernel's random numbers, so that whoever knows some keys knows nothing about the others:
// the keys that fit something are at most one in 2^12, as regions and windows are limited to that. A hash table finds
// them; as its keys are random, their bits are their hash. Of an index that was given up no key is made while it rests.
// lkey and rkey of a region are equal. Threads: all under the domain's lock, so that after remove() nothing touches
// the memory through the key.
// Source: IBTA volume 1, 10.6 (memory management), 9.4.5 (access checks).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "verbs/soft/memory/mapping.h"

namespace fairlead::soft {

class Device;

/// A protection domain, or a parent domain that stands for one. Created and destroyed under the domain's lock.
struct Pd : ibv_pd {
  explicit Pd(ibv_context* owner, Pd* original = nullptr) : ibv_pd{owner, 0}, original_(original) {
    if (original_ != nullptr) ++original_->users;
  }
  virtual ~Pd() {
    if (original_ != nullptr) --original_->users;
  }
  Pd(const Pd&) = delete;
  Pd& operator=(const Pd&) = delete;
  /// Whose identity counts where memory is protected.
  [[nodiscard]] Pd& root() noexcept { return original_ != nullptr ? *original_ : *this; }
  int users = 0;  // regions, windows and queue pairs; under the domain's lock

 private:
  Pd* const original_;
};

/// Every region grants it, no window does: a window's key is a remote one only.
inline constexpr unsigned kLocalRead = 1U << 31;

/// What a key grants: of a region as long as it lives, of a window while it is bound.
struct Grant {
  std::byte* start = nullptr;
  std::uint64_t base = 0;  // the address that names `start`
  std::uint64_t bytes = 0;
  const ibv_pd* domain = nullptr;
  std::uint32_t key = 0;
  unsigned access = 0;        // ibv_access_flags and kLocalRead
  std::uint32_t only_qp = 0;  // the number of the one queue pair that may use it; 0: all of `domain`
  bool window = false;
  bool null = false;  // no memory: writes vanish, reads find zeroes

  /// The memory behind `address`. Not by adding to `start`: for one that is null (all of the address space) compilers
  /// may take the sum to be null as well.
  [[nodiscard]] std::byte* at(std::uint64_t address) const noexcept {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(start) + (address - base));
  }
};

/// Memory that the application asked the device for: the host's, as the device has none of its own.
struct Dm : ibv_dm {
  std::unique_ptr<std::byte[]> memory;
  std::byte* start = nullptr;  // aligned as was asked for
  std::uint64_t bytes = 0;
  int users = 0;  // regions; under the domain's lock
};

/// What the checks rely on stands apart from the application's ibv_mr.
struct Mr : ibv_mr, Grant {
  int windows = 0;  // bound to it
  Dm* device_memory = nullptr;
  Mapping mapping;  // of its own, if it is a dma-buf's
};

struct Mw : ibv_mw, Grant {
  Mr* region = nullptr;  // while it is bound
};

class MrTable {
 public:
  static constexpr std::size_t kMaxKeys = 1U << 20;
  static constexpr std::size_t kMaxWindows = 1U << 12;  // of them: who tries a window's key knows its tag

  /// Gives the grant a key. False when all are in use. Throws std::bad_alloc, and std::system_error where the kernel
  /// gives no random numbers.
  [[nodiscard]] bool add(Grant& grant);
  void remove(const Grant& grant) noexcept;

  /// The memory at `address`, if the key grants queue pair `qpn` of `pd` all of `access` to [address, address +
  /// length); else null. Of a null region, which grants local access only, at most kNullBytes may be touched.
  [[nodiscard]] std::byte* find(const ibv_pd* pd, std::uint32_t key, std::uint64_t address, std::size_t length,
                                unsigned access, std::uint32_t qpn) const noexcept {
    const Grant* grant = grant_of(key);
    if (grant == nullptr || grant->domain != pd || (grant->access & access) != access) return nullptr;
    if (address < grant->base || length > grant->bytes || address - grant->base > grant->bytes - length) return nullptr;
    if (grant->only_qp != 0 && grant->only_qp != qpn) return nullptr;
    if (grant->null) return nothing(access);
    return grant->at(address);
  }
  [[nodiscard]] Grant* grant_of(std::uint32_t key) const noexcept {
    Grant* grant = grant_of_index(key);
    return grant != nullptr && grant->key == key ? grant : nullptr;
  }
  /// What has the key but for its tag.
  [[nodiscard]] Grant* grant_of_index(std::uint32_t key) const noexcept { return slots_[slot_of(key)]; }
  [[nodiscard]] bool has_windows() const noexcept { return windows_ != 0; }

  /// Calls each(grant) for all of them.
  template <typename Each>
  void for_each(Each&& each) {
    for (Grant* grant : slots_) {
      if (grant != nullptr) each(*grant);
    }
  }

  static constexpr std::size_t kNullBytes = 4096;  // the largest path MTU
  /// What find() gave is no memory, of which kNullBytes may be touched.
  [[nodiscard]] bool is_nothing(const std::byte* found) const noexcept {
    return found == sink_.data() || found == zeroes_.data();
  }

 private:
  static constexpr unsigned kTagBits = 8;
  static constexpr std::size_t kResting = 1024;  // indices that were given up last

  static std::uint32_t index_of(std::uint32_t key) noexcept { return key >> kTagBits; }
  [[nodiscard]] std::size_t home(std::uint32_t key) const noexcept { return index_of(key) & (slots_.size() - 1); }
  [[nodiscard]] std::size_t after(std::size_t slot) const noexcept { return (slot + 1) & (slots_.size() - 1); }
  /// Where the key's index is, or the empty slot where it would be.
  [[nodiscard]] std::size_t slot_of(std::uint32_t key) const noexcept {
    std::size_t slot = home(key);
    while (slots_[slot] != nullptr && index_of(slots_[slot]->key) != index_of(key)) slot = after(slot);
    return slot;
  }
  [[nodiscard]] bool is_free(std::uint32_t key) const noexcept;
  [[nodiscard]] std::uint32_t draw();
  void grow();
  [[nodiscard]] std::byte* nothing(unsigned access) const noexcept {
    return (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? sink_.data() : zeroes_.data();
  }

  std::vector<Grant*> slots_ = std::vector<Grant*>(64);  // a power of two, at least half of them empty
  std::size_t used_ = 0;
  std::size_t windows_ = 0;                        // of those
  std::array<std::uint32_t, kResting> resting_{};  // a ring
  std::size_t given_up_ = 0;
  std::array<std::uint32_t, 64> drawn_{};  // random numbers, as many as the kernel gives at once
  std::size_t undrawn_ = 0;                // of them, at the front
  mutable std::array<std::byte, kNullBytes> sink_{};
  mutable std::array<std::byte, kNullBytes> zeroes_{};
};

[[nodiscard]] inline Pd& impl(ibv_pd* pd) noexcept { return static_cast<Pd&>(*pd); }
[[nodiscard]] inline Mr& impl(ibv_mr* mr) noexcept { return static_cast<Mr&>(*mr); }
[[nodiscard]] inline Mw& impl(ibv_mw* mw) noexcept { return static_cast<Mw&>(*mw); }

}  // namespace fairlead::soft
