#include "metrics/port_range.h"

#include <fmt/format.h>

#include <charconv>

#include "fairlead/config.h"

namespace fairlead::metrics {

Result<PortRange> parse_port_range(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::size_t dash = text.rfind('-');
  const bool ranges = colon != std::string_view::npos && dash != std::string_view::npos && dash > colon;
  const Result<HostPort> begin = parse_host_port(text.substr(0, ranges ? dash : text.size()));
  if (!begin) return begin.error();
  PortRange range{begin->host, begin->port, begin->port};
  if (!ranges) return range;
  const std::string_view last = text.substr(dash + 1);
  const auto [rest, error] = std::from_chars(last.data(), last.data() + last.size(), range.last);
  if (error != std::errc() || rest != last.data() + last.size() || range.first == 0 || range.last < range.first) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("'{}' is no range of ports (legal: HOST:FIRST-LAST, from 1 to 65535, as :9471-9490)", text));
  }
  return range;
}

}  // namespace fairlead::metrics
