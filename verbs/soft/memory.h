// Memory regions and the checks between a key on the wire and a byte in memory.
//
// A key is a slot number and a random tag, mixed with a secret of the device: found by one array access, not guessed.
// lkey and rkey of a region are equal. Threads: all under the domain's lock, so that after remove() nothing touches
// the memory through the region.
// Source: IBTA volume 1, 10.6 (memory management), 9.4.5 (access checks).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

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
  int users = 0;  // regions and queue pairs; under the domain's lock

 private:
  Pd* const original_;
};

/// What the checks rely on stands apart from the application's ibv_mr.
struct Mr : ibv_mr {
  std::byte* start = nullptr;
  std::uint64_t bytes = 0;
  const ibv_pd* domain = nullptr;
  std::uint32_t key = 0;
  unsigned access = 0;  // ibv_access_flags
};

class MrTable {
 public:
  static constexpr std::size_t kMaxRegions = 1U << 20;

  explicit MrTable(std::uint64_t seed) : random_(seed), secret_(static_cast<std::uint32_t>(random_())) {}

  /// Null when the table is full.
  [[nodiscard]] Mr* add(Pd& pd, void* address, std::size_t length, unsigned access);
  void remove(Mr* region) noexcept;

  /// The memory at `address`, if the key names a region of `pd` that holds [address, address + length) and grants all
  /// of `access`; else null.
  [[nodiscard]] std::byte* find(const ibv_pd* pd, std::uint32_t key, std::uint64_t address, std::size_t length,
                                unsigned access) const noexcept {
    const std::uint32_t slot = (key ^ secret_) >> kTagBits;
    if (slot >= slots_.size() || slots_[slot] == nullptr) return nullptr;
    const Mr& region = *slots_[slot];
    const auto base = reinterpret_cast<std::uint64_t>(region.start);
    const bool inside = address >= base && length <= region.bytes && address - base <= region.bytes - length;
    if (region.key != key || region.domain != pd || (region.access & access) != access || !inside) return nullptr;
    return region.start + (address - base);
  }
  [[nodiscard]] std::size_t size() const noexcept { return used_; }

 private:
  static constexpr unsigned kTagBits = 12;
  static constexpr std::uint32_t kTagMask = (1U << kTagBits) - 1;

  std::mt19937_64 random_;
  std::uint32_t secret_;
  std::vector<std::unique_ptr<Mr>> slots_;
  std::vector<std::uint16_t> tags_;  // each slot's last
  std::vector<std::uint32_t> free_;
  std::size_t used_ = 0;
};

}  // namespace fairlead::soft
