#include "cli/base/settings_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "base/printable.h"
#include "bench/base/file_output.h"

namespace fairlead::cli {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace

Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& path) {
  std::vector<Setting> all;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.empty() || line.starts_with('#')) continue;
    const auto wrong = [&](std::string_view what) {
      return Status(Code::kInvalidArgument, fmt::format("{}, line {}: {}", path, number, what));
    };
    const std::size_t equals = line.find('=');
    const std::string_view name = trim(line.substr(0, equals));
    if (equals == std::string_view::npos || name.empty()) {
      return wrong(fmt::format("'{}' is no setting; settings are as listen = 0.0.0.0:7471, one a line",
                               printable(line.substr(0, 80))));
    }
    if (!is_printable(line)) return wrong(fmt::format("'{}' has control characters", printable(name)));
    const auto before = std::ranges::find(all, name, &Setting::name);
    if (before != all.end()) return wrong(fmt::format("'{}' stands in line {} already", name, before->line));
    all.push_back({std::string(name), std::string(trim(line.substr(equals + 1))), number});
  }
  return all;
}

Result<std::vector<Setting>> load_settings(const std::string& path) {
  const Result<std::string> text = read_small_file(path, kMaxSettingsBytes);
  if (!text) return text.error();
  return parse_settings(*text, path);
}

std::optional<std::string> settings_path(std::span<const char* const> words) {
  constexpr std::string_view kFlag = "--config", kWith = "--config=";
  std::optional<std::string> path;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--") break;
    if (word == kFlag && i + 1 < words.size()) path = words[i + 1];
    if (word.starts_with(kWith)) path = word.substr(kWith.size());
  }
  const char* const named = std::getenv("FAIRLEAD_CONFIG");
  if (!path && named != nullptr && *named != '\0') path = named;
  return path;
}

Result<std::string> read_small_file(const std::string& path, std::size_t most) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(most + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) return bench::file_error("read", path, errno == 0 ? EIO : errno);
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > most) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} has more than {} bytes, the limit of such a file", path, most));
  }
  return text;
}

}  // namespace fairlead::cli
