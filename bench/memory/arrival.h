// The last byte of memory that a peer writes into, by which a program sees that a write has arrived: no completion, no
// notification, as `ib_write_lat` and programs over RDMA do that count on a device's placing in order. The peer writes
// another value each time. What stands before it is safe to read only if the device keeps to that; the engine promises
// it for notifications alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fairlead::bench {

class ArrivalByte {
 public:
  ArrivalByte() noexcept = default;
  explicit ArrivalByte(std::span<std::byte> memory) noexcept
      : byte_(memory.empty() ? nullptr : reinterpret_cast<std::uint8_t*>(&memory.back())) {}

  [[nodiscard]] bool valid() const noexcept { return byte_ != nullptr; }
  void set(std::uint8_t value) const noexcept { *byte_ = value; }
  /// While others write it: that race is what is looked for.
  [[nodiscard]] __attribute__((no_sanitize("thread"))) std::uint8_t look() const noexcept {
    return __atomic_load_n(byte_, __ATOMIC_ACQUIRE);
  }

 private:
  std::uint8_t* byte_ = nullptr;
};

}  // namespace fairlead::bench
