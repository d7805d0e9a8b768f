// Parts of [0, size): the first that fits is given, and what is given back joins its neighbours. Threads: one at a
// time.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace fairlead::gpu {

class Ranges {
 public:
  explicit Ranges(std::uint64_t size) {
    if (size != 0) free_[0] = size;
  }

  /// Nothing: no part of that length is free. `bytes` is not 0.
  [[nodiscard]] std::optional<std::uint64_t> take(std::uint64_t bytes) {
    for (auto part = free_.begin(); part != free_.end(); ++part) {
      const auto [at, length] = *part;
      if (length < bytes) continue;
      free_.erase(part);
      if (length > bytes) free_[at + bytes] = length - bytes;
      return at;
    }
    return std::nullopt;
  }
  /// False: some of it is not free. `bytes` is not 0.
  [[nodiscard]] bool take_at(std::uint64_t at, std::uint64_t bytes) {
    auto part = free_.upper_bound(at);
    if (part == free_.begin()) return false;
    const auto [begin, length] = *--part;
    if (at - begin > length || bytes > length - (at - begin)) return false;
    free_.erase(part);
    if (at != begin) free_[begin] = at - begin;
    if (at + bytes != begin + length) free_[at + bytes] = begin + length - at - bytes;
    return true;
  }
  /// What take() or take_at() gave.
  void give(std::uint64_t at, std::uint64_t bytes) {
    auto next = free_.lower_bound(at);
    if (next != free_.end() && at + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      if (const auto before = std::prev(next); before->first + before->second == at) {
        before->second += bytes;
        return;
      }
    }
    free_.emplace_hint(next, at, bytes);
  }
  [[nodiscard]] std::uint64_t longest() const noexcept {
    std::uint64_t most = 0;
    for (const auto& [at, length] : free_) most = most < length ? length : most;
    return most;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // where, and how long; never next to each other
};

}  // namespace fairlead::gpu
