// A way across, before anybody uses it: what it can do, and the memory that it knows.
//
// A Device is a NIC, softroce, or the kernel's sockets. It is one protection domain (memory_domain.h), and makes others
// beside that. What moves bytes is an Endpoint of it. A device never knows the engine.
//
// Threads: capabilities and memory from any thread at any time, also while an endpoint is driven; no call waits for the
// one who drives longer than for the piece of memory that he is just touching. open_endpoint: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "transport/endpoint.h"
#include "transport/memory.h"
#include "transport/memory_domain.h"

namespace fairlead::datapath {

/// What a device gives. Constant for its life.
struct Capabilities {
  bool one_sided = true;  // write and read go straight to the target's memory
  // A message posted after a write is delivered only after, and only if, that write was placed. Where the target
  // refuses the write, the path either goes down (RC queue pairs) or stays up and completes every message that was in
  // flight behind the write with kAborted, undelivered (tcp: the target compares counts of refusals); never a message
  // delivered.
  bool write_then_message_ordered = true;
  bool write_notifies = false;  // a write may carry a notification: WorkRequest::notify
  bool needs_flush = false;     // placed data needs a flush before it may be read (GPU memory)
  bool software = false;        // verbs made in software: ranks below tcp in `auto`
  bool encrypted = false;
  // Every access of a peer is checked by code of ours, so that a grant is an entry in a table: it pins nothing, and
  // takes the same time for a byte as for a terabyte. Else a grant is one more registration at the device, since
  // nothing less can be withdrawn by itself: it maps and pins its bytes again.
  bool grants_are_entries = false;
  std::uint64_t max_region = 0;            // bytes of one registration; 0: any
  std::uint32_t max_message = 0;           // bytes of one message
  std::uint32_t max_segments = 1;          // local segments of one work request
  std::uint32_t max_outstanding = 0;       // work requests per path that post() takes before it says "full"
  std::uint64_t link_bits_per_second = 0;  // 0: unknown
};

/// What a device holds now.
struct DeviceUsage {
  // Of all its domains.
  std::size_t registrations = 0;  // ranges that are mapped; where grants are no entries, those of grants as well
  std::size_t grants = 0;
};

class Device : public MemoryDomain {
 public:
  [[nodiscard]] virtual const Capabilities& capabilities() const noexcept = 0;
  /// Where peers on other hosts may reach it: numeric, the best first. None: wherever this host is reached.
  [[nodiscard]] virtual std::vector<std::string> addresses() const { return {}; }
  /// What two devices must have in common to meet at all; empty: nothing.
  [[nodiscard]] virtual std::string place() const { return {}; }
  /// One line for `explain`: device, packet I/O, profile.
  [[nodiscard]] virtual std::string describe() const = 0;

  /// One more domain. Quick: it maps nothing. Errors: kResourceExhausted.
  virtual Result<std::unique_ptr<MemoryDomain>> open_domain() = 0;
  [[nodiscard]] virtual DeviceUsage usage() const noexcept = 0;

  /// What is driven: one for each lane, which share nothing but the device. It outlives them.
  virtual Result<std::unique_ptr<Endpoint>> open_endpoint() = 0;
};

}  // namespace fairlead::datapath
