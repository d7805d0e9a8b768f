// Memory regions and windows, and the checks between a key on the wire and a byte in memory.
//
// A key is a slot (its upper 24 bits, scrambled by a secret of the device: found by one array access, not guessed) and
// a tag of 8 bits, which of a type 2 window is its consumer's (IBTA 10.6.7.2.2). A slot is given out again only after
// others were, and each time with the next tag of a cycle that has all 256: a key that was deregistered fits nothing
// for at least 16,384 registrations.
// lkey and rkey of a region are equal. Threads: all under the domain's lock, so that after remove() nothing touches
// the memory through the key.
// Source: IBTA volume 1, 10.6 (memory management), 9.4.5 (access checks).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "verbs/soft/mapping.h"

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

  explicit MrTable(std::uint64_t seed);

  /// Gives the grant a key. False when all are in use. Throws std::bad_alloc.
  [[nodiscard]] bool add(Grant& grant);
  void remove(const Grant& grant) noexcept;

  /// The memory at `address`, if the key grants queue pair `qpn` of `pd` all of `access` to [address, address +
  /// length); else null. Of a null region at most kNullBytes may be touched.
  [[nodiscard]] std::byte* find(const ibv_pd* pd, std::uint32_t key, std::uint64_t address, std::size_t length,
                                unsigned access, std::uint32_t qpn) const noexcept {
    const Grant* grant = grant_of(key);
    if (grant == nullptr || grant->domain != pd || (grant->access & access) != access) return nullptr;
    if (address < grant->base || length > grant->bytes || address - grant->base > grant->bytes - length) return nullptr;
    if (grant->only_qp != 0 && grant->only_qp != qpn) return nullptr;
    if (grant->null) return nothing(access);
    return grant->start + (address - grant->base);
  }
  [[nodiscard]] Grant* grant_of(std::uint32_t key) const noexcept {
    Grant* grant = grant_of_slot(key);
    return grant != nullptr && grant->key == key ? grant : nullptr;
  }
  /// What has the key but for its tag.
  [[nodiscard]] Grant* grant_of_slot(std::uint32_t key) const noexcept {
    const std::uint32_t slot = slot_of(key);
    return slot < slots_.size() ? slots_[slot] : nullptr;
  }
  [[nodiscard]] bool has_windows() const noexcept { return windows_ != 0; }

  /// Calls each(grant) for all of them.
  template <typename Each>
  void for_each(Each&& each) {
    for (Grant* grant : slots_) {
      if (grant != nullptr) each(*grant);
    }
  }

  static constexpr std::size_t kNullBytes = 4096;  // the largest path MTU

 private:
  static constexpr unsigned kTagBits = 8;
  static constexpr std::uint32_t kSlotMask = 0xffffff;
  static constexpr std::size_t kResting = 64;  // free slots before one is given out again
  static constexpr std::uint32_t kNone = ~0U;

  void grow();
  void append_free(std::uint32_t slot) noexcept;
  [[nodiscard]] std::uint32_t slot_of(std::uint32_t key) const noexcept {
    return (((key >> kTagBits) ^ secret_) * unscramble_) & kSlotMask;
  }
  [[nodiscard]] std::uint32_t key_of(std::uint32_t slot, std::uint8_t tag) const noexcept {
    return (((slot * scramble_) & kSlotMask) ^ secret_) << kTagBits | tag;
  }
  [[nodiscard]] std::byte* nothing(unsigned access) const noexcept {
    return (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? sink_.data() : zeroes_.data();
  }

  std::uint32_t secret_;    // 24 bits
  std::uint32_t scramble_;  // odd, and its inverse modulo 2^24
  std::uint32_t unscramble_;
  std::uint8_t tag_step_;  // odd
  std::mt19937_64 random_;
  std::vector<Grant*> slots_;
  std::vector<std::uint8_t> tags_;   // each slot's last
  std::vector<std::uint32_t> next_;  // each free slot's successor in the line
  std::uint32_t first_free_ = kNone;
  std::uint32_t last_free_ = kNone;
  std::size_t used_ = 0;
  std::size_t windows_ = 0;  // of those
  mutable std::array<std::byte, kNullBytes> sink_{};
  mutable std::array<std::byte, kNullBytes> zeroes_{};
};

}  // namespace fairlead::soft
