// What of a device's memory goes together: registrations and grants, good for the paths that belong to it and no other.
//
// A path opened with PathConfig::domain uses registrations of that domain, and what its peer names must be granted
// there: a key of another domain opens nothing, whoever shows it. A device is a domain itself, which paths have that
// name none. Hardware's is a protection domain (IBTA 3.5.2, 10.2.3); tcp and softroce check each access themselves.
//
// Threads: any, as device.h says. Ownership: who opened it; the device outlives it, and it outlives its paths. By the
// time that it goes its registrations and grants are withdrawn.
#pragma once

#include <string_view>

#include "fairlead/status.h"
#include "transport/memory.h"

namespace fairlead::datapath {

class MemoryDomain {
 public:
  virtual ~MemoryDomain() = default;
  /// The device's: "verbs:soft0", "tcp".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Makes the bytes usable here. Errors name object, value, limit, remedy; kUnimplemented: not this kind of memory.
  virtual Result<Registration> register_memory(const MemoryDescriptor& memory) = 0;
  /// Grants over it are revoked by then, and no work request names it.
  virtual void deregister(const Registration& registration) noexcept = 0;
  /// Lets peers reach a part of what is registered (see part_of).
  virtual Result<Grant> grant(const MemoryDescriptor& part) = 0;
  /// When it returns, no operation of a peer writes the bytes through this grant, and none that reads them succeeds.
  /// Nor does one read on, but over shm: who copies them by itself may be in the middle of a piece of 256 KiB, which is
  /// its last.
  virtual void revoke(const Grant& grant) noexcept = 0;

 protected:
  MemoryDomain() = default;
  MemoryDomain(const MemoryDomain&) = delete;
  MemoryDomain& operator=(const MemoryDomain&) = delete;
};

}  // namespace fairlead::datapath
