#include "base/system/large_bytes.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <utility>

namespace fairlead {
namespace {

constexpr std::size_t kMost = 32;                         // vectors
constexpr std::size_t kLargest = std::size_t{1} << 20;    // bytes of one
constexpr std::size_t kMostBytes = std::size_t{8} << 20;  // of all
#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeeps = false;  // it is to see who uses what was freed
#else
constexpr bool kKeeps = true;
#endif

struct Stock {
  std::mutex mutex;
  std::array<std::vector<std::byte>, kMost> kept;
  std::size_t count = 0, bytes = 0;
};
/// Never destroyed: threads may outlive it.
Stock& stock() {
  static Stock* const made = new Stock;
  return *made;
}

}  // namespace

std::vector<std::byte> take_large(std::size_t bytes) {
  std::vector<std::byte> found;
  if (bytes >= kLargeBytes && bytes <= kLargest) {
    Stock& s = stock();
    const std::unique_lock lock(s.mutex, std::try_to_lock);  // nobody waits, nor a child that was forked meanwhile
    const auto end = s.kept.begin() + static_cast<std::ptrdiff_t>(lock.owns_lock() ? s.count : 0);
    const auto fits = [bytes](const auto& each) { return each.capacity() >= bytes && each.capacity() / 4 <= bytes; };
    const auto last = std::find_if(std::reverse_iterator(end), s.kept.rend(), fits);
    if (last != s.kept.rend()) {
      found = std::move(*last);
      std::move(last.base(), end, last.base() - 1);  // those behind it, one to the front
      --s.count;
      s.bytes -= found.capacity();
    }
  }
  found.reserve(bytes);
  return found;
}

void give_large(std::vector<std::byte>&& bytes) noexcept {
  std::vector<std::byte> given = std::move(bytes);
  given.clear();
  if (!kKeeps || given.capacity() < kLargeBytes || given.capacity() > kLargest) return;
  Stock& s = stock();
  const std::unique_lock lock(s.mutex, std::try_to_lock);
  if (!lock.owns_lock() || s.count == kMost || s.bytes + given.capacity() > kMostBytes) return;
  s.bytes += given.capacity();
  s.kept[s.count++] = std::move(given);
}

}  // namespace fairlead
