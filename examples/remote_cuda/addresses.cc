#include <addresses.h>
#include <sys/mman.h>

constexpr std::uint64_t kAlignment = 256, kForGaps = 4;

Addresses::~Addresses() {
  if (begin_ != 0) ::munmap(reinterpret_cast<void*>(begin_), end_ - begin_);
}

bool Addresses::reserve(std::uint64_t bytes) {
  if (bytes > (std::uint64_t{1} << 44)) return false;
  const std::uint64_t size = (bytes + kAlignment) * kForGaps;  // many small allocations take more than they hold
  void* const range = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return false;
  begin_ = reinterpret_cast<std::uint64_t>(range);
  end_ = begin_ + size;
  return true;
}

std::uint64_t Addresses::place(fairlead::command::Handle allocation, std::uint64_t bytes) {
  if (bytes == 0 || bytes > end_ - begin_) return 0;
  std::uint64_t at = begin_;
  for (const auto& [address, there] : placed_) {  // the first gap that is large enough
    if (address > at && address - at > bytes) break;
    at = (address + there.bytes) / kAlignment * kAlignment + kAlignment;  // the end of one is never another's begin
  }
  if (at > end_ || end_ - at < bytes) return 0;
  placed_.emplace(at, Allocation{allocation, bytes});
  return at;
}

std::optional<fairlead::command::Handle> Addresses::remove(std::uint64_t address) {
  const auto found = placed_.find(address);
  if (found == placed_.end()) return std::nullopt;
  const auto handle = found->second.handle;
  placed_.erase(found);
  return handle;
}

std::optional<fairlead::command::Pointer> Addresses::find(std::uint64_t address, std::uint64_t bytes) const {
  auto found = placed_.upper_bound(address);
  if (found == placed_.begin()) return std::nullopt;
  --found;
  const std::uint64_t offset = address - found->first;
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return std::nullopt;
  return fairlead::command::Pointer{found->second.handle, offset};
}
