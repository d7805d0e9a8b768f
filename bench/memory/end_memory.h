// The memory that one end of a measurement gives: equal slots, from its engine's pool or on a CUDA device, filled and
// compared by pattern. Of a device's the CPU sees copies alone, made before a clock starts and after it has stopped.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/memory/place.h"
#include "fairlead/engine.h"

namespace fairlead::bench {

/// That there is such a device. Errors: kNotFound, kUnimplemented and kInvalidArgument, with the remedy.
Status usable(Place place);

class DeviceBytes;

class EndMemory {
 public:
  EndMemory() noexcept = default;
  /// All bytes are 0. Errors: those of Engine::allocate and register_memory; kResourceExhausted, the device has no
  /// more.
  static Result<EndMemory> allocate(Engine& engine, std::uint64_t size, std::uint64_t slots, Place place);

  [[nodiscard]] const Memory& all() const noexcept { return memory_; }
  [[nodiscard]] Memory slot(std::uint64_t number) const noexcept { return memory_.slice(number * size_, size_); }
  [[nodiscard]] std::uint64_t slots() const noexcept { return slots_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Of slot i with pattern (seed, i). Errors of this and of those below: a device's, kUnavailable.
  [[nodiscard]] Status fill(std::uint64_t seed) const;
  [[nodiscard]] Status clear() const;
  /// CRC-32 of each slot.
  [[nodiscard]] Result<std::vector<std::uint32_t>> checksums() const;

 private:
  Memory memory_;
  std::shared_ptr<DeviceBytes> device_;  // null: the CPU reaches the bytes
  std::uint64_t size_ = 0, slots_ = 0;
};

}  // namespace fairlead::bench
