#include "datapath/identity/principals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/principal_name.h"
#include "base/system/own_user.h"
#include "base/unique_fd.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kMaxFile = std::size_t{1} << 20;  // bytes
constexpr std::string_view kBlanks = " \t\r";

std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

int value_of(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

std::optional<Principals::Key> key_from(std::string_view digits) {
  const std::size_t bytes = digits.size() / 2;
  if (digits.size() % 2 != 0 || bytes < Principals::kMinKeyBytes || bytes > Principals::kMaxKeyBytes) return {};
  Principals::Key key;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const int high = value_of(digits[i]), low = value_of(digits[i + 1]);
    if (high < 0 || low < 0) return {};
    key.push_back(static_cast<std::byte>(high << 4 | low));
  }
  return key;
}

/// As ssh has it: a key that others can read is no key.
Status check_owner(const struct stat& info, const std::string& path) {
  if (!S_ISREG(info.st_mode)) return {Code::kInvalidArgument, fmt::format("keys file {} is no file", path)};
  if (!is_own_user(info.st_uid) && info.st_uid != 0) {
    return {Code::kPermissionDenied,
            fmt::format("keys file {} is uid {}'s; it should be uid {}'s or root's", path, info.st_uid, ::geteuid())};
  }
  if ((info.st_mode & 077) == 0) return {};
  return {Code::kPermissionDenied, fmt::format("keys file {} has mode {:04o}: others may get at the keys; chmod 600 {}",
                                               path, info.st_mode & 07777, path)};
}

}  // namespace

bool is_among(std::string_view principal, std::span<const std::string> audience) noexcept {
  return audience.empty() || std::any_of(audience.begin(), audience.end(), [&](const std::string& name) {
           return name == kEveryPrincipal ? !principal.empty() : name == principal;
         });
}

bool is_within(std::span<const std::string> audience, std::span<const std::string> whole) noexcept {
  if (whole.empty()) return true;
  // That kEveryPrincipal is among them takes the same word: all whom a list names may be fewer, one day.
  return !audience.empty() && std::all_of(audience.begin(), audience.end(), [&](const std::string& name) {
    return name == kEveryPrincipal ? std::find(whole.begin(), whole.end(), name) != whole.end() : is_among(name, whole);
  });
}

Result<Principals> Principals::load(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (!file || ::fstat(file.get(), &info) != 0) {
    const int error = errno;
    const std::string why = fmt::format("keys file {}: {}", path, std::strerror(error));
    if (error != ENOENT) return {Code::kPermissionDenied, why};
    return {Code::kNotFound, fmt::format("{}; `umask 077; fairlead key NAME >> {}` makes one", why, path)};
  }
  if (Status owned = check_owner(info, path); !owned.ok()) return owned;
  std::string text(kMaxFile + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0) return {Code::kUnavailable, fmt::format("keys file {}: {}", path, std::strerror(errno))};
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  if (size > kMaxFile) {
    return {Code::kInvalidArgument, fmt::format("keys file {} has more than {} bytes", path, kMaxFile)};
  }
  return parse(text, path);
}

Result<Principals> Principals::parse(std::string_view text, const std::string& path) {
  Principals known;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const auto bad = [&](std::string_view what) -> Result<Principals> {
      return {Code::kInvalidArgument, fmt::format("keys file {}, line {}: {}", path, number, what)};
    };
    const std::string_view name = take_word(line), digits = take_word(line);
    if (name.empty()) continue;
    if (!is_principal_name(name)) {
      return bad(fmt::format("a name has {}; this one has {}", kLegalPrincipalName, name.size()));
    }
    std::optional<Key> key = key_from(digits);
    if (!key || !take_word(line).empty()) {
      return bad(
          fmt::format("'{}' needs a key behind it, {} to {} hexadecimal digits, and nothing else; `fairlead key "
                      "{}` makes such a line",
                      name, 2 * kMinKeyBytes, 2 * kMaxKeyBytes, name));
    }
    if (known.keys_.size() == kMost) return bad(fmt::format("more than {} principals", kMost));
    if (!known.keys_.emplace(name, *std::move(key)).second) return bad(fmt::format("'{}' stands there twice", name));
  }
  if (known.empty())
    return {Code::kInvalidArgument,
            fmt::format("keys file {0} names nobody; `fairlead key NAME >> {0}` adds one", path)};
  return known;
}

const Principals::Key* Principals::key_of(std::string_view name) const noexcept {
  const auto at = keys_.find(name);
  return at != keys_.end() ? &at->second : nullptr;
}

const Principals::Key& Principals::key_to_check(std::string_view name) const noexcept {
  static const Key kNobodys(32);
  const Key* key = key_of(name);
  return key != nullptr ? *key : kNobodys;
}

Status Principals::check_audience(std::span<const std::string> audience) const {
  for (const std::string& name : audience) {
    if (name == kEveryPrincipal || key_of(name) != nullptr) continue;
    return {
        Code::kInvalidArgument,
        fmt::format("the audience names '{}', whom the keys file does not; it may also have '{}', for whoever shows "
                    "a key",
                    name, kEveryPrincipal)};
  }
  return {};
}

}  // namespace fairlead::datapath
