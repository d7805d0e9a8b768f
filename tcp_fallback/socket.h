// TCP sockets: addresses, options, and a connected socket as a ByteStream. Every descriptor is non-blocking and
// close-on-exec. Threads: values and plain functions.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "base/byte_stream.h"
#include "base/private_fd.h"
#include "fairlead/config.h"
#include "fairlead/status.h"

namespace fairlead::tcp_fallback {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// "127.0.0.1:80" (also for IPv4 mapped into IPv6) or "[::1]:80".
  [[nodiscard]] std::string to_string() const;
};

/// A numeric IPv4 or IPv6 address, with a scope if need be ("fe80::1%eth0"). Errors: kInvalidArgument.
Result<SocketAddress> parse_address(const std::string& host, std::uint16_t port);
[[nodiscard]] SocketAddress local_address(int fd) noexcept;
[[nodiscard]] SocketAddress peer_address(int fd) noexcept;

/// Listens on all interfaces, IPv6 and IPv4 or IPv4 alone. Errors: see open_transport().
Result<UniqueFd> listen_on(const TcpConfig& config);
/// Begins to connect. Errors: kUnavailable, kResourceExhausted.
Result<UniqueFd> dial(const SocketAddress& address, const TcpConfig& config, std::chrono::milliseconds silence);
/// Of a connected, or connecting, socket: no delay for small frames; the congestion control that is asked for, or
/// within a host one that does not pace; a peer that answers nothing for `silence` ends the connection, asked or not.
void set_data_options(int fd, const SocketAddress& peer, const TcpConfig& config,
                      std::chrono::milliseconds silence) noexcept;
/// "cubic"; empty: the kernel does not say.
[[nodiscard]] std::string congestion_control(int fd);
/// Whether sockets of this process may have it. Errors: kNotFound, kPermissionDenied, kResourceExhausted.
[[nodiscard]] Status check_congestion_control(const std::string& name);

/// Owns the socket.
class SocketStream final : public ByteStream {
 public:
  SocketStream() noexcept = default;
  explicit SocketStream(PrivateFd fd) noexcept : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  void close() noexcept { fd_.reset(); }
  void reset(PrivateFd fd) noexcept { fd_ = std::move(fd); }
  IoResult send(std::span<iovec> pieces) noexcept override;
  IoResult receive(std::span<iovec> pieces) noexcept override;

 private:
  PrivateFd fd_;
};

}  // namespace fairlead::tcp_fallback
