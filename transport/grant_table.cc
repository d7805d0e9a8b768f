#include "transport/grant_table.h"

#include <sys/random.h>

#include <cstdlib>

namespace fairlead::datapath {
namespace {

std::uint64_t random_key() noexcept {
  std::uint64_t key = 0;
  if (::getrandom(&key, sizeof key, 0) != static_cast<ssize_t>(sizeof key)) std::abort();
  return key;
}

}  // namespace

Grant GrantTable::grant(std::span<std::byte> bytes, Access access, DomainNumber domain, bool by_cpu_only) {
  for (;;) {
    const std::uint64_t key = random_key();
    const std::lock_guard lock(mutex_);
    if (key == 0 || !entries_.try_emplace(key, Entry{bytes, access, domain, by_cpu_only}).second) continue;
    return {.address = 0, .key = key, .handle = key};
  }
}

void GrantTable::revoke(const Grant& grant) noexcept {
  std::vector<std::shared_ptr<Activity>> readers;
  {
    const std::lock_guard lock(mutex_);
    entries_.erase(grant.handle);
    readers = readers_;
  }
  for (const auto& activity : readers) {
    const std::uint32_t seen = activity->load();
    if (seen % 2 == 1) activity->wait(seen);
  }
}

std::size_t GrantTable::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

GrantTable::Reader::Reader(GrantTable& table) : table_(table) {
  const std::lock_guard lock(table_.mutex_);
  table_.readers_.push_back(activity_);
}

GrantTable::Reader::~Reader() {
  const std::lock_guard lock(table_.mutex_);
  std::erase(table_.readers_, activity_);
}

GrantTable::Reader::Section::Section(Reader& reader) noexcept : activity_(*reader.activity_) { activity_.fetch_add(1); }

GrantTable::Reader::Section::~Section() {
  activity_.fetch_add(1);
  activity_.notify_all();  // no system call unless someone waits
}

std::optional<std::span<std::byte>> GrantTable::Reader::find(DomainNumber domain, std::uint64_t key,
                                                             std::uint64_t address, std::uint64_t length,
                                                             Access want) const noexcept {
  const std::lock_guard lock(table_.mutex_);
  const auto found = table_.entries_.find(key);
  if (found == table_.entries_.end() || found->second.domain != domain) return std::nullopt;
  if (!allows(found->second.access, want)) return std::nullopt;
  const std::uint64_t size = found->second.bytes.size();
  if (address > size || length > size - address) return std::nullopt;
  return found->second.bytes.subspan(address, length);
}

bool GrantTable::Reader::is_by_cpu_only(std::uint64_t key) const noexcept {
  const std::lock_guard lock(table_.mutex_);
  const auto found = table_.entries_.find(key);
  return found != table_.entries_.end() && found->second.by_cpu_only;
}

}  // namespace fairlead::datapath
