// Who may use a service, what each may have, and what each has: a tenant is a principal, over all its sessions.
//
// Ownership: accounts are kept for as long as the service lives, sessions share them. Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "datapath/command/meter.h"
#include "datapath/command/rate_limit.h"
#include "datapath/command/turnstile.h"
#include "fairlead/command_service.h"

namespace fairlead::datapath::command {

/// Where the time comes from.
using TimeSource = std::chrono::steady_clock::time_point (*)();

/// Where sessions of several tenants wait for their turn: one for each device.
using Turnstiles = std::deque<Turnstile>;

/// One tenant's. What is counted is written by its sessions.
struct TenantAccount {
  /// At the first `count` devices.
  [[nodiscard]] fairlead::command::TenantStats stats(std::string_view name, std::size_t count) const;

  /// From now on, of each device; 0: no limit.
  void limit_memory(std::uint64_t bytes) noexcept;
  /// Of the meter, for a process. Nothing: all are taken.
  [[nodiscard]] std::optional<std::size_t> take_slot() noexcept;
  /// The process has ended: what it had is free.
  void end_slot(std::size_t slot) noexcept;

  std::shared_ptr<TenantMeter> meter = std::make_shared<TenantMeter>();
  UniqueFd page;  // of the meter, if processes share it
  RateLimit bandwidth;

  /// At one device.
  struct AtDevice {
    std::optional<Turnstile::Member> member;  // of its turnstile
    std::atomic<std::uint64_t> commands{0}, service_ns{0};
    std::array<std::atomic<std::uint64_t>, 3> failures{};  // by Scope
  };
  std::array<AtDevice, kMaxDevices> devices{};

  std::atomic<std::uint64_t> away{0};  // sessions that are kept though their clients have no peer
  std::atomic<std::uint64_t> sessions{0}, waiting{0};
  std::atomic<std::uint64_t> queued_bytes{0};  // that came, and that nobody has taken who runs a session

 private:
  /// What processes that have ended wrote over on the page is as it was: the limit, and slots that are nobody's.
  void restore_page() noexcept;

  std::mutex mutex_;  // guards what follows, and what it says on the page
  std::uint64_t most_memory_ = 0;
  std::array<bool, DeviceMeter::kSlots> slots_taken_{};
};

/// A session's place at the service; it is given back with this.
class Admission {
 public:
  Admission(std::shared_ptr<TenantAccount> account, fairlead::command::Tenant terms)
      : account_(std::move(account)), terms_(std::move(terms)) {}
  ~Admission() {
    if (account_ != nullptr) account_->sessions.fetch_sub(1);
  }
  Admission(Admission&&) noexcept = default;
  Admission& operator=(Admission&&) = delete;

  [[nodiscard]] TenantAccount& account() const noexcept { return *account_; }
  [[nodiscard]] const std::shared_ptr<TenantAccount>& shared() const noexcept { return account_; }
  [[nodiscard]] const fairlead::command::Tenant& terms() const noexcept { return terms_; }

 private:
  std::shared_ptr<TenantAccount> account_;
  fairlead::command::Tenant terms_;
};

class Tenants {
 public:
  using Clock = std::chrono::steady_clock;

  /// ok, or what is wrong with them at a service of so many devices.
  [[nodiscard]] static Status check(const std::vector<fairlead::command::Tenant>& tenants,
                                    fairlead::command::Sharing sharing, std::size_t devices = 1);

  /// `tenants` are fine. `turnstiles`: null with Sharing::kFree. `processes`: meters are on pages that these can share.
  Tenants(std::vector<fairlead::command::Tenant> tenants, Turnstiles* turnstiles, std::size_t devices = 1,
          bool processes = false, TimeSource time = &Clock::now);

  /// A session of `principal` (empty: anonymous) begins. Errors: kPermissionDenied, kResourceExhausted.
  Result<Admission> admit(std::string_view principal);
  /// ok: it is one of the tenants, as far as its sessions go that there are.
  [[nodiscard]] Status check(std::string_view principal) const;
  void replace(std::vector<fairlead::command::Tenant> tenants);
  [[nodiscard]] std::vector<fairlead::command::TenantStats> stats() const;

 private:
  [[nodiscard]] const fairlead::command::Tenant* terms_of(std::string_view principal) const;
  /// Errors: there is no page to be had.
  Result<std::shared_ptr<TenantAccount>> account_of(std::string_view name, const fairlead::command::Tenant& terms);
  void apply(TenantAccount& account, const fairlead::command::Tenant& terms);

  Turnstiles* const turnstiles_;
  const std::size_t devices_;
  const bool processes_;
  const TimeSource time_;
  mutable std::mutex mutex_;  // guards what follows
  bool open_ = false;         // everybody may come
  std::map<std::string, fairlead::command::Tenant, std::less<>> terms_;
  std::map<std::string, std::shared_ptr<TenantAccount>, std::less<>> accounts_;
};

}  // namespace fairlead::datapath::command
