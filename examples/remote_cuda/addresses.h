// The addresses that a program is given for memory of the device, and what lies there.
//
// They are of a range of this process's own address space in which nothing can be read or written: so no object of the
// program has such an address, and one that dereferences a device's pointer faults at once.
// Threads: the owner's lock.
#pragma once

#include <fairlead/command.h>

#include <cstdint>
#include <map>
#include <optional>

class Addresses {
 public:
  Addresses() = default;
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses();

  /// Addresses for so many bytes at once, and for what gaps between allocations take. False: there are not so many.
  bool reserve(std::uint64_t bytes);
  /// An address for an allocation, a multiple of 256; 0: there is none.
  std::uint64_t place(fairlead::command::Handle allocation, std::uint64_t bytes);
  /// The allocation whose first byte it is, which is forgotten.
  std::optional<fairlead::command::Handle> remove(std::uint64_t address);

  /// The allocation and the byte of it, if `bytes` from there on lie within.
  [[nodiscard]] std::optional<fairlead::command::Pointer> find(std::uint64_t address, std::uint64_t bytes) const;

 private:
  struct Allocation {
    fairlead::command::Handle handle;
    std::uint64_t bytes;
  };
  std::uint64_t begin_ = 0, end_ = 0;
  std::map<std::uint64_t, Allocation> placed_;  // by address
};
