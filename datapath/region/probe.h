// What an end has for its peer to write to, and to write from, so that paths can be proved and measured.
//
// One for each way across: two ways that are measured at once write into the memory of neither.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fairlead/status.h"
#include "transport/memory.h"
#include "transport/memory_domain.h"
#include "transport/path.h"

namespace fairlead::datapath {

/// Of each of the two: the peer's target, and the source of what goes into the peer's.
inline constexpr std::uint32_t kProbeBytes = 64 * 1024;

class Probe {
 public:
  /// In the domain, which outlives it. Errors: it registers or grants no more.
  [[nodiscard]] static Result<std::unique_ptr<Probe>> make(MemoryDomain& domain);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  [[nodiscard]] const Grant& target() const noexcept { return target_; }
  [[nodiscard]] LocalSegment source() noexcept {
    return {memory_.data() + kProbeBytes, kProbeBytes, registration_.local};
  }

 private:
  explicit Probe(MemoryDomain& domain) noexcept : domain_(domain) {}

  MemoryDomain& domain_;
  // The target, then the source. Whole pages: QEMU's pvrdma registers no others.
  alignas(4096) std::array<std::byte, std::size_t{2} * kProbeBytes> memory_{};
  bool registered_ = false;
  bool granted_ = false;
  Registration registration_{};
  Grant target_{};
};

}  // namespace fairlead::datapath
