#include "cli/base/principal_lines.h"

#include <fmt/format.h>

#include <set>
#include <sstream>

#include "base/principal_name.h"
#include "base/printable.h"

namespace fairlead::cli {

Status read_principal_lines(std::string_view text, const std::string& path, std::string_view what,
                            const std::function<void(const std::string& name)>& begin,
                            const std::function<Status(std::string_view name, std::string_view value)>& set) {
  std::set<std::string> names;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    line = line.substr(0, line.find('#'));
    const auto wrong = [&](std::string_view why) {
      return Status(Code::kInvalidArgument, fmt::format("{}, line {}: {}", path, number, why));
    };
    std::istringstream words{std::string(line)};
    std::string who;
    if (!(words >> who)) continue;
    if (who != "*" && !is_principal_name(who)) {
      return wrong(fmt::format("'{}' is no name: a name has {}, or is *", printable(who), kLegalPrincipalName));
    }
    if (!names.insert(who).second) return wrong(fmt::format("'{}' has a line already", who));
    begin(who);
    std::set<std::string, std::less<>> set_already;
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      if (equals == std::string::npos) {
        return wrong(fmt::format("'{}' is no setting; settings are as memory=8G, without blanks", word));
      }
      const std::string_view name = std::string_view(word).substr(0, equals);
      if (!set_already.emplace(name).second) return wrong(fmt::format("{}: it is set twice", name));
      if (const Status done = set(name, std::string_view(word).substr(equals + 1)); !done.ok()) {
        return wrong(fmt::format("{}: {}", name, done.message()));
      }
    }
  }
  if (names.empty()) return {Code::kInvalidArgument, fmt::format("{} names no {}", path, what)};
  return {};
}

}  // namespace fairlead::cli
