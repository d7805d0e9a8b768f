#include "cli/tenants/tenants_file.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "cli/base/args.h"
#include "cli/base/principal_lines.h"
#include "cli/base/settings_file.h"

namespace fairlead::cli {
namespace {

using command::Tenant;

Setter set_share(double* target) {
  return [target](std::string_view text) {
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    double value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (percent) value /= 100;
    if (error != std::errc() || rest != text.data() + text.size() || !(value >= command::kLeastShare && value <= 1)) {
      return Status(Code::kInvalidArgument,
                    fmt::format("'{}' is no share (legal: 0.25, or 25%; {} to 1)", text, command::kLeastShare));
    }
    *target = value;
    return Status();
  };
}

/// Numbers with commas between; whether there are such devices is the service's to say.
Status set_devices(std::vector<std::uint32_t>& devices, std::string_view value) {
  devices.clear();
  for (;;) {
    const std::size_t end = value.find(',');
    std::uint32_t device = 0;
    if (Status fine = set_number(&device, 0, 15)(value.substr(0, end)); !fine.ok()) return fine;
    devices.push_back(device);
    if (end == std::string_view::npos) return {};
    value.remove_prefix(end + 1);
  }
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
  if (name == "devices") return set_devices(tenant.devices, value);
  return {
      Code::kInvalidArgument,
      fmt::format("there is no '{}' (legal: memory, sessions, channels, commands, bandwidth, share, devices)", name)};
}

}  // namespace

Result<std::vector<Tenant>> parse_tenants(std::string_view text, const std::string& path) {
  std::vector<Tenant> all;
  const auto begin = [&all](const std::string& name) { all.emplace_back().name = name; };
  const auto setting = [&all](std::string_view name, std::string_view value) { return set(all.back(), name, value); };
  if (const Status read = read_principal_lines(text, path, "tenant", begin, setting); !read.ok()) return read;
  return all;
}

Result<std::vector<Tenant>> load_tenants(const std::string& path) {
  const Result<std::string> text = read_small_file(path, kMaxSettingsBytes);
  if (!text) return text.error();
  return parse_tenants(*text, path);
}

}  // namespace fairlead::cli
