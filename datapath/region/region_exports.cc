// The region table: regions that who has their capability finds.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "datapath/identity/principals.h"
#include "datapath/region/regions.h"

namespace fairlead::datapath {

Result<Capability> RegionTable::export_region(std::shared_ptr<RegionImpl> region, std::span<std::byte> bytes,
                                              Access access, std::vector<std::string> audience) {
  Result<std::unique_ptr<Publication>> drafted = draft("export", std::move(region), bytes, access, std::move(audience));
  if (!drafted) return drafted.error();
  std::unique_ptr<Publication> publication = *std::move(drafted);
  Capability capability{.region = publication->id, .access = access, .secret = {}};
  for (std::size_t at = 0; at < capability.secret.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t part = random_();
    std::memcpy(capability.secret.data() + at, &part, sizeof part);
  }
  publication->name = fmt::format("export {:016x}", publication->id);
  publication->secret = capability.secret;
  Publication& entry = *publication;
  const Status entered = grant_to_all(entry, [&] {
    if (shut_) return Status(Code::kUnavailable, "cannot export: the engine is shut down");
    by_id_.emplace(entry.id, &entry);
    exports_.emplace(entry.id, std::move(publication));
    return Status();
  });
  if (!entered.ok()) return entered;
  return capability;
}

Status RegionTable::unexport(const Capability& capability) {
  std::unique_ptr<Publication> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto at = exports_.find(capability.region);
    if (at == exports_.end() || !is_digest(*at->second->secret, text_of(capability.secret))) {
      return {Code::kNotFound, "no region is exported with this capability, or not any more"};
    }
    gone = std::move(at->second);
    by_id_.erase(gone->id);
    exports_.erase(at);
  }
  withdraw_from_all(*gone);
  return {};
}

// Whoever has not the whole of it learns nothing of what there is: the words are the same.
Status RegionTable::View::import(std::string_view capability,
                                 const std::function<void(const Publication&)>& visit) const {
  const std::optional<Capability> shown = parse_capability(capability);
  const std::lock_guard lock(table_.mutex_);
  const auto at = shown ? table_.exports_.find(shown->region) : table_.exports_.end();
  const bool known = at != table_.exports_.end();
  if (!known || !is_digest(*at->second->secret, text_of(shown->secret)) ||
      !allows(at->second->memory.access, shown->access) || !is_among(principal_, at->second->audience)) {
    return {Code::kPermissionDenied,
            "the capability opens nothing here: its region was withdrawn, or it is another engine's or is for others; "
            "ask whoever gave it away for another"};
  }
  visit(*at->second);
  return {};
}

}  // namespace fairlead::datapath
