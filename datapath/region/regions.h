// Regions: which local memory the devices know, and which of it peers may reach under which name.
//
// A RegisteredRange is registered once with every open device, for local use. A Publication is a grant over a part of
// it, at every device, so that withdrawing it stops its key and nothing else. So the N tensors of a model that lie in
// one range are one registration and N grants (which cost registrations of their own only where
// Capabilities::grants_are_entries is not set). Memory of a GPU a device may refuse: it is registered all the same, and
// not reached there (reached()): what crosses goes through pinned host memory (flow/device_staging.h). Ownership:
// handles are shared; the table itself holds publications only. After shutdown() every handle is inert. Threads: as
// each function says. No lock is held while a device registers or grants.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "datapath/region/devices.h"
#include "datapath/region/per_device.h"
#include "fairlead/memory.h"
#include "fairlead/status.h"
#include "transport/memory.h"

namespace fairlead::datapath {

inline constexpr std::size_t kMaxRegionName = 1024;

/// A number nobody can guess, from the system's generator; never 0.
[[nodiscard]] std::uint64_t random_u64();

class DeviceStaging;
class RegionTable;

class RegisteredRange final : public Devices::Entry {
 public:
  RegisteredRange(const RegionTable& table, const MemoryDescriptor& memory) : table_(table), memory_(memory) {}
  [[nodiscard]] const MemoryDescriptor& memory() const noexcept { return memory_; }
  /// Who has an endpoint of the device.
  [[nodiscard]] std::uint64_t local_key(std::size_t device) const noexcept { return registrations_[device].local; }
  [[nodiscard]] bool is_of(const RegionTable& table) const noexcept { return &table_ == &table; }
  /// The CPU must not touch it.
  [[nodiscard]] bool is_cuda() const noexcept { return std::holds_alternative<CudaMemory>(memory_.kind); }
  /// Whether the device moves these bytes itself. Who has an endpoint of it.
  [[nodiscard]] bool reached(std::size_t device) const noexcept {
    return (unreached_.load(std::memory_order_relaxed) >> device & 1) == 0;
  }

  Status introduce(Device& device) override;
  void withdraw(Device& device) noexcept override;

 private:
  const RegionTable& table_;
  const MemoryDescriptor memory_;
  PerDevice<Registration> registrations_;
  std::atomic<std::uint64_t> unreached_{0};  // a bit for each device; there are kMaxOffers at most
};

/// What a Memory refers to: a range (perhaps a whole pool arena), the part of it that is this region, and whatever
/// keeps the bytes alive.
class RegionImpl {
 public:
  RegionImpl(std::shared_ptr<RegisteredRange> range, std::span<std::byte> bytes, Access access,
             std::shared_ptr<void> keeper)
      : keeper_(std::move(keeper)), range_(std::move(range)), bytes_(bytes), access_(access) {}
  [[nodiscard]] const RegisteredRange& range() const noexcept { return *range_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The most that may be granted to peers, and whether the bytes are read-only.
  [[nodiscard]] Access access() const noexcept { return access_; }

 private:
  // Members are destroyed in reverse order: the registration goes before the memory does.
  std::shared_ptr<void> keeper_;
  std::shared_ptr<RegisteredRange> range_;
  std::span<std::byte> bytes_;
  Access access_;
};

/// What peers may reach, and by which key at which device.
struct Publication final : Devices::Entry {
  std::string name;
  std::uint64_t id = 0;  // random; names the region in staged operations
  std::shared_ptr<RegionImpl> region;
  MemoryDescriptor memory;  // the part of the region's that is published
  std::optional<TensorSpec> tensor;
  std::vector<std::string> audience;  // principals; empty: everybody
  std::vector<Grant> grants;          // by device; guarded by the table's mutex; of one that cannot reach it, zero
  Devices::Ticket ticket = 0;

  explicit Publication(std::mutex& table) noexcept : table_(table) {}
  Status introduce(Device& device) override;
  void withdraw(Device& device) noexcept override;

 private:
  std::mutex& table_;
  std::uint64_t unreached_ = 0;  // a bit for each device; changed in introduce() and withdraw()
};

class RegionTable : public std::enable_shared_from_this<RegionTable> {
 public:
  /// `random` makes the ids of publications, which nobody may guess.
  explicit RegionTable(std::function<std::uint64_t()> random = random_u64) : random_(std::move(random)) {}

  // --- any thread
  /// Registers memory with every open device. The caller keeps the bytes alive as long as the range.
  Result<std::shared_ptr<RegisteredRange>> add(const MemoryDescriptor& memory);
  Status publish(std::string_view name, std::shared_ptr<RegionImpl> region, std::span<std::byte> bytes, Access access,
                 std::optional<TensorSpec> tensor, std::vector<std::string> audience = {});
  /// When it returns, no peer reaches the bytes through what was published. Its id.
  Result<std::uint64_t> unpublish(std::string_view name);
  [[nodiscard]] std::uint64_t registered_bytes() const noexcept;
  /// Of those, in memory of GPUs.
  [[nodiscard]] std::uint64_t cuda_bytes() const noexcept;
  /// `settle` ends the copies that peers' operations began, before what they touch is withdrawn. Once.
  void settle_by(std::function<void()> settle);

  /// The next device, by number from 0: all that is registered and published already is so with it as well. It outlives
  /// the table, or shutdown(). One thread at a time.
  Status attach(Device& device) { return devices_.attach(device); }
  /// As sessions of `principal` see it (empty: anonymous): what is published for others does not show. The table and
  /// the name outlive it.
  class View;
  [[nodiscard]] View seen_by(std::string_view principal) const noexcept;
  /// Deregisters everything and forgets the devices.
  void shutdown();

  /// What the lane of that number stages memory of GPUs through, which outlives its sessions; null: nothing.
  [[nodiscard]] DeviceStaging* staging(std::size_t lane) const noexcept {
    return staging_[lane].load(std::memory_order_acquire);
  }
  void stage_through(std::size_t lane, DeviceStaging* staging) noexcept {
    staging_[lane].store(staging, std::memory_order_release);
  }

  /// True the first time for each device: whoever says why one does not reach memory says it once.
  [[nodiscard]] bool is_news(std::size_t device) const noexcept {
    const std::uint64_t bit = std::uint64_t{1} << device;
    return (said_.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }

  /// In a forked child: from now on handles let go of nothing, since it is the parent's.
  void inherit() noexcept { inherited_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool inherited() const noexcept { return inherited_.load(std::memory_order_relaxed); }

 private:
  using Published = std::map<std::string, std::unique_ptr<Publication>, std::less<>>;

  Status enter(std::unique_ptr<Publication>& publication);
  void settle(const Publication& gone);

  const std::function<std::uint64_t()> random_;
  static constexpr std::size_t kMostLanes = 64;
  std::array<std::atomic<DeviceStaging*>, kMostLanes> staging_{};
  std::atomic<bool> inherited_{false};
  mutable std::atomic<std::uint64_t> said_{0};
  std::atomic<std::uint64_t> registered_bytes_{0};  // of ranges that have a handle
  std::atomic<std::uint64_t> cuda_bytes_{0};
  std::atomic<bool> shut_{false};  // changes under mutex_: nothing is published from then on
  Devices devices_;
  mutable std::mutex mutex_;  // guards what follows
  std::function<void()> settle_;
  Published published_;
  std::unordered_map<std::uint64_t, Publication*> by_id_;
};

class RegionTable::View {
 public:
  View(const RegionTable& table, std::string_view principal) noexcept : table_(table), principal_(principal) {}
  /// Calls `visit` on the publication of that name, or says kNotFound.
  Status find(std::string_view name, const std::function<void(const Publication&)>& visit) const;
  /// Calls `visit` on each publication whose name begins with `prefix` and follows `after`, until it returns false.
  void list(std::string_view prefix, std::string_view after,
            const std::function<bool(const Publication&)>& visit) const;
  /// Runs `use` on [offset, offset + length) of publication `id` if it grants `want`; the grant cannot be withdrawn
  /// meanwhile. kProtectionError otherwise, and if `use` says that the memory is gone.
  Code with_bytes(std::uint64_t id, std::uint64_t offset, std::uint64_t length, Access want,
                  const std::function<bool(std::span<std::byte>)>& use) const;
  /// The same for who asks what kind of memory it is. with_bytes() refuses what the CPU must not touch.
  Code with_memory(std::uint64_t id, std::uint64_t offset, std::uint64_t length, Access want,
                   const std::function<bool(std::span<std::byte>, const MemoryKind&)>& use) const;

 private:
  const RegionTable& table_;
  const std::string_view principal_;
};

inline RegionTable::View RegionTable::seen_by(std::string_view principal) const noexcept { return {*this, principal}; }

}  // namespace fairlead::datapath
