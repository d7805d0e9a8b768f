// What each principal may keep and push at a server.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fairlead::cli {

inline constexpr std::uint64_t kNoQuota = std::numeric_limits<std::uint64_t>::max();

struct Quota {
  std::uint64_t bytes = kNoQuota;     // of its models, with what describes them: beyond that its own oldest make room
  std::uint64_t models = kNoQuota;    // the same, of their number
  std::uint64_t push = kNoQuota;      // bytes that all its clients push at once
  std::uint64_t sessions = kNoQuota;  // clients at once
};

class Quotas {
 public:
  Quotas() = default;
  /// By principal; "*" is for whoever has no line.
  explicit Quotas(std::map<std::string, Quota, std::less<>> of) : of_(std::move(of)) {}

  /// Those who have a line of their own.
  [[nodiscard]] std::vector<std::string> principals() const {
    std::vector<std::string> all;
    for (const auto& [name, quota] : of_) {
      if (name != "*") all.push_back(name);
    }
    return all;
  }
  /// Who has no name has no quota: there is nobody whose it would be.
  [[nodiscard]] Quota of(std::string_view principal) const {
    if (principal.empty()) return {};
    auto found = of_.find(principal);
    if (found == of_.end()) found = of_.find(std::string_view("*"));
    return found == of_.end() ? Quota() : found->second;
  }
  [[nodiscard]] const std::map<std::string, Quota, std::less<>>& all() const noexcept { return of_; }

 private:
  std::map<std::string, Quota, std::less<>> of_;
};

}  // namespace fairlead::cli
