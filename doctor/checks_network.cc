// Sockets: what the kernel keeps for them, and what it dropped.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/size_text.h"
#include "doctor/checks.h"

namespace fairlead::doctor {
namespace {

Finding socket_buffers(const Subject& subject) {
  constexpr std::uint64_t kEnough = std::uint64_t{4} << 20;
  std::string seen;
  std::vector<std::string> commands;
  for (const std::string_view name : {"rmem_max", "wmem_max"}) {
    const auto bytes = subject.files.number(fmt::format("/proc/sys/net/core/{}", name));
    if (!bytes) continue;
    seen += fmt::format("{}net.core.{} is {}", seen.empty() ? "" : ", ", name, size_text(*bytes));
    if (*bytes < kEnough) commands.push_back(fmt::format("sysctl -w net.core.{}=16777216", name));
  }
  if (seen.empty()) return not_here("this network namespace does not show them");
  return commands.empty() ? fine(seen) : advice(seen, commands);
}

Finding tcp_buffers(const Subject& subject) {
  constexpr std::uint64_t kEnough = std::uint64_t{4} << 20;
  std::string seen;
  std::vector<std::string> commands;
  for (const std::string_view name : {"tcp_rmem", "tcp_wmem"}) {
    const std::vector<std::string> words = split_blanks(
        subject.files.line(fmt::format("/proc/sys/net/ipv4/{}", name)).value_or(""));  // "4096 131072 6291456"
    if (words.size() != 3) continue;
    const std::uint64_t most = leading_number(words[2]).value_or(0);
    seen += fmt::format("{}net.ipv4.{} goes up to {}", seen.empty() ? "" : ", ", name, size_text(most));
    if (most >= kEnough) continue;
    commands.push_back(fmt::format("sysctl -w net.ipv4.{}=\"{} {} 16777216\"", name,
                                   leading_number(words[0]).value_or(4096), leading_number(words[1]).value_or(131072)));
  }
  if (seen.empty()) return not_here("this network namespace does not show them");
  return commands.empty() ? fine(seen) : advice(seen, commands);
}

/// A counter of a protocol in /proc/net/snmp, which has a line of names and one of values for each.
std::optional<std::uint64_t> snmp_counter(const Subject& subject, std::string_view protocol, std::string_view counter) {
  std::vector<std::string> names;
  std::optional<std::uint64_t> value;
  subject.files.each_line("/proc/net/snmp", [&](std::string_view line) {
    const std::vector<std::string> words = split_blanks(line);
    if (words.empty() || words[0] != protocol) return true;
    if (names.empty()) {
      names = words;
      return true;
    }
    for (std::size_t i = 1; i < std::min(names.size(), words.size()); ++i) {
      if (names[i] == counter) value = leading_number(words[i]);
    }
    return false;
  });
  return value;
}

Finding udp_drops(const Subject& subject) {
  const auto drops = snmp_counter(subject, "Udp:", "RcvbufErrors");
  if (!drops) return not_here("/proc/net/snmp does not count them");
  if (*drops == 0) return fine("none since boot");
  return advice(fmt::format("{} since boot", *drops),
                {"sysctl -w net.core.rmem_max=16777216", "# watch whether it grows: nstat -az UdpRcvbufErrors"});
}

constexpr Check kChecks[] = {
    {"socket-buffers", "`net.core.rmem_max`, `net.core.wmem_max`",
     "With many senders to one receiver softroce loses fewer packets in larger buffers.", socket_buffers},
    {"tcp-buffers", "the third number of `net.ipv4.tcp_rmem` and `net.ipv4.tcp_wmem`",
     "A TCP connection carries at most so much in a round trip.", tcp_buffers},
    {"udp-drops", "`RcvbufErrors` of UDP in `/proc/net/snmp`",
     "Datagrams that found no room; softroce sends them again, which costs time.", udp_drops},
};

}  // namespace

std::span<const Check> network_checks() { return kChecks; }

}  // namespace fairlead::doctor
