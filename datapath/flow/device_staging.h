// What memory of a GPU crosses when neither the path nor the CPU reaches it: slots of pinned host memory, and who
// copies between them and the device without waiting. One for each lane, from the first registration of such memory on.
//
// The slots are the bound on what staging takes. Half of them are for what this end began (bounce.h), half for what
// peers began (device_target.h): those wait for nothing but copies and their own path, so that two ends whose own
// transfers have taken all of theirs go on; and while slots are short, for copies alone, so that no peer keeps them
// from others by taking nothing. Threads: the driver, but for settle() and the counters.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/intrusive_list.h"
#include "datapath/region/regions.h"
#include "gpu/driver/copier.h"
#include "gpu/driver/pinned.h"

namespace fairlead::datapath {

/// Who waits for a slot.
class SlotWaiter {
 public:
  /// There is one: it may be asked for.
  virtual void slot_free() noexcept = 0;
  Link<SlotWaiter> in_waiting{this};

 protected:
  SlotWaiter() = default;
  ~SlotWaiter() = default;
};

class DeviceStaging {
 public:
  enum class Side : std::uint8_t { kOurs, kPeers };
  static constexpr std::size_t kLeastSlot = 65536;  // what a staged read asks for at most
  static constexpr std::size_t kLeast = 4 * kLeastSlot;

  /// How large the slots of so many bytes are.
  [[nodiscard]] static std::size_t slot_for(std::size_t bytes) noexcept;

  /// `range`: the pinned memory, as the engine's devices know it. At least kLeast bytes.
  DeviceStaging(std::shared_ptr<gpu::Driver> driver, std::unique_ptr<gpu::PinnedMemory> pinned,
                std::shared_ptr<RegisteredRange> range);

  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return pinned_->bytes().size(); }
  [[nodiscard]] const RegisteredRange& range() const noexcept { return *range_; }
  [[nodiscard]] gpu::Copier& copier() noexcept { return copier_; }
  [[nodiscard]] const gpu::Copier& copier() const noexcept { return copier_; }

  /// Null: all are in use, and `waiter` is told of the next that is not.
  [[nodiscard]] std::byte* take(Side side, SlotWaiter& waiter) noexcept;
  void give_back(Side side, std::byte* slot) noexcept;
  /// How many are in use.
  [[nodiscard]] std::size_t taken(Side side) const noexcept { return part(side).slots - part(side).free.size(); }
  /// More than half are: what waits for its path alone is to leave its slots.
  [[nodiscard]] bool is_short(Side side) const noexcept { return taken(side) > part(side).free.size(); }

 private:
  struct Part {
    std::size_t slots = 0;
    std::vector<std::byte*> free;
    List<SlotWaiter> waiting;
  };
  [[nodiscard]] Part& part(Side side) noexcept { return parts_[static_cast<std::size_t>(side)]; }
  [[nodiscard]] const Part& part(Side side) const noexcept { return parts_[static_cast<std::size_t>(side)]; }

  // Destroyed in reverse order: the registration goes before the memory.
  const std::unique_ptr<gpu::PinnedMemory> pinned_;
  const std::shared_ptr<RegisteredRange> range_;
  const std::size_t slot_bytes_;
  std::array<Part, 2> parts_;
  gpu::Copier copier_;
};

}  // namespace fairlead::datapath
