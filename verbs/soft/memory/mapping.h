// Pages that a region mapped for itself.
//
// Owned by whoever holds it; unmapped with it. Threads: none of its own.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace fairlead::soft {

class Mapping {
 public:
  Mapping() = default;
  /// Takes over what mmap returned.
  Mapping(void* address, std::size_t bytes) noexcept : address_(address), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (bytes_ != 0) ::munmap(address_, bytes_);
  }

 private:
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace fairlead::soft
