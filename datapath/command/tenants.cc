#include "datapath/command/tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/principal_name.h"
#include "datapath/command/process/shared_page.h"

namespace fairlead::datapath::command {

using fairlead::command::Sharing;
using fairlead::command::Tenant;
using fairlead::command::TenantStats;

namespace {

constexpr std::string_view kOthers = "*";
const Tenant kNoLimits{};

bool may_use(const Tenant& tenant, std::size_t device) {
  return tenant.devices.empty() || std::ranges::find(tenant.devices, device) != tenant.devices.end();
}

std::string named(std::string_view principal) {
  return principal.empty() ? std::string("anonymous peers") : fmt::format("tenant '{}'", principal);
}

Status no_tenant(std::string_view principal) {
  return {Code::kPermissionDenied,
          fmt::format("{} {} none of the service's tenants", named(principal), principal.empty() ? "are" : "is")};
}

}  // namespace

// ---- accounts ------------------------------------------------------------------------------------------------------

void TenantAccount::limit_memory(std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  most_memory_ = bytes;
  meter->most_memory.store(bytes);
}

std::optional<std::size_t> TenantAccount::take_slot() noexcept {
  const std::lock_guard lock(mutex_);
  restore_page();
  for (std::size_t slot = DeviceMeter::kThreads + 1; slot < slots_taken_.size(); ++slot) {
    if (!std::exchange(slots_taken_[slot], true)) return slot;
  }
  return std::nullopt;
}

void TenantAccount::end_slot(std::size_t slot) noexcept {
  const std::lock_guard lock(mutex_);
  for (DeviceMeter& device : meter->devices) device.slots[slot].store(0);
  slots_taken_[slot] = false;
  restore_page();
}

// Where processes share it, no thread of the service's counts there: slot kThreads is nobody's.
void TenantAccount::restore_page() noexcept {
  if (!page) return;
  meter->most_memory.store(most_memory_);
  for (DeviceMeter& device : meter->devices) {
    for (std::size_t slot = 0; slot < slots_taken_.size(); ++slot) {
      if (!slots_taken_[slot] && device.slots[slot].load() != 0) device.slots[slot].store(0);
    }
  }
}

TenantStats TenantAccount::stats(std::string_view name, std::size_t count) const {
  TenantStats stats;
  stats.name = name;
  stats.sessions = sessions.load();
  stats.away = away.load();
  stats.waiting = waiting.load();
  stats.rejections = meter->rejections.load();
  for (std::size_t device = 0; device < count; ++device) {
    const DeviceMeter& metered = meter->devices[device];
    const AtDevice& counted = devices[device];
    fairlead::command::TenantDeviceStats& here = stats.devices.emplace_back();
    stats.memory_bytes += here.memory_bytes = metered.memory();
    stats.commands += here.commands = counted.commands.load();
    stats.bytes_in += here.bytes_in = metered.bytes_in.load();
    stats.bytes_out += here.bytes_out = metered.bytes_out.load();
    stats.service_ns += here.service_ns = counted.service_ns.load();
    for (std::size_t i = 0; i < here.failures.size(); ++i) {
      stats.failures[i] += here.failures[i] = counted.failures[i].load();
    }
  }
  return stats;
}

// ---- who may come --------------------------------------------------------------------------------------------------

Status Tenants::check(const std::vector<Tenant>& tenants, Sharing sharing, std::size_t devices) {
  const auto wrong = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  std::set<std::string_view> names;
  std::array<double, kMaxDevices> sums{};
  for (const Tenant& tenant : tenants) {
    if (tenant.name != kOthers && !is_principal_name(tenant.name)) {
      return wrong(fmt::format("a tenant's name has {}, or is *", kLegalPrincipalName));
    }
    if (!names.insert(tenant.name).second) return wrong(fmt::format("tenant '{}' is there twice", tenant.name));
    if (tenant.channels > 4096) {
      return wrong(fmt::format("tenant '{}' has {} channels, and may have 4096", tenant.name, tenant.channels));
    }
    if (tenant.credits != 0 && (tenant.credits < 64 || tenant.credits > 65536)) {
      return wrong(fmt::format("tenant '{}' has {} credits, and must have 64 to 65536", tenant.name, tenant.credits));
    }
    for (const std::uint32_t device : tenant.devices) {
      if (device < devices) continue;
      return wrong(fmt::format("tenant '{}' may use device {}, of which there is none; legal: 0 to {}", tenant.name,
                               device, devices - 1));
    }
    if (sharing != Sharing::kFixed) continue;
    if (tenant.name == kOthers) {
      return wrong("fixed shares are of tenants that are named: there is no knowing how many '*' is");
    }
    if (!(tenant.share >= fairlead::command::kLeastShare && tenant.share <= 1)) {
      return wrong(fmt::format("tenant '{}' has a share of {}, which must be {} to 1", tenant.name, tenant.share,
                               fairlead::command::kLeastShare));
    }
    for (std::size_t device = 0; device < devices; ++device) {
      if (may_use(tenant, device)) sums[device] += tenant.share;
    }
  }
  if (sharing == Sharing::kFixed && tenants.empty()) return wrong("fixed shares take tenants that have them");
  constexpr double kRounding = 1e-9;
  for (std::size_t device = 0; device < devices; ++device) {
    if (sums[device] <= 1 + kRounding) continue;
    const std::string where = devices == 1 ? "" : fmt::format(" at device {}", device);
    return wrong(fmt::format("the shares of all tenants{} are {}, more than 1", where, sums[device]));
  }
  return {};
}

Tenants::Tenants(std::vector<Tenant> tenants, Turnstiles* turnstiles, std::size_t devices, bool processes,
                 TimeSource time)
    : turnstiles_(turnstiles), devices_(devices), processes_(processes), time_(time) {
  replace(std::move(tenants));
}

void Tenants::replace(std::vector<Tenant> tenants) {
  const std::lock_guard lock(mutex_);
  open_ = tenants.empty();
  terms_.clear();
  for (Tenant& tenant : tenants) {
    std::string name = tenant.name;
    terms_.emplace(std::move(name), std::move(tenant));
  }
  for (auto& [name, account] : accounts_) {
    if (const Tenant* const terms = terms_of(name); terms != nullptr) apply(*account, *terms);
  }
  for (const auto& [name, terms] : terms_) {
    if (name != kOthers) (void)account_of(name, terms);
  }
}

const Tenant* Tenants::terms_of(std::string_view principal) const {
  if (open_) return &kNoLimits;
  const auto found = principal.empty() ? terms_.end() : terms_.find(principal);
  if (found != terms_.end()) return &found->second;
  const auto others = principal.empty() ? terms_.end() : terms_.find(kOthers);
  return others != terms_.end() ? &others->second : nullptr;
}

Result<std::shared_ptr<TenantAccount>> Tenants::account_of(std::string_view name, const Tenant& terms) {
  if (const auto found = accounts_.find(name); found != accounts_.end()) return found->second;
  auto account = std::make_shared<TenantAccount>();
  if (processes_) {
    Result<SharedPage<TenantMeter>> page = SharedPage<TenantMeter>::create();
    if (!page) return page.error();
    account->meter = page->value;
    account->page = std::move(page->fd);
  }
  apply(*account, terms);
  accounts_.emplace(std::string(name), account);
  return account;
}

void Tenants::apply(TenantAccount& account, const Tenant& terms) {
  account.limit_memory(terms.memory_bytes);
  account.bandwidth.set(terms.bytes_per_second, time_());
  const double share = terms.share > 0 ? terms.share : 1;
  for (std::size_t device = 0; turnstiles_ != nullptr && device < turnstiles_->size(); ++device) {
    std::optional<Turnstile::Member>& member = account.devices[device].member;
    if (member) {
      (*turnstiles_)[device].set_share(*member, share);
    } else {
      member = (*turnstiles_)[device].join(share);
    }
  }
}

Status Tenants::check(std::string_view principal) const {
  const std::lock_guard lock(mutex_);
  return terms_of(principal) != nullptr ? Status() : no_tenant(principal);
}

Result<Admission> Tenants::admit(std::string_view principal) {
  const std::lock_guard lock(mutex_);
  const Tenant* const terms = terms_of(principal);
  if (terms == nullptr) return no_tenant(principal);
  const Result<std::shared_ptr<TenantAccount>> found = account_of(principal, *terms);
  if (!found) return found.error();
  const std::shared_ptr<TenantAccount>& account = *found;
  const std::uint64_t now = account->sessions.load();
  if (terms->sessions != 0 && now >= terms->sessions) {
    account->meter->rejections.fetch_add(1);
    return Status(Code::kResourceExhausted,
                  fmt::format("{} has {} sessions, its limit; try again when one has ended", named(principal), now));
  }
  account->sessions.fetch_add(1);
  return Admission(account, *terms);
}

std::vector<TenantStats> Tenants::stats() const {
  const std::lock_guard lock(mutex_);
  std::vector<TenantStats> all;
  for (const auto& [name, account] : accounts_) all.push_back(account->stats(name, devices_));
  return all;
}

}  // namespace fairlead::datapath::command
