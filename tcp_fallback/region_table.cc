#include "tcp_fallback/region_table.h"

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

datapath::Registration RegionTable::add(std::span<std::byte> bytes, Access access) {
  const std::lock_guard lock(mutex_);
  for (;;) {
    const std::uint64_t key = random_key();
    if (key == 0 || !regions_.try_emplace(key, Region{bytes, access}).second) continue;
    return {.local = key, .remote_address = 0, .remote = key, .handle = key};
  }
}

void RegionTable::remove(const datapath::Registration& registration) noexcept {
  {
    const std::lock_guard lock(mutex_);
    regions_.erase(registration.handle);
  }
  const std::uint32_t seen = activity_.load();
  if (seen % 2 == 1) activity_.wait(seen);
}

RegionTable::Section::Section(RegionTable& table) noexcept : table_(table) { table_.activity_.fetch_add(1); }

RegionTable::Section::~Section() {
  table_.activity_.fetch_add(1);
  table_.activity_.notify_all();  // no system call unless someone waits
}

std::optional<std::span<std::byte>> RegionTable::find(std::uint64_t key, std::uint64_t address, std::uint64_t length,
                                                      Access want) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(key);
  if (found == regions_.end() || !allows(found->second.access, want)) return std::nullopt;
  const std::uint64_t size = found->second.bytes.size();
  if (address > size || length > size - address) return std::nullopt;
  return found->second.bytes.subspan(address, length);
}

}  // namespace fairlead::tcp_fallback
