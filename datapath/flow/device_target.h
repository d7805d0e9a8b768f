// Staged mode where the peer's operations name memory of a GPU of ours: what arrived is gathered in slots of pinned
// host memory and copied on from there; what is read is copied into one first. Nobody waits for a copy.
//
// Writes are gathered as long as they follow each other in one region. A region is looked up, and its grant checked, as
// the copy begins, under the table's lock: so whoever withdraws it need only settle the copies that have begun. Copies
// for peers happen in the order of beginning, so that what is read shows what was written before. Where all slots are
// in use what arrives is kept as it came, which the peer's window bounds (staging.h).
//
// Threads: the driver. Errors: a copy that fails is a write, or a read, that is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "datapath/flow/device_staging.h"
#include "datapath/region/regions.h"
#include "fairlead/status.h"

namespace fairlead::datapath::staging {

/// A slot, and the copy that uses it. It goes back with the object, which outlives the copy, or before.
class SlotCopy : public gpu::CopyEnd {
 public:
  enum class State : std::uint8_t { kWaiting, kCopying, kDone, kFailed };
  SlotCopy(DeviceStaging& staging, std::byte* slot, const std::function<void()>& moved)
      : staging_(staging), slot_(slot), moved_(moved) {}
  virtual ~SlotCopy() {
    if (slot_ != nullptr) staging_.give_back(DeviceStaging::Side::kPeers, slot_);
  }
  SlotCopy(const SlotCopy&) = delete;
  SlotCopy& operator=(const SlotCopy&) = delete;

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] std::byte* slot() const noexcept { return slot_; }
  /// What was copied to the host, wherever it is now.
  [[nodiscard]] const std::byte* data() const noexcept { return slot_ != nullptr ? slot_ : kept_.data(); }
  /// So many bytes have come and wait for the path, elsewhere if slots are short.
  void spare_slot(std::size_t bytes);
  /// Between the slot and these bytes. False: it failed at once.
  bool start(gpu::Copier::Way way, const CudaMemory& memory, std::span<std::byte> bytes) noexcept;
  void fail() noexcept { state_ = State::kFailed; }

 private:
  void copied(bool good) noexcept override;

  DeviceStaging& staging_;
  std::byte* slot_;
  std::vector<std::byte> kept_{};  // instead of what was in the slot
  const std::function<void()>& moved_;
  State state_ = State::kWaiting;
};

class DeviceTarget final : private SlotWaiter {
 public:
  /// `staging` gives the lane's, or null; `moved` is called when pump() has something to do.
  DeviceTarget(std::function<DeviceStaging*()> staging, std::function<void()> moved)
      : staging_(std::move(staging)), moved_(std::move(moved)) {}
  ~DeviceTarget();

  [[nodiscard]] bool has_staging() const noexcept { return staging_() != nullptr; }
  /// Takes a write to such memory, which will be placed or refused.
  void write(std::uint64_t sequence, std::uint64_t region, std::uint64_t offset, std::span<const std::byte> bytes);
  /// The oldest write that is neither; none: 0.
  [[nodiscard]] std::uint64_t oldest_write() const noexcept;
  /// Begins copies, and takes note of those that ended: `refuse` is called for each write that failed.
  void pump(const RegionTable::View& regions, const std::function<void(std::uint64_t sequence)>& refuse);

  /// Begins to read, once what was written before is under way. Null: not now, `moved` will tell. A read that is
  /// refused has failed. For memory of other kinds: no value.
  [[nodiscard]] std::optional<std::unique_ptr<SlotCopy>> read(std::uint64_t region, std::uint64_t offset,
                                                              std::uint64_t length, const RegionTable::View& regions);
  /// What has begun is let go of, once it has ended.
  void let_go(std::unique_ptr<SlotCopy> copy);

  /// A copy for a peer is under way: what it touches may not be given to another path yet.
  [[nodiscard]] bool copies() const noexcept;
  /// The path is gone. What has not begun never does.
  void reset();
  /// The same for ever: waits for what is under way, and keeps nothing of the staging memory.
  void stop() noexcept;

 private:
  struct Batch final : SlotCopy {
    using SlotCopy::SlotCopy;
    std::uint64_t region = 0, offset = 0;
    std::size_t filled = 0;
    std::vector<std::uint64_t> sequences{};  // of the writes that have a part in it; at least one
  };
  struct Kept {
    std::uint64_t sequence = 0, region = 0, offset = 0;
    std::vector<std::byte> bytes;
  };

  void slot_free() noexcept override { moved_(); }
  std::size_t gather(std::uint64_t sequence, std::uint64_t region, std::uint64_t offset,
                     std::span<const std::byte> bytes);
  void begin(Batch& batch, const RegionTable::View& regions);
  void sweep();

  const std::function<DeviceStaging*()> staging_;
  const std::function<void()> moved_;
  std::deque<std::unique_ptr<Batch>> batches_;     // oldest first
  std::deque<Kept> kept_;                          // behind them
  std::vector<std::unique_ptr<SlotCopy>> let_go_;  // under way, and of no interest
};

}  // namespace fairlead::datapath::staging
