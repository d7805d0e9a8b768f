#include "cli/server/quotas_file.h"

#include <fmt/format.h>

#include <limits>

#include "cli/base/args.h"
#include "cli/base/principal_lines.h"
#include "cli/base/settings_file.h"

namespace fairlead::cli {
namespace {

Status set(Quota& quota, std::string_view name, std::string_view value) {
  constexpr std::uint64_t kMostSize = std::uint64_t{1} << 50;
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (name == "memory") return set_size(&quota.bytes, 1, kMostSize)(value);
  if (name == "push") return set_size(&quota.push, 1, kMostSize)(value);
  if (name == "models") return set_number(&quota.models, 1, kMost)(value);
  if (name == "sessions") return set_number(&quota.sessions, 1, kMost)(value);
  return {Code::kInvalidArgument, fmt::format("there is no '{}' (legal: memory, models, push, sessions)", name)};
}

}  // namespace

Result<Quotas> parse_quotas(std::string_view text, const std::string& path) {
  std::map<std::string, Quota, std::less<>> all;
  Quota* last = nullptr;
  const auto begin = [&](const std::string& name) { last = &all[name]; };
  const auto setting = [&](std::string_view name, std::string_view value) { return set(*last, name, value); };
  if (const Status read = read_principal_lines(text, path, "principal", begin, setting); !read.ok()) return read;
  return Quotas(std::move(all));
}

Result<Quotas> load_quotas(const std::string& path) {
  const Result<std::string> text = read_small_file(path, kMaxSettingsBytes);
  if (!text) return text.error();
  return parse_quotas(*text, path);
}

}  // namespace fairlead::cli
