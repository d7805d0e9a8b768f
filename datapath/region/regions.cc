#include "datapath/region/regions.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <random>
#include <utility>

#include "base/guarded.h"
#include "datapath/identity/principals.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  while (value == 0) {
    if (::getrandom(&value, sizeof value, 0) != sizeof value) {
      std::random_device device;
      value = static_cast<std::uint64_t>(device()) << 32 | device();
    }
  }
  return value;
}

namespace {

Status name_taken(std::string_view name) {
  return {Code::kAlreadyExists, fmt::format("a region named '{}' is published already; unpublish it first", name)};
}

Status nothing_published(std::string_view name) {
  return {Code::kNotFound, fmt::format("no region named '{}' is published", name)};
}

std::string words_of(Access access) {
  if (!allows(Access::kRemoteReadWrite | Access::kLocalReadOnly | Access::kRemoteAtomic, access))
    return fmt::format("access {}", static_cast<int>(access));
  std::string words = allows(access, Access::kRemoteReadWrite) ? "remote reading and writing"
                      : allows(access, Access::kRemoteRead)    ? "remote reading"
                      : allows(access, Access::kRemoteWrite)   ? "remote writing"
                                                               : "no remote access";
  if (allows(access, Access::kRemoteAtomic)) words += " and atomics";
  if (allows(access, Access::kLocalReadOnly)) words += " as read-only memory";
  return words;
}

std::string words_of(const std::vector<std::string>& audience) {
  return audience.empty() ? "everybody" : fmt::format("{}", fmt::join(audience, ", "));
}

/// The most that may be granted of it. Atomics are this end's own doing: who may read and write may have them.
Access most_of(const RegionImpl& region) {
  if (region.range().is_cuda()) return region.access();  // and no CPU touches that
  const bool all = allows(region.access(), Access::kRemoteReadWrite);
  return all ? region.access() | Access::kRemoteAtomic : region.access();
}

}  // namespace

// ---- what devices are told

Status RegisteredRange::introduce(MemoryDomain& device) {
  Result<Registration> got = device.register_memory(memory_);
  if (!got && !is_cuda()) return got.error();
  if (!got) {
    log(table_.is_news(registrations_.size()) ? LogLevel::kInfo : LogLevel::kDebug,
        fmt::format("memory of CUDA device {} crosses {} through pinned host memory: {}",
                    std::get<CudaMemory>(memory_.kind).ordinal, device.name(), got.error().message()));
    unreached_.fetch_or(std::uint64_t{1} << registrations_.size(), std::memory_order_relaxed);
  }
  registrations_.push_back(got ? *got : Registration{});
  return {};
}

void RegisteredRange::withdraw(MemoryDomain& device) noexcept {
  const Registration last = registrations_.take_last();
  const std::uint64_t bit = std::uint64_t{1} << registrations_.size();
  if ((unreached_.fetch_and(~bit, std::memory_order_relaxed) & bit) == 0) device.deregister(last);
}

Status Publication::introduce(MemoryDomain& device) {
  const std::size_t number = grants.size();  // changed by this thread alone
  const bool cuda = region->range().is_cuda(), reached = is_for_own && region->range().reached(number);
  Result<Grant> got = reached ? device.grant(memory) : Result<Grant>(Grant{});
  if (!got && !cuda) return got.error();
  if (!got || !reached) unreached_ |= std::uint64_t{1} << number;
  const std::lock_guard lock(table_);
  grants.push_back(got ? *got : Grant{});
  return {};
}

void Publication::withdraw(MemoryDomain& device) noexcept {
  Grant last;
  {
    const std::lock_guard lock(table_);
    last = grants.back();
    grants.pop_back();
  }
  const std::uint64_t bit = std::uint64_t{1} << grants.size();
  if ((std::exchange(unreached_, unreached_ & ~bit) & bit) == 0) device.revoke(last);
}

// ---- the table

Status RegionTable::attach(Device& device) {
  const std::uint64_t most = device.capabilities().max_region;
  if (most != 0) largest_range_.store(std::min(largest_range(), most), std::memory_order_relaxed);
  return devices_.attach(device);
}

Result<std::shared_ptr<RegisteredRange>> RegionTable::add(const MemoryDescriptor& memory) {
  install_fault_handlers();  // the memory is the application's, and may go at any time
  auto range = std::make_unique<RegisteredRange>(*this, memory);
  Result<Devices::Ticket> ticket = devices_.add(*range);
  if (!ticket) return ticket.error();
  // The devices have it, so it is known: a domain goes without what it refuses.
  static_cast<void>(tell_domains(
      range.get(), memory, DomainBook::Kind::kRange, [](const Tenant&) { return true; },
      [&] {
        ranges_.insert(range.get());
        return Status();
      }));
  registered_bytes_.fetch_add(memory.bytes.size(), std::memory_order_relaxed);
  if (range->is_cuda()) cuda_bytes_.fetch_add(memory.bytes.size(), std::memory_order_relaxed);
  const auto let_go = [table = shared_from_this(), ticket = *ticket](RegisteredRange* last) {
    const std::unique_ptr<RegisteredRange> gone(last);
    if (table->inherited()) return;
    std::vector<std::shared_ptr<DomainBook>> books;
    {
      const std::lock_guard lock(table->mutex_);
      table->ranges_.erase(last);
      books = table->all_books();
    }
    for (const auto& book : books) book->remove(last);
    table->devices_.remove(ticket);
    table->registered_bytes_.fetch_sub(last->memory().bytes.size(), std::memory_order_relaxed);
    if (last->is_cuda()) table->cuda_bytes_.fetch_sub(last->memory().bytes.size(), std::memory_order_relaxed);
  };
  return std::shared_ptr<RegisteredRange>(range.release(), let_go);
}

Result<std::unique_ptr<Publication>> RegionTable::draft(std::string_view what, std::shared_ptr<RegionImpl> region,
                                                        std::span<std::byte> bytes, Access access,
                                                        std::vector<std::string> audience) {
  if (!allows(most_of(*region), access)) {
    return Status(Code::kPermissionDenied,
                  fmt::format("region '{}' was registered for {}, which does not include {}; register it with more",
                              what, words_of(region->access()), words_of(access)));
  }
  if (const auto& allocated = region->origin().audience; allocated && !is_within(audience, *allocated)) {
    return Status(
        Code::kPermissionDenied,
        fmt::format("region '{}' was allocated for {}, and may hold what these left there; it cannot be published for "
                    "{}: name all who are to see it in AllocateOptions::audience",
                    what, words_of(*allocated), words_of(audience)));
  }
  if (allows(access, Access::kRemoteAtomic) && reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("region '{}' begins at {}, which is no multiple of 8: words of atomics are 8 bytes, "
                              "aligned to 8",
                              what, static_cast<const void*>(bytes.data())));
  }
  auto publication = std::make_unique<Publication>(mutex_);
  publication->id = random_();
  const bool read_only = allows(region->access(), Access::kLocalReadOnly);
  publication->memory = part_of(region->range().memory(), bytes, read_only ? access | Access::kLocalReadOnly : access);
  publication->region = std::move(region);
  publication->audience = std::move(audience);
  publication->is_for_own = is_among(own_, publication->audience);
  return publication;
}

Status RegionTable::publish(std::string_view name, std::shared_ptr<RegionImpl> region, std::span<std::byte> bytes,
                            Access access, std::optional<TensorSpec> tensor, std::vector<std::string> audience) {
  if (name.empty() || name.size() > kMaxRegionName) {
    return {Code::kInvalidArgument,
            fmt::format("a region's name has 1 to {} bytes; this one has {}", kMaxRegionName, name.size())};
  }
  Result<std::unique_ptr<Publication>> drafted = draft(name, std::move(region), bytes, access, std::move(audience));
  if (!drafted) return drafted.error();
  if (tensor) {
    if (Status fits = tensor->check(bytes.size()); !fits.ok()) {
      return {fits.code(), fmt::format("region '{}': {}", name, fits.message())};
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (published_.contains(name)) return name_taken(name);
  }
  std::unique_ptr<Publication> publication = *std::move(drafted);
  publication->name = name;
  publication->tensor = tensor;
  return grant_to_all(*publication, [&] { return enter(publication); });
}

Status RegionTable::grant_to_all(Publication& publication, const std::function<Status()>& enter) {
  const Result<Devices::Ticket> ticket = devices_.add(publication);
  if (!ticket) {
    return {ticket.error().code(), fmt::format("cannot publish '{}': {}", publication.name, ticket.error().message())};
  }
  publication.ticket = *ticket;
  const auto is_for = [&](const Tenant& tenant) { return is_among(tenant.principal, publication.audience); };
  Status entered = tell_domains(&publication, publication.memory, DomainBook::Kind::kGrant, is_for, enter);
  if (!entered.ok()) devices_.remove(*ticket);
  return entered;
}

/// It is not in the table any more.
void RegionTable::withdraw_from_all(const Publication& publication) noexcept {
  settle(publication);
  std::vector<std::shared_ptr<DomainBook>> books;
  {
    const std::lock_guard lock(mutex_);
    books = all_books();
  }
  for (const auto& book : books) book->remove(&publication);
  devices_.remove(publication.ticket);
}

// Not entered, it is its caller's to withdraw.
Status RegionTable::enter(std::unique_ptr<Publication>& publication) {
  if (shut_)
    return {Code::kUnavailable, fmt::format("cannot publish '{}': the engine is shut down", publication->name)};
  Publication& entry = *publication;
  if (!published_.try_emplace(entry.name, std::move(publication)).second) return name_taken(entry.name);
  by_id_.emplace(entry.id, &entry);
  return {};
}

Result<std::uint64_t> RegionTable::unpublish(std::string_view name) {
  std::unique_ptr<Publication> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto at = published_.find(name);
    if (at == published_.end()) return nothing_published(name);
    gone = std::move(at->second);
    by_id_.erase(gone->id);
    published_.erase(at);
  }
  withdraw_from_all(*gone);
  return gone->id;
}

Status RegionTable::View::find(std::string_view name, const std::function<void(const Publication&)>& visit) const {
  const std::lock_guard lock(table_.mutex_);
  const auto at = table_.published_.find(name);
  if (at == table_.published_.end() || !is_among(principal_, at->second->audience)) return nothing_published(name);
  visit(*at->second);
  return {};
}

bool RegionTable::View::list(std::string_view prefix, std::string& after, std::size_t& left,
                             const std::function<bool(const Publication&)>& visit) const {
  const std::lock_guard lock(table_.mutex_);
  auto at = after.empty() ? table_.published_.lower_bound(prefix) : table_.published_.upper_bound(after);
  for (const std::string* last = nullptr; at != table_.published_.end() && at->first.starts_with(prefix); ++at) {
    if (left == 0) {
      if (last != nullptr) after = *last;
      return false;
    }
    --left;
    if (is_among(principal_, at->second->audience) && !visit(*at->second)) return true;
    last = &at->first;
  }
  return true;
}

void RegionTable::settle_by(std::function<void()> settle) {
  const std::lock_guard lock(mutex_);
  settle_ = std::move(settle);
}

/// It is not found any more, so that no copy begins; those that have begun end here.
void RegionTable::settle(const Publication& gone) {
  if (!gone.region->range().is_cuda()) return;
  std::function<void()> settle;
  {
    const std::lock_guard lock(mutex_);
    settle = settle_;
  }
  if (settle) settle();
}

Code RegionTable::View::with_bytes(std::uint64_t id, std::uint64_t offset, std::uint64_t length, Access want,
                                   const std::function<bool(std::span<std::byte>)>& use) const {
  return with_memory(id, offset, length, want, [&use](std::span<std::byte> bytes, const MemoryKind& kind) {
    return !std::holds_alternative<CudaMemory>(kind) && use(bytes);
  });
}

Code RegionTable::View::with_memory(std::uint64_t id, std::uint64_t offset, std::uint64_t length, Access want,
                                    const std::function<bool(std::span<std::byte>, const MemoryKind&)>& use) const {
  const std::lock_guard lock(table_.mutex_);
  const auto at = table_.by_id_.find(id);
  if (at == table_.by_id_.end()) return Code::kProtectionError;
  const Publication& publication = *at->second;
  const std::uint64_t size = publication.memory.bytes.size();
  if (publication.secret && (told_ == nullptr || !told_->contains(id))) return Code::kProtectionError;
  if (!is_among(principal_, publication.audience) || !allows(publication.memory.access, want) || offset > size ||
      length > size - offset) {
    return Code::kProtectionError;
  }
  const bool used = length == 0 || use(publication.memory.bytes.subspan(offset, length), publication.memory.kind);
  return used ? Code::kOk : Code::kProtectionError;
}

std::uint64_t RegionTable::registered_bytes() const noexcept {
  return shut_.load() ? 0 : registered_bytes_.load(std::memory_order_relaxed);
}

std::uint64_t RegionTable::cuda_bytes() const noexcept {
  return shut_.load() ? 0 : cuda_bytes_.load(std::memory_order_relaxed);
}

void RegionTable::shutdown() {
  Published gone;  // regions, whose handles take locks when they go
  std::unordered_map<std::uint64_t, std::unique_ptr<Publication>> exports_gone;
  std::vector<TenantBook> books;
  {
    const std::lock_guard lock(mutex_);
    shut_ = true;
    by_id_.clear();
    gone.swap(published_);
    exports_gone.swap(exports_);
    books.swap(books_);
    for (const auto& [name, tenant] : tenants_) tenant->books.clear();
  }
  opener_.stop();
  for (const TenantBook& each : books) each.book->shut();
  devices_.detach_all();
}

}  // namespace fairlead::datapath
