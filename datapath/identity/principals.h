// Whom an engine knows: names of principals, and the keys by which they show who they are.
//
// From a file of this user's alone: a line for each, "NAME KEY", the key in hexadecimal digits; '#' begins a comment.
// A principal is a key's name: both ends of a session have it, and the session is that principal's at either.
// Threads: immutable once loaded.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::datapath {

/// In an audience: whoever showed a key.
inline constexpr std::string_view kEveryPrincipal = "*";

class Principals {
 public:
  static constexpr std::size_t kMost = 4096;       // in a file
  static constexpr std::size_t kMinKeyBytes = 16;  // fewer can be guessed
  static constexpr std::size_t kMaxKeyBytes = 64;
  using Key = std::vector<std::byte>;

  Principals() = default;  // nobody
  /// Errors name the file, the line and the remedy, and never a key: kNotFound, kPermissionDenied (others may read it),
  /// kInvalidArgument.
  static Result<Principals> load(const std::string& path);
  /// The same of text, which `path` names in errors.
  static Result<Principals> parse(std::string_view text, const std::string& path);

  [[nodiscard]] bool empty() const noexcept { return keys_.empty(); }
  /// Null: nobody of that name is known.
  [[nodiscard]] const Key* key_of(std::string_view name) const noexcept;
  /// The same; of a name that nobody has a key that is nobody's, so that to look takes as long.
  [[nodiscard]] const Key& key_to_check(std::string_view name) const noexcept;
  /// ok if each name is somebody's, or kEveryPrincipal.
  [[nodiscard]] Status check_audience(std::span<const std::string> audience) const;

 private:
  std::map<std::string, Key, std::less<>> keys_;
};

/// Whether all of `audience` are of `whole`. None is everybody.
[[nodiscard]] bool is_within(std::span<const std::string> audience, std::span<const std::string> whole) noexcept;

/// Whether a session of `principal` (empty: anonymous) is among them. No audience is everybody.
[[nodiscard]] bool is_among(std::string_view principal, std::span<const std::string> audience) noexcept;

}  // namespace fairlead::datapath
