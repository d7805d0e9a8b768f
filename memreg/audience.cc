#include "memreg/audience.h"

#include <algorithm>
#include <utility>

namespace fairlead::memreg {

Audience Audiences::number_of(std::span<const std::string> principals) {
  std::vector<std::string> set(principals.begin(), principals.end());
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  const std::lock_guard lock(mutex_);
  if (const auto known = numbers_.find(set); known != numbers_.end()) return known->second;
  if (numbers_.size() >= kMost) return Audience::kUnnamed;
  const auto number = static_cast<Audience>(numbers_.size() + 2);
  numbers_.emplace(std::move(set), number);
  return number;
}

}  // namespace fairlead::memreg
