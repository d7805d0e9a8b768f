#include "cli/base/unreachable.h"

#include <fmt/format.h>

#include <string>

namespace fairlead::cli {
namespace {

std::string remedy(const Status& why, std::string_view server) {
  const auto says = [&why](std::string_view words) { return why.message().find(words) != std::string_view::npos; };
  if (says("Connection refused")) return fmt::format("start `{}` there, or give the port at which it listens", server);
  if (says("not a Fairlead peer") || says("without a goodbye")) {
    return fmt::format("give the address at which a `{}` listens, which is not that of its --metrics", server);
  }
  if (says("no such host")) return "check the name, or give an address in numbers";
  if (why.code() == Code::kDeadlineExceeded || says("timed out")) {
    return fmt::format("check the address, that `{}` runs there, and that no firewall keeps its port", server);
  }
  return "";
}

}  // namespace

Status unreachable(std::string_view place, const Status& why, std::string_view server) {
  const std::string what = remedy(why, server);
  return {why.code(), fmt::format("cannot reach {}: {}{}{}", place, why.message(), what.empty() ? "" : "; ", what)};
}

}  // namespace fairlead::cli
