#include "tcp_fallback/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>

#include "base/guarded.h"
#include "base/system/no_descriptor.h"

namespace fairlead::tcp_fallback {
namespace {

// An idle peer is asked after a third of the silence that it may keep, then four times in the rest of it.
constexpr int kKeepaliveProbes = 4;
constexpr int kBacklog = 128;
constexpr std::string_view kUnpaced = "reno";

void set_option(int fd, int level, int name, int value) noexcept {
  // Best effort: a kernel that lacks an option still moves bytes.
  static_cast<void>(::setsockopt(fd, level, name, &value, sizeof value));
}

// Before connect() and listen(), because the window scale is agreed then.
void set_buffers(int fd, const TcpConfig& config) noexcept {
  if (config.socket_buffer == 0) return;
  set_option(fd, SOL_SOCKET, SO_SNDBUF, static_cast<int>(config.socket_buffer));
  set_option(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(config.socket_buffer));
}

std::string reason(int error) { return std::generic_category().message(error); }

Status socket_error(int error) {
  if (is_descriptor_limit(error)) return no_descriptor("a socket", error);
  return {Code::kUnavailable, fmt::format("cannot make a socket: {}", reason(error))};
}

Status bind_error(const TcpConfig& config, int error) {
  const std::uint16_t port = config.port;
  switch (error) {
    case EADDRINUSE:
      return {Code::kAlreadyExists,
              fmt::format("tcp port {} is in use; choose another tcp.port (--tcp-port), or 0 for any", port)};
    case EACCES:
      return {Code::kPermissionDenied,
              fmt::format("tcp port {} needs privileges; choose one from 1024 on, or 0 for any", port)};
    case EADDRNOTAVAIL:
      return {Code::kNotFound, fmt::format("cannot listen for data on {}, which is no address of this host; choose "
                                           "another tcp.host, or listen at one that is",
                                           config.host)};
    default:
      return {Code::kUnavailable, fmt::format("cannot listen for data on {}:{}: {}", config.host, port, reason(error))};
  }
}

Result<UniqueFd> listen_at(const SocketAddress& address, const TcpConfig& config) {
  const int family = address.storage.ss_family;
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return socket_error(errno);
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  set_buffers(fd.get(), config);
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return bind_error(config, errno);
  }
  return fd;
}

in6_addr mapped(const SocketAddress& address) noexcept {
  if (address.storage.ss_family == AF_INET6) return reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
  in6_addr to{};
  to.s6_addr[10] = to.s6_addr[11] = 0xff;
  std::memcpy(to.s6_addr + 12, &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr, sizeof(in_addr));
  return to;
}

bool is_within_host(const SocketAddress& self, const SocketAddress& peer) noexcept {
  const in6_addr here = mapped(self), there = mapped(peer);
  return IN6_ARE_ADDR_EQUAL(&here, &there) || IN6_IS_ADDR_LOOPBACK(&there) ||
         (IN6_IS_ADDR_V4MAPPED(&there) && there.s6_addr[12] == 127);
}

bool set_congestion_control(int fd, std::string_view name) noexcept {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

}  // namespace

std::uint16_t SocketAddress::port() const noexcept {
  // sin_port and sin6_port lie at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

std::string SocketAddress::to_string() const {
  std::array<char, NI_MAXHOST> host{};
  if (length == 0 || ::getnameinfo(get(), length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "?";
  std::string_view text(host.data());
  constexpr std::string_view kMapped = "::ffff:";
  if (text.starts_with(kMapped) && text.find('.') != std::string_view::npos) text.remove_prefix(kMapped.size());
  return text.find(':') == std::string_view::npos ? fmt::format("{}:{}", text, port())
                                                  : fmt::format("[{}]:{}", text, port());
}

Result<SocketAddress> parse_address(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) {
    return {Code::kInvalidArgument, fmt::format("'{}' is not a numeric IPv4 or IPv6 address", host)};
  }
  SocketAddress address;
  std::memcpy(&address.storage, list->ai_addr, list->ai_addrlen);
  address.length = list->ai_addrlen;
  ::freeaddrinfo(list);
  return address;
}

SocketAddress local_address(int fd) noexcept {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) address.length = 0;
  return address;
}

SocketAddress peer_address(int fd) noexcept {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) address.length = 0;
  return address;
}

Result<UniqueFd> listen_on(const TcpConfig& config) {
  const auto listen = [&](const std::string& host) -> Result<UniqueFd> {
    const auto address = parse_address(host, config.port);
    return address ? listen_at(*address, config) : address.error();
  };
  if (!config.host.empty()) return listen(config.host);
  auto both = listen("::");
  if (both || both.error().code() != Code::kUnavailable) return both;
  return listen("0.0.0.0");  // no IPv6 here
}

std::string congestion_control(int fd) {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX, with its end
  socklen_t size = name.size();
  return ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) == 0 ? name.data() : "";
}

Status check_congestion_control(const std::string& name) {
  if (name.empty()) return {};
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return socket_error(errno);
  if (set_congestion_control(fd.get(), name)) return {};
  if (errno == EPERM) {
    return {Code::kPermissionDenied, fmt::format("tcp.congestion_control: '{}' is root's to take; choose one of "
                                                 "net.ipv4.tcp_allowed_congestion_control",
                                                 name)};
  }
  return {Code::kNotFound, fmt::format("tcp.congestion_control: this system has no '{}' ({}); choose one of "
                                       "net.ipv4.tcp_available_congestion_control",
                                       name, reason(errno))};
}

Result<UniqueFd> dial(const SocketAddress& address, const TcpConfig& config, std::chrono::milliseconds silence) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return socket_error(errno);
  set_buffers(fd.get(), config);
  if (::connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    return {Code::kUnavailable, fmt::format("cannot connect to {}: {}", address.to_string(), reason(errno))};
  }
  set_data_options(fd.get(), address, config, silence);
  return fd;
}

void set_data_options(int fd, const SocketAddress& peer, const TcpConfig& config,
                      std::chrono::milliseconds silence) noexcept {
  static constexpr std::int64_t kMost = 32'767;  // seconds
  const auto seconds = [](std::chrono::milliseconds time) {
    return static_cast<int>(std::clamp<std::int64_t>(std::chrono::ceil<std::chrono::seconds>(time).count(), 1, kMost));
  };
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // What the system has for its networks may pace (BBR): a timer before each packet, for the sake of a queue on the
  // way. Within a host there is no such queue. Every kernel has "reno", and lets anybody take it.
  if (!config.congestion_control.empty()) {
    set_congestion_control(fd, config.congestion_control);
  } else if (is_within_host(local_address(fd), peer)) {
    set_congestion_control(fd, kUnpaced);
  }
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds(silence / 3));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds(silence / (kKeepaliveProbes + 2)));
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
             static_cast<int>(std::clamp<std::int64_t>(silence.count(), 1, kMost * 1000)));
}

// One piece is the frequent case, and send does less than sendmsg: what is small becomes one.
IoResult SocketStream::send(std::span<iovec> pieces) noexcept {
  constexpr std::size_t kSmall = 256;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size() && bytes <= kSmall; ++i) bytes += pieces[i].iov_len;
  std::array<std::byte, kSmall> together;
  iovec one{together.data(), 0};
  if (pieces.size() > 1 && bytes <= kSmall) {
    for (const iovec& piece : pieces) {
      const auto* from = static_cast<const std::byte*>(piece.iov_base);
      if (!guarded_copy(together.data() + one.iov_len, from, piece.iov_len, from)) return {0, EFAULT};
      one.iov_len += piece.iov_len;
    }
    pieces = {&one, 1};
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  for (;;) {
    const ssize_t sent = pieces.size() == 1 ? ::send(fd_.get(), pieces[0].iov_base, pieces[0].iov_len, kFlags)
                                            : ::sendmsg(fd_.get(), &message, kFlags);
    if (sent >= 0) return {static_cast<std::size_t>(sent), 0};
    if (errno != EINTR) return {0, errno};
  }
}

IoResult SocketStream::receive(std::span<iovec> pieces) noexcept {
  for (;;) {
    // One piece is the frequent case, and recv does less than recvmsg.
    ssize_t got = 0;
    if (pieces.size() == 1) {
      got = ::recv(fd_.get(), pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT);
    } else {
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = pieces.size();
      got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    }
    if (got >= 0) return {static_cast<std::size_t>(got), 0};
    if (errno != EINTR) return {0, errno};
  }
}

}  // namespace fairlead::tcp_fallback
