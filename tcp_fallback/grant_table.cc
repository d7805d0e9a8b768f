#include "tcp_fallback/grant_table.h"

#include <sys/random.h>

#include <cstdlib>

namespace fairlead::tcp_fallback {
namespace {

std::uint64_t random_key() noexcept {
  std::uint64_t key = 0;
  if (::getrandom(&key, sizeof key, 0) != static_cast<ssize_t>(sizeof key)) std::abort();
  return key;
}

}  // namespace

datapath::Grant GrantTable::grant(std::span<std::byte> bytes, Access access) {
  for (;;) {
    const std::uint64_t key = random_key();
    const std::lock_guard lock(mutex_);
    if (key == 0 || !entries_.try_emplace(key, Entry{bytes, access}).second) continue;
    return {.address = 0, .key = key, .handle = key};
  }
}

void GrantTable::revoke(const datapath::Grant& grant) noexcept {
  {
    const std::lock_guard lock(mutex_);
    entries_.erase(grant.handle);
  }
  const std::uint32_t seen = activity_.load();
  if (seen % 2 == 1) activity_.wait(seen);
}

std::size_t GrantTable::size() const noexcept {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

GrantTable::Section::Section(GrantTable& table) noexcept : table_(table) { table_.activity_.fetch_add(1); }

GrantTable::Section::~Section() {
  table_.activity_.fetch_add(1);
  table_.activity_.notify_all();  // no system call unless someone waits
}

std::optional<std::span<std::byte>> GrantTable::find(std::uint64_t key, std::uint64_t address, std::uint64_t length,
                                                     Access want) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || !allows(found->second.access, want)) return std::nullopt;
  const std::uint64_t size = found->second.bytes.size();
  if (address > size || length > size - address) return std::nullopt;
  return found->second.bytes.subspan(address, length);
}

}  // namespace fairlead::tcp_fallback
