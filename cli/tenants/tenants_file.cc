#include "cli/tenants/tenants_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/principal_name.h"
#include "bench/base/sizes.h"
#include "cli/base/args.h"

namespace fairlead::cli {
namespace {

using command::Tenant;

constexpr std::size_t kMostBytes = 1 << 20;  // of a file

Setter set_share(double* target) {
  return [target](std::string_view text) {
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    double value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (percent) value /= 100;
    if (error != std::errc() || rest != text.data() + text.size() || !(value > 0 && value <= 1)) {
      return Status(Code::kInvalidArgument, fmt::format("'{}' is no share (legal: 0.25, or 25%; at most 1)", text));
    }
    *target = value;
    return Status();
  };
}

Status set(Tenant& tenant, std::string_view name, std::string_view value) {
  constexpr std::uint64_t kMostSize = std::uint64_t{1} << 50;
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (name == "memory") return set_size(&tenant.memory_bytes, 1, kMostSize)(value);
  if (name == "bandwidth") return set_size(&tenant.bytes_per_second, 1, kMostSize)(value);
  if (name == "sessions") return set_number(&tenant.sessions, 1, kMost)(value);
  if (name == "channels") return set_number(&tenant.channels, 1, 4096)(value);
  if (name == "commands") return set_number(&tenant.credits, 64, 65536)(value);
  if (name == "share") return set_share(&tenant.share)(value);
  return {Code::kInvalidArgument,
          fmt::format("there is no '{}' (legal: memory, sessions, channels, commands, bandwidth, share)", name)};
}

}  // namespace

Result<std::vector<Tenant>> parse_tenants(std::string_view text, const std::string& path) {
  std::vector<Tenant> all;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    line = line.substr(0, line.find('#'));
    const auto wrong = [&](std::string_view what) {
      return Status(Code::kInvalidArgument, fmt::format("{}, line {}: {}", path, number, what));
    };
    Tenant tenant;
    std::istringstream words{std::string(line)};
    if (!(words >> tenant.name)) continue;
    if (tenant.name != "*" && !is_principal_name(tenant.name)) {
      return wrong(fmt::format("a name has {}, or is *", kLegalPrincipalName));
    }
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      if (equals == std::string::npos) {
        return wrong(fmt::format("'{}' is no setting; settings are as memory=8G, without blanks", word));
      }
      const std::string_view name = std::string_view(word).substr(0, equals);
      if (const Status done = set(tenant, name, std::string_view(word).substr(equals + 1)); !done.ok()) {
        return wrong(fmt::format("{}: {}", name, done.message()));
      }
    }
    all.push_back(std::move(tenant));
  }
  if (all.empty()) return Status(Code::kInvalidArgument, fmt::format("{} names no tenant", path));
  return all;
}

Result<std::vector<Tenant>> load_tenants(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) {
    return Status(Code::kNotFound, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} has more than {} bytes, which no file of tenants has", path, kMostBytes));
  }
  return parse_tenants(text, path);
}

}  // namespace fairlead::cli
