#include "datapath/region/regions.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <random>

#include "base/guarded.h"

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

RegisteredRange::~RegisteredRange() { table_->remove(*this); }

Result<std::array<Registration, kMaxTransports>> RegionTable::register_everywhere(std::span<std::byte> bytes,
                                                                                  Access access) {
  std::array<Registration, kMaxTransports> keys{};
  for (std::size_t t = 0; t < kMaxTransports; ++t) {
    if (transports_[t] == nullptr) continue;
    Result<Registration> got = transports_[t]->register_region(bytes, access);
    if (!got) {
      deregister_everywhere(keys);
      return Status(got.error().code(), fmt::format("{}: {}", transports_[t]->name(), got.error().message()));
    }
    keys[t] = *got;
  }
  return keys;
}

void RegionTable::deregister_everywhere(const std::array<Registration, kMaxTransports>& keys) {
  for (std::size_t t = 0; t < kMaxTransports; ++t) {
    if (transports_[t] != nullptr && keys[t].handle != 0) transports_[t]->deregister_region(keys[t]);
  }
}

Status RegionTable::attach(std::size_t index, Transport& transport) {
  const std::lock_guard lock(mutex_);
  for (RegisteredRange* range : ranges_) {
    Result<Registration> got = transport.register_region(range->bytes_, range->access_);
    if (!got) return got.error();
    range->registrations_[index] = *got;
  }
  for (auto& [name, publication] : published_) {
    Result<Registration> got = transport.register_region(publication.bytes, publication.access);
    if (!got) return got.error();
    publication.keys[index] = *got;
  }
  transports_[index] = &transport;
  return {};
}

Result<std::shared_ptr<RegisteredRange>> RegionTable::add(std::span<std::byte> bytes, Access access) {
  const Access local = allows(access, Access::kLocalReadOnly) ? Access::kLocalReadOnly : Access::kNone;
  install_fault_handlers();  // the memory is the application's, and may go at any time
  std::shared_ptr<RegisteredRange> range(new RegisteredRange(shared_from_this(), bytes, local));
  const std::lock_guard lock(mutex_);
  Result<std::array<Registration, kMaxTransports>> keys = register_everywhere(bytes, local);
  if (!keys) return keys.error();
  range->registrations_ = *keys;
  ranges_.insert(range.get());
  registered_bytes_ += bytes.size();
  return range;
}

void RegionTable::remove(RegisteredRange& range) {
  if (inherited()) return;
  const std::lock_guard lock(mutex_);
  if (ranges_.erase(&range) == 0) return;
  deregister_everywhere(range.registrations_);
  registered_bytes_ -= range.bytes_.size();
}

Status RegionTable::publish(std::string_view name, std::shared_ptr<RegionImpl> region, std::span<std::byte> bytes,
                            Access access, std::optional<TensorSpec> tensor) {
  if (name.empty() || name.size() > kMaxRegionName) {
    return {Code::kInvalidArgument,
            fmt::format("a region's name has 1 to {} bytes; this one has {}", kMaxRegionName, name.size())};
  }
  if (!allows(region->access(), access)) {
    return {Code::kPermissionDenied,
            fmt::format("region '{}' was registered with access {}, which does not include {}; register it with more",
                        name, static_cast<int>(region->access()), static_cast<int>(access))};
  }
  if (tensor) {
    if (Status fits = tensor->check(bytes.size()); !fits.ok()) {
      return {fits.code(), fmt::format("region '{}': {}", name, fits.message())};
    }
  }
  const bool read_only = allows(region->access(), Access::kLocalReadOnly);
  const std::lock_guard lock(mutex_);
  if (published_.contains(name)) {
    return {Code::kAlreadyExists, fmt::format("a region named '{}' is published already; unpublish it first", name)};
  }
  const Access granted = read_only ? access | Access::kLocalReadOnly : access;
  Result<std::array<Registration, kMaxTransports>> keys = register_everywhere(bytes, granted);
  if (!keys) return {keys.error().code(), fmt::format("cannot publish '{}': {}", name, keys.error().message())};
  Publication publication{std::string(name), random_(), std::move(region), bytes, granted, tensor, *keys};
  auto [at, inserted] = published_.emplace(name, std::move(publication));
  by_id_.emplace(at->second.id, &at->second);
  return {};
}

Status RegionTable::unpublish(std::string_view name) {
  std::shared_ptr<RegionImpl> keep;  // released after the lock: its destructor takes it again
  const std::lock_guard lock(mutex_);
  const auto at = published_.find(name);
  if (at == published_.end()) return {Code::kNotFound, fmt::format("no region named '{}' is published", name)};
  keep = at->second.region;
  deregister_everywhere(at->second.keys);
  by_id_.erase(at->second.id);
  published_.erase(at);
  return {};
}

Status RegionTable::find(std::string_view name, const std::function<void(const Publication&)>& visit) const {
  const std::lock_guard lock(mutex_);
  const auto at = published_.find(name);
  if (at == published_.end()) return {Code::kNotFound, fmt::format("no region named '{}' is published", name)};
  visit(at->second);
  return {};
}

void RegionTable::list(std::string_view prefix, std::string_view after,
                       const std::function<bool(const Publication&)>& visit) const {
  const std::lock_guard lock(mutex_);
  auto at = after.empty() ? published_.lower_bound(prefix) : published_.upper_bound(after);
  for (; at != published_.end() && at->first.starts_with(prefix); ++at) {
    if (!visit(at->second)) return;
  }
}

Code RegionTable::with_bytes(std::uint64_t id, std::uint64_t offset, std::uint64_t length, Access want,
                             const std::function<bool(std::span<std::byte>)>& use) const {
  const std::lock_guard lock(mutex_);
  const auto at = by_id_.find(id);
  if (at == by_id_.end()) return Code::kProtectionError;
  const Publication& publication = *at->second;
  const std::uint64_t size = publication.bytes.size();
  if (!allows(publication.access, want) || offset > size || length > size - offset) return Code::kProtectionError;
  return length == 0 || use(publication.bytes.subspan(offset, length)) ? Code::kOk : Code::kProtectionError;
}

std::uint64_t RegionTable::registered_bytes() const {
  const std::lock_guard lock(mutex_);
  return registered_bytes_;
}

void RegionTable::shutdown() {
  std::map<std::string, Publication, std::less<>> published;  // released after the lock
  const std::lock_guard lock(mutex_);
  for (RegisteredRange* range : ranges_) deregister_everywhere(range->registrations_);
  for (auto& [name, publication] : published_) deregister_everywhere(publication.keys);
  ranges_.clear();
  by_id_.clear();
  published.swap(published_);
  registered_bytes_ = 0;
  transports_.fill(nullptr);
}

}  // namespace fairlead::datapath
