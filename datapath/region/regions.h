// Regions: which local memory the devices know, and which of it peers may reach under which name.
//
// A RegisteredRange is registered once with every open device, for local use. A Publication is a grant over a part of
// it, at every device, so that withdrawing it stops its key and nothing else. So the N tensors of a model that lie in
// one range are one registration and N grants (which cost registrations of their own only where
// Capabilities::grants_are_entries is not set). An export is a publication without a name, which who has its capability
// finds. Memory of a GPU a device may refuse: it is registered all the same, and not reached there (reached()): what
// crosses goes through pinned host memory (flow/device_staging.h). A principal other than the engine's own has its own
// domain at each device (domain_book.h), which is told of all ranges, and of what is published for it: its keys open
// nothing to others, nor theirs anything to it.
// Ownership: handles are shared; the table itself holds publications only. After shutdown() every handle is inert.
// Threads: as each function says. No lock is held while a device registers or grants. Files: regions.cc,
// region_domains.cc (principals' domains), region_exports.cc.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/system/fork_mark.h"
#include "datapath/identity/capability.h"
#include "datapath/region/devices.h"
#include "datapath/region/domain_book.h"
#include "datapath/region/domain_opener.h"
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

  Status introduce(MemoryDomain& device) override;
  void withdraw(MemoryDomain& device) noexcept override;

 private:
  const RegionTable& table_;
  const MemoryDescriptor memory_;
  PerDevice<Registration> registrations_;
  std::atomic<std::uint64_t> unreached_{0};  // a bit for each device; there are kMaxOffers at most
};

/// How a region's memory was taken from the pool.
struct PoolOrigin {
  std::optional<std::vector<std::string>> audience;  // whom it may be published for; not set: anybody
  SharedFile file;                                   // of shared memory: where the region begins
};

/// What a Memory refers to: a range (perhaps a whole pool arena), the part of it that is this region, and whatever
/// keeps the bytes alive.
class RegionImpl {
 public:
  /// `rest`: the ranges that follow `range`, where the bytes are registered in several.
  RegionImpl(std::shared_ptr<RegisteredRange> range, std::span<std::byte> bytes, Access access,
             std::shared_ptr<void> keeper, PoolOrigin origin = {},
             std::vector<std::shared_ptr<RegisteredRange>> rest = {})
      : keeper_(std::move(keeper)),
        range_(std::move(range)),
        rest_(std::move(rest)),
        bytes_(bytes),
        access_(access),
        origin_(std::move(origin)) {}
  /// The only one, or the first.
  [[nodiscard]] const RegisteredRange& range() const noexcept { return *range_; }
  /// How many there are.
  [[nodiscard]] std::size_t ranges() const noexcept { return 1 + rest_.size(); }
  /// That in which this byte lies.
  [[nodiscard]] const RegisteredRange& range_at(const std::byte* byte) const noexcept {
    const RegisteredRange* last = range_.get();
    for (const auto& next : rest_) {
      if (std::less<>()(byte, next->memory().bytes.data())) break;
      last = next.get();
    }
    return *last;
  }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The most that may be granted to peers, and whether the bytes are read-only.
  [[nodiscard]] Access access() const noexcept { return access_; }
  [[nodiscard]] const PoolOrigin& origin() const noexcept { return origin_; }

 private:
  // Members are destroyed in reverse order: the registration goes before the memory does.
  std::shared_ptr<void> keeper_;
  std::shared_ptr<RegisteredRange> range_;
  std::vector<std::shared_ptr<RegisteredRange>> rest_;
  std::span<std::byte> bytes_;
  Access access_;
  PoolOrigin origin_;
};

/// What peers may reach, and by which key at which device.
struct Publication final : Devices::Entry {
  std::string name;                   // of an export: one that nobody finds it by
  std::uint64_t id = 0;               // random; names the region in staged operations
  std::optional<Digest> secret = {};  // of an export: who shows it may know of it
  std::shared_ptr<RegionImpl> region;
  MemoryDescriptor memory;  // the part of the region's that is published
  std::optional<TensorSpec> tensor;
  std::vector<std::string> audience;  // principals; empty: everybody
  std::vector<Grant> grants;          // by device; guarded by the table's mutex; of one that cannot reach it, zero
  Devices::Ticket ticket = 0;
  bool is_for_own = true;  // who uses a device's own domain is among the audience; else that has no key for it

  explicit Publication(std::mutex& table) noexcept : table_(table) {}
  Status introduce(MemoryDomain& device) override;
  void withdraw(MemoryDomain& device) noexcept override;

 private:
  std::mutex& table_;
  std::uint64_t unreached_ = 0;  // a bit for each device; changed in introduce() and withdraw()
};

/// A principal whose paths have domains of their own. Kept as long as the table.
struct Tenant {
  explicit Tenant(std::string name) : principal(std::move(name)) {}
  const std::string principal;
  std::vector<std::shared_ptr<DomainBook>> books;  // by device; null: none yet. Guarded by the table's mutex
};

class RegionTable : public std::enable_shared_from_this<RegionTable> {
 public:
  /// `own`: the engine's principal, whose sessions use the devices' own domains. `random` makes the ids of
  /// publications, which nobody may guess.
  explicit RegionTable(std::string own = {}, std::function<std::uint64_t()> random = random_u64)
      : random_(std::move(random)), own_(std::move(own)) {}

  // --- any thread
  /// Registers memory with every open device. The caller keeps the bytes alive as long as the range.
  Result<std::shared_ptr<RegisteredRange>> add(const MemoryDescriptor& memory);
  Status publish(std::string_view name, std::shared_ptr<RegionImpl> region, std::span<std::byte> bytes, Access access,
                 std::optional<TensorSpec> tensor, std::vector<std::string> audience = {});
  /// When it returns, no peer reaches the bytes through what was published. Its id.
  Result<std::uint64_t> unpublish(std::string_view name);
  /// The same without a name: what it gives away is the capability. Errors: as publish().
  Result<Capability> export_region(std::shared_ptr<RegionImpl> region, std::span<std::byte> bytes, Access access,
                                   std::vector<std::string> audience = {});
  /// When it returns, the capability is worth nothing, and no peer reaches the bytes through it. Errors: kNotFound.
  Status unexport(const Capability& capability);
  [[nodiscard]] std::uint64_t registered_bytes() const noexcept;
  /// Of those, in memory of GPUs.
  [[nodiscard]] std::uint64_t cuda_bytes() const noexcept;
  /// `settle` ends the copies that peers' operations began, before what they touch is withdrawn. Once.
  void settle_by(std::function<void()> settle);

  /// The next device, by number from 0: all that is registered and published already is so with it as well. It outlives
  /// the table, or shutdown(). One thread at a time.
  Status attach(Device& device);
  /// The most bytes that every device takes as one range.
  [[nodiscard]] std::uint64_t largest_range() const noexcept { return largest_range_.load(std::memory_order_relaxed); }
  /// A principal that has domains of its own: none yet, the first time.
  [[nodiscard]] std::shared_ptr<Tenant> tenant(std::string_view principal);
  /// The tenant's domain at device `number`, made if need be. Where grants are entries it knows all that it should at
  /// once; else it learns that on another thread, and till then what has no key goes by message. It stays until
  /// shutdown(). Errors: the device's.
  Result<DomainBook*> domain(Tenant& tenant, std::size_t number, Device& device);

  /// As sessions of `principal` see it (empty: anonymous): what is published for others does not show. `tenant`: null
  /// where its paths use the devices' own domains. `told`: ids that the session was told; null: none. All outlive it.
  class View;
  [[nodiscard]] View seen_by(std::string_view principal, const Tenant* tenant = nullptr,
                             const std::unordered_set<std::uint64_t>* told = nullptr) const noexcept;
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

  /// In a forked child, also where the engine had ended before: handles let go of nothing, since it is the parent's.
  [[nodiscard]] bool inherited() const noexcept { return !fork_mark_.is_mine(); }

 private:
  using Published = std::map<std::string, std::unique_ptr<Publication>, std::less<>>;

  struct TenantBook {
    const Tenant* tenant = nullptr;
    std::shared_ptr<DomainBook> book;
  };

  /// What `access` of the region's bytes is to be; `what` it is called in errors.
  Result<std::unique_ptr<Publication>> draft(std::string_view what, std::shared_ptr<RegionImpl> region,
                                             std::span<std::byte> bytes, Access access,
                                             std::vector<std::string> audience);
  /// Tells devices and domains, then calls `enter` under the lock. Errors leave nothing behind.
  Status grant_to_all(Publication& publication, const std::function<Status()>& enter);
  void withdraw_from_all(const Publication& publication) noexcept;
  Status enter(std::unique_ptr<Publication>& publication);
  /// Tells each domain of the principals that `is_for` accepts, until none is left, then calls `enter` under the lock.
  Status tell_domains(const void* thing, const MemoryDescriptor& memory, DomainBook::Kind kind,
                      const std::function<bool(const Tenant&)>& is_for, const std::function<Status()>& enter);
  [[nodiscard]] std::vector<std::shared_ptr<DomainBook>> all_books() const;
  void settle(const Publication& gone);

  const std::function<std::uint64_t()> random_;
  static constexpr std::size_t kMostLanes = 64;
  std::array<std::atomic<DeviceStaging*>, kMostLanes> staging_{};
  const std::string own_;
  const ForkMark fork_mark_;
  mutable std::atomic<std::uint64_t> said_{0};
  std::atomic<std::uint64_t> registered_bytes_{0};  // of ranges that have a handle
  std::atomic<std::uint64_t> cuda_bytes_{0};
  std::atomic<std::uint64_t> largest_range_{std::numeric_limits<std::uint64_t>::max()};
  std::atomic<bool> shut_{false};  // changes under mutex_: nothing is published from then on
  Devices devices_;
  std::mutex opening_domains_;
  DomainOpener opener_;
  mutable std::mutex mutex_;  // guards what follows
  std::function<void()> settle_;
  Published published_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Publication>> exports_;
  std::unordered_map<std::uint64_t, Publication*> by_id_;  // both
  std::unordered_set<const RegisteredRange*> ranges_;
  std::map<std::string, std::shared_ptr<Tenant>, std::less<>> tenants_;
  std::vector<TenantBook> books_;  // of all tenants, in the order of coming
};

class RegionTable::View {
 public:
  View(const RegionTable& table, std::string_view principal, const Tenant* tenant,
       const std::unordered_set<std::uint64_t>* told) noexcept
      : table_(table), principal_(principal), tenant_(tenant), told_(told) {}
  /// Calls `visit` on the publication of that name, or says kNotFound.
  Status find(std::string_view name, const std::function<void(const Publication&)>& visit) const;
  /// The same of an export, if the capability is one of it and this principal among those it is for.
  Status import(std::string_view capability, const std::function<void(const Publication&)>& visit) const;
  /// Calls `visit` on each publication whose name begins with `prefix` and follows `after`, until it returns false.
  /// Looks at `left` of them, also of those that do not show, and counts them off. False: there may be more, behind
  /// what `after` is then.
  [[nodiscard]] bool list(std::string_view prefix, std::string& after, std::size_t& left,
                          const std::function<bool(const Publication&)>& visit) const;
  /// While one of these visits: by which keys, by device, the principal's paths reach it; 0 where they do not.
  [[nodiscard]] std::vector<Grant> keys(const Publication& publication) const;
  /// Runs `use` on [offset, offset + length) of publication `id` if it grants `want`; the grant cannot be withdrawn
  /// meanwhile. kProtectionError otherwise, and if `use` says that the memory is gone. An export is there for sessions
  /// that imported it.
  Code with_bytes(std::uint64_t id, std::uint64_t offset, std::uint64_t length, Access want,
                  const std::function<bool(std::span<std::byte>)>& use) const;
  /// The same for who asks what kind of memory it is. with_bytes() refuses what the CPU must not touch.
  Code with_memory(std::uint64_t id, std::uint64_t offset, std::uint64_t length, Access want,
                   const std::function<bool(std::span<std::byte>, const MemoryKind&)>& use) const;

 private:
  const RegionTable& table_;
  const std::string_view principal_;
  const Tenant* const tenant_;
  const std::unordered_set<std::uint64_t>* const told_;
};

inline RegionTable::View RegionTable::seen_by(std::string_view principal, const Tenant* tenant,
                                              const std::unordered_set<std::uint64_t>* told) const noexcept {
  return {*this, principal, tenant, told};
}

}  // namespace fairlead::datapath
