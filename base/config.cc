#include "fairlead/config.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/placement_wish.h"
#include "base/words.h"

namespace fairlead::inline v0 {
namespace {

template <typename T>
Status in_range(std::string_view key, T value, T low, T high, std::string_view unit = "") {
  if (value >= low && value <= high) return {};
  return {Code::kInvalidArgument,
          fmt::format("{} is {}; legal: {} to {}{}{}", key, value, low, high, unit.empty() ? "" : " ", unit)};
}

Status one_of(std::string_view key, std::string_view value, std::string_view legal) {
  return {Code::kInvalidArgument, fmt::format("{} is '{}'; legal: {}", key, value, legal)};
}

constexpr std::string_view kOrders =
    "auto, verbs, verbs:DEVICE, shm, tcp; several of them but auto with commas between";

Status check_transport(std::string_view transport) {
  constexpr std::string_view kDevicePrefix = "verbs:";
  if (transport == "auto" || transport == "verbs" || transport == "shm" || transport == "tcp") return {};
  if (transport.starts_with(kDevicePrefix) && transport.size() > kDevicePrefix.size()) return {};
  return one_of("transport", transport, kOrders);
}

Status check_policy(std::string_view name, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const bool legal = word == "hardware" || word == "software" || (word != "auto" && check_transport(word).ok());
    if (!legal) return one_of(name, word, "shm, tcp, verbs, verbs:DEVICE, hardware, software");
  }
  return {};
}

Status check_mtu(std::uint32_t mtu) {
  constexpr std::array kLegal = {0u, 256u, 512u, 1024u, 2048u, 4096u};
  if (std::find(kLegal.begin(), kLegal.end(), mtu) != kLegal.end()) return {};
  return one_of("verbs.mtu", std::to_string(mtu), "0 (the largest that both ends have), 256, 512, 1024, 2048, 4096");
}

Status check_soft_address(const std::string& addresses) {
  std::array<unsigned char, sizeof(in6_addr)> binary{};
  for (const std::string& address : words_of(addresses)) {
    if (inet_pton(AF_INET, address.c_str(), binary.data()) == 1 ||
        inet_pton(AF_INET6, address.c_str(), binary.data()) == 1) {
      continue;
    }
    return one_of("verbs.soft_address", address, "empty, or numeric IPv4 or IPv6 addresses with commas between");
  }
  return {};
}

Status check_verbs(const VerbsConfig& c) {
  if (c.packet_io.empty()) return one_of("verbs.packet_io", "", "udp[,OPTION=VALUE...]");
  if (c.profile != "full" && c.profile != "pvrdma") return one_of("verbs.profile", c.profile, "full, pvrdma");
  if (auto s = check_soft_address(c.soft_address); !s.ok()) return s;
  if (auto s = check_mtu(c.mtu); !s.ok()) return s;
  if (auto s = in_range("verbs.gid_index", c.gid_index, -1, 255); !s.ok()) return s;
  if (auto s = in_range("verbs.port", c.port, 1, 255); !s.ok()) return s;
  if (auto s = in_range<int>("verbs.hop_limit", c.hop_limit, 1, 255); !s.ok()) return s;
  if (auto s = in_range<int>("verbs.ack_timeout", c.ack_timeout, 0, 31); !s.ok()) return s;
  if (auto s = in_range<int>("verbs.retry_count", c.retry_count, 0, 7); !s.ok()) return s;
  if (auto s = in_range<int>("verbs.rnr_retry", c.rnr_retry, 0, 7); !s.ok()) return s;
  if (auto s = in_range<int>("verbs.min_rnr_timer", c.min_rnr_timer, 0, 31); !s.ok()) return s;
  if (auto s = in_range("verbs.send_depth", c.send_depth, 2u, 32768u); !s.ok()) return s;
  if (auto s = in_range("verbs.receive_depth", c.receive_depth, 2u, 32768u); !s.ok()) return s;
  return in_range("verbs.message_bytes", c.message_bytes, 256u, 1u << 20, "bytes");
}

/// As getaddrinfo() reads them: an IPv6 address may name its interface.
bool is_numeric_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return false;
  ::freeaddrinfo(list);
  return true;
}

Status check_tcp(const TcpConfig& c) {
  if (!c.host.empty() && !is_numeric_host(c.host)) {
    return one_of("tcp.host", c.host, "empty, or a numeric IPv4 or IPv6 address of this host");
  }
  if (auto s = in_range("tcp.send_depth", c.send_depth, 1u, 65536u); !s.ok()) return s;
  if (auto s = in_range("tcp.congestion_control", c.congestion_control.size(), std::size_t{0}, std::size_t{15},
                        "bytes long");
      !s.ok()) {
    return s;
  }
  if (c.socket_buffer == 0) return {};
  return in_range("tcp.socket_buffer", c.socket_buffer, 4096u, 1u << 30, "bytes (or 0: left to the kernel)");
}

}  // namespace

Status EngineConfig::validate() const {
  using Milliseconds = std::chrono::milliseconds::rep;
  constexpr std::size_t kKiB = 1024, kMiB = kKiB * kKiB, kGiB = kKiB * kMiB;
  constexpr Milliseconds kDay = 24 * 3600 * 1000;
  if (auto s = in_range("name", name.size(), std::size_t{0}, std::size_t{255}, "bytes long"); !s.ok()) return s;
  if (!listen.empty()) {
    if (auto parsed = parse_host_port(listen); !parsed) return parsed.error();
  }
  if (!principal.empty() && keys_file.empty()) {
    return {Code::kInvalidArgument,
            fmt::format("principal is '{}', and there is no keys_file that has its key; name one", principal)};
  }
  if (allow_anonymous && keys_file.empty()) {
    return {Code::kInvalidArgument, "allow_anonymous is set without a keys_file: everybody is anonymous then"};
  }
  for (const std::string& word : words_of(transport)) {
    if (auto s = word == transport || word != "auto" ? check_transport(word) : one_of("transport", transport, kOrders);
        !s.ok()) {
      return s;
    }
  }
  if (transport.empty()) return one_of("transport", transport, kOrders);
  if (auto s = check_policy("require", require); !s.ok()) return s;
  if (auto s = check_policy("forbid", forbid); !s.ok()) return s;
  if (choice > PathChoice::kMeasured) {
    return one_of("choice", std::to_string(static_cast<int>(choice)), "kRanked, kMeasured");
  }
  if (progress > Progress::kApplication) {
    return one_of("progress", std::to_string(static_cast<int>(progress)), "kAuto, kThread, kApplication");
  }
  if (auto s = in_range<std::chrono::microseconds::rep>("spin", spin.count(), 0, 1'000'000, "us"); !s.ok()) return s;
  if (auto s = in_range<Milliseconds>("connect_timeout", connect_timeout.count(), 1, kDay, "ms"); !s.ok()) return s;
  if (auto s = in_range<Milliseconds>("path_timeout", path_timeout.count(), 1, kDay, "ms"); !s.ok()) return s;
  if (auto s = in_range<Milliseconds>("peer_timeout", peer_timeout.count(), 1, kDay, "ms"); !s.ok()) return s;
  if (auto s = in_range("pool_arena_bytes", pool_arena_bytes, 64 * kKiB, 1024 * kGiB, "bytes"); !s.ok()) return s;
  if (pool_max_bytes != 0 && pool_max_bytes < pool_arena_bytes) {
    return {Code::kInvalidArgument, fmt::format("pool_max_bytes is {} and must be 0 or at least pool_arena_bytes, {}",
                                                pool_max_bytes, pool_arena_bytes)};
  }
  if (auto s = in_range<Milliseconds>("pool_idle", pool_idle.count(), 0, kDay, "ms"); !s.ok()) return s;
  if (auto s = in_range("lanes", lanes, std::size_t{1}, std::size_t{64}); !s.ok()) return s;
  if (auto s = in_range("cuda_staging_bytes", cuda_staging_bytes, 256 * kKiB * lanes, 64 * kGiB, "bytes"); !s.ok()) {
    return s;
  }
  if (auto s = in_range("max_message_bytes", max_message_bytes, std::size_t{1}, kGiB, "bytes"); !s.ok()) return s;
  if (auto s = in_range("max_pending_events", max_pending_events, std::size_t{1}, kMiB); !s.ok()) return s;
  if (auto s = in_range("max_pending_bytes", max_pending_bytes, std::size_t{1}, 1024 * kGiB, "bytes"); !s.ok())
    return s;
  if (auto s = in_range("max_posted", max_posted, std::size_t{1}, 1024 * kMiB); !s.ok()) return s;
  if (auto s = in_range("max_posted_bytes", max_posted_bytes, std::size_t{1}, 1024 * kGiB, "bytes"); !s.ok()) return s;
  if (auto s = in_range("max_sessions", max_sessions, std::size_t{1}, kMiB); !s.ok()) return s;
  if (auto s = in_range("max_principal_sessions", max_principal_sessions, std::size_t{0}, kMiB); !s.ok()) return s;
  if (auto s = in_range("max_handshakes", max_handshakes, std::size_t{1}, kMiB); !s.ok()) return s;
  if (auto s = in_range("max_cut_sessions", max_cut_sessions, std::size_t{0}, kMiB); !s.ok()) return s;
  if (auto s = in_range("max_principal_pending_events", max_principal_pending_events, std::size_t{0}, 1024 * kMiB);
      !s.ok()) {
    return s;
  }
  if (auto s =
          in_range("max_principal_pending_bytes", max_principal_pending_bytes, std::size_t{0}, 1024 * kGiB, "bytes");
      !s.ok()) {
    return s;
  }
  if (auto s = in_range("chunk_bytes", chunk_bytes, 4 * kKiB, kGiB, "bytes"); !s.ok()) return s;
  if (auto s = in_range("paths", paths, std::size_t{1}, std::size_t{8}); !s.ok()) return s;
  if (auto s = parse_placement(placement); !s) return s.error();
  if (auto s = check_verbs(verbs); !s.ok()) return s;
  return check_tcp(tcp);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto bad = [&](std::string_view why) -> Result<HostPort> {
    return {Code::kInvalidArgument,
            fmt::format("'{}' is not an address: {}; write HOST:PORT, [IPV6]:PORT or :PORT", text, why)};
  };
  if (text.find("://") != std::string_view::npos) return bad("it is a URL");
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.starts_with('[')) {
    if (!host.ends_with(']') || host.size() < 3) return bad("the brackets do not hold an IPv6 address");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad("an IPv6 address needs brackets");
  }
  if (host.find_first_of("[] \t\r\n") != std::string_view::npos || host.find('\0') != std::string_view::npos) {
    return bad("the host has an illegal character");
  }
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return bad("the port is not a number from 0 to 65535");
  }
  return HostPort{std::string(host), port};
}

Result<std::vector<HostPort>> parse_places(std::string_view text) {
  constexpr std::size_t kMost = 8;
  std::vector<HostPort> places;
  for (std::string_view rest = text; places.size() <= kMost;) {
    const std::size_t comma = rest.find(',');
    const Result<HostPort> place = parse_host_port(rest.substr(0, comma));
    if (!place) return place.error();
    if (place->host.empty() || place->port == 0) {
      return Status(Code::kInvalidArgument,
                    fmt::format("'{}' names no host and port to connect to", rest.substr(0, comma)));
    }
    places.push_back(*place);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (places.size() > kMost) {
    return Status(Code::kInvalidArgument, fmt::format("'{}' names more than {} places of a peer", text, kMost));
  }
  return places;
}

}  // namespace fairlead::inline v0
