// Copies of packets that came before their turn (qp/disorder.h): room for a bounded number of them, which all queue
// pairs of a domain share. Threads: under the domain's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "base/clock.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {

struct EarlyPacket {
  std::unique_ptr<EarlyPacket> next;
  Psn psn;
  std::uint32_t packets = 0;  // PSNs that it stands for: of a READ request those of its answer
  // Of the gap right before it, if there is one.
  Nanos gap_since = 0;
  Nanos reported_at = 0;
  unsigned reports = 0;
  std::uint64_t arrival = 0;  // how many had been kept when the gap was seen

  std::size_t size = 0;
  std::array<std::byte, 4096 + kMostHeaderBytes + kIcrcBytes> bytes;
  [[nodiscard]] Psn end() const noexcept { return psn + packets; }
};

class PacketStore {
 public:
  static constexpr std::size_t kMost = 4096;
  static constexpr std::size_t kMostSpare = 256;

  PacketStore() { spare_.reserve(kMostSpare); }
  /// Null: all are in use.
  [[nodiscard]] std::unique_ptr<EarlyPacket> take() noexcept {
    if (used_ == kMost) return nullptr;
    std::unique_ptr<EarlyPacket> packet;
    if (spare_.empty()) {
      packet.reset(new (std::nothrow) EarlyPacket);
    } else {
      packet = std::move(spare_.back());
      spare_.pop_back();
    }
    if (packet) ++used_;
    return packet;
  }
  void give_back(std::unique_ptr<EarlyPacket> packet) noexcept {
    --used_;
    if (spare_.size() < kMostSpare) spare_.push_back(std::move(packet));
  }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

 private:
  std::vector<std::unique_ptr<EarlyPacket>> spare_;
  std::size_t used_ = 0;
};

}  // namespace fairlead::soft
