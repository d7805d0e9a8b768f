// Regions: which local memory the transports know, and which of it peers may reach under which name.
//
// A RegisteredRange is registered once with every open transport for local use. A Publication registers a part of it
// again with the access that is granted, so that withdrawing the grant revokes its key and nothing else.
// Ownership: handles are shared; the table itself holds publications only. After shutdown() every handle is inert.
// Threads: all members of RegionTable from any thread (one mutex; control path only). local_key() is read by the
// driver.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fairlead/memory.h"
#include "fairlead/status.h"
#include "transport/transport.h"

namespace fairlead::datapath {

inline constexpr std::size_t kMaxTransports = 8;
inline constexpr std::size_t kMaxRegionName = 1024;

/// A number nobody can guess, from the system's generator; never 0.
[[nodiscard]] std::uint64_t random_u64();

class RegionTable;

class RegisteredRange {
 public:
  ~RegisteredRange();
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t local_key(std::size_t transport) const noexcept {
    return registrations_[transport].local;
  }
  [[nodiscard]] bool is_of(const RegionTable& table) const noexcept { return table_.get() == &table; }

 private:
  friend class RegionTable;
  RegisteredRange(std::shared_ptr<RegionTable> table, std::span<std::byte> bytes, Access access)
      : table_(std::move(table)), bytes_(bytes), access_(access) {}
  std::shared_ptr<RegionTable> table_;
  std::span<std::byte> bytes_;
  Access access_;  // only kLocalReadOnly matters: a range is registered for local use
  std::array<Registration, kMaxTransports> registrations_{};
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

/// A grant. `keys[t]` is how a peer names it on transport t.
struct Publication {
  std::string name;
  std::uint64_t id = 0;  // random; names the region in staged operations
  std::shared_ptr<RegionImpl> region;
  std::span<std::byte> bytes;
  Access access = Access::kNone;
  std::optional<TensorSpec> tensor;
  std::array<Registration, kMaxTransports> keys{};
};

class RegionTable : public std::enable_shared_from_this<RegionTable> {
 public:
  /// `random` makes the ids of publications, which nobody may guess.
  explicit RegionTable(std::function<std::uint64_t()> random = random_u64) : random_(std::move(random)) {}

  /// Makes `transport` number `index` and registers with it all that is registered already.
  Status attach(std::size_t index, Transport& transport);
  /// Registers `bytes` with every open transport. The caller keeps the bytes alive as long as the range.
  Result<std::shared_ptr<RegisteredRange>> add(std::span<std::byte> bytes, Access access);

  Status publish(std::string_view name, std::shared_ptr<RegionImpl> region, std::span<std::byte> bytes, Access access,
                 std::optional<TensorSpec> tensor);
  Status unpublish(std::string_view name);
  /// Calls `visit` on the publication of that name, or says kNotFound.
  Status find(std::string_view name, const std::function<void(const Publication&)>& visit) const;
  /// Calls `visit` on each publication whose name begins with `prefix` and follows `after`, until it returns false.
  void list(std::string_view prefix, std::string_view after,
            const std::function<bool(const Publication&)>& visit) const;
  /// Runs `use` on [offset, offset + length) of publication `id` if it grants `want`; the grant cannot be withdrawn
  /// meanwhile. kProtectionError otherwise, and if `use` says that the memory is gone.
  Code with_bytes(std::uint64_t id, std::uint64_t offset, std::uint64_t length, Access want,
                  const std::function<bool(std::span<std::byte>)>& use) const;

  [[nodiscard]] std::uint64_t registered_bytes() const;
  /// Deregisters everything and forgets the transports.
  void shutdown();
  /// In a forked child: from now on handles let go of nothing, since it is the parent's.
  void inherit() noexcept { inherited_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool inherited() const noexcept { return inherited_.load(std::memory_order_relaxed); }

 private:
  friend class RegisteredRange;
  void remove(RegisteredRange& range);
  Result<std::array<Registration, kMaxTransports>> register_everywhere(std::span<std::byte> bytes, Access access);
  void deregister_everywhere(const std::array<Registration, kMaxTransports>& keys);

  const std::function<std::uint64_t()> random_;
  std::atomic<bool> inherited_{false};
  mutable std::mutex mutex_;  // guards all below
  std::array<Transport*, kMaxTransports> transports_{};
  std::set<RegisteredRange*> ranges_;
  std::map<std::string, Publication, std::less<>> published_;
  std::unordered_map<std::uint64_t, Publication*> by_id_;
  std::uint64_t registered_bytes_ = 0;
};

}  // namespace fairlead::datapath
