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

std::string named(std::string_view principal) {
  return principal.empty() ? std::string("anonymous peers") : fmt::format("tenant '{}'", principal);
}

Status no_tenant(std::string_view principal) {
  return {Code::kPermissionDenied,
          fmt::format("{} {} none of the service's tenants", named(principal), principal.empty() ? "are" : "is")};
}

}  // namespace

// ---- accounts ------------------------------------------------------------------------------------------------------

std::optional<std::size_t> TenantAccount::take_slot() noexcept {
  for (std::size_t slot = TenantMeter::kThreads + 1; slot < slots_taken.size(); ++slot) {
    if (!slots_taken[slot].exchange(true)) return slot;
  }
  return std::nullopt;
}

void TenantAccount::end_slot(std::size_t slot) noexcept {
  meter->slots[slot].store(0);
  slots_taken[slot].store(false);
}

TenantStats TenantAccount::stats(std::string_view name) const {
  TenantStats stats;
  stats.name = name;
  stats.sessions = sessions.load();
  stats.away = away.load();
  stats.memory_bytes = meter->memory();
  stats.waiting = waiting.load();
  stats.commands = commands.load();
  stats.bytes_in = meter->bytes_in.load();
  stats.bytes_out = meter->bytes_out.load();
  stats.service_ns = service_ns.load();
  stats.rejections = meter->rejections.load();
  for (std::size_t i = 0; i < failures.size(); ++i) stats.failures[i] = failures[i].load();
  return stats;
}

// ---- who may come --------------------------------------------------------------------------------------------------

Status Tenants::check(const std::vector<Tenant>& tenants, Sharing sharing) {
  const auto wrong = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  std::set<std::string_view> names;
  double sum = 0;
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
    if (sharing != Sharing::kFixed) continue;
    if (tenant.name == kOthers) {
      return wrong("fixed shares are of tenants that are named: there is no knowing how many '*' is");
    }
    if (!(tenant.share > 0) || tenant.share > 1) {
      return wrong(
          fmt::format("tenant '{}' has a share of {}, which must be above 0 and at most 1", tenant.name, tenant.share));
    }
    sum += tenant.share;
  }
  if (sharing == Sharing::kFixed && tenants.empty()) return wrong("fixed shares take tenants that have them");
  constexpr double kRounding = 1e-9;
  if (sum > 1 + kRounding) return wrong(fmt::format("the shares of all tenants are {}, more than 1", sum));
  return {};
}

Tenants::Tenants(std::vector<Tenant> tenants, Turnstile* turnstile, bool processes, TimeSource time)
    : turnstile_(turnstile), processes_(processes), time_(time) {
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
  account.meter->most_memory.store(terms.memory_bytes);
  account.bandwidth.set(terms.bytes_per_second, time_());
  if (turnstile_ == nullptr) return;
  const double share = terms.share > 0 ? terms.share : 1;
  if (account.member) {
    turnstile_->set_share(*account.member, share);
  } else {
    account.member = turnstile_->join(share);
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
  for (const auto& [name, account] : accounts_) all.push_back(account->stats(name));
  return all;
}

}  // namespace fairlead::datapath::command
