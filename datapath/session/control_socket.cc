#include "datapath/session/control_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/private_fd.h"
#include "base/system/no_descriptor.h"

namespace fairlead::datapath {
namespace {

struct SocketName {
  std::string host;
  std::string port;
};

SocketName name_of(int fd, bool peer_end) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* sa = reinterpret_cast<sockaddr*>(&address);
  const int rc = peer_end ? ::getpeername(fd, sa, &size) : ::getsockname(fd, sa, &size);
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  if (rc != 0 || ::getnameinfo(sa, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  // An IPv4 client of a dual-stack socket is an IPv4 host to everyone else.
  std::string text(host);
  if (text.starts_with("::ffff:") && text.find('.') != std::string::npos) text.erase(0, 7);
  return {std::move(text), port};
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> numeric_addresses(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST | flags;
  addrinfo* list = nullptr;
  const int rc = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (rc != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is not a numeric IPv4 or IPv6 address: {}", host, ::gai_strerror(rc)));
  }
  return AddressList(list, &::freeaddrinfo);
}

/// A missing family of addresses is no more than nobody at one of them: the peer may have others.
Status no_socket(int error) {
  if (is_descriptor_limit(error)) return no_descriptor("a control connection", error);
  return {error == EAFNOSUPPORT ? Code::kNotFound : Code::kUnavailable,
          fmt::format("cannot make a socket: {}", std::strerror(error))};
}

Status cannot_connect(int error) {
  return {error == ECONNREFUSED ? Code::kNotFound : Code::kUnavailable, std::strerror(error)};
}

class SocketStream final : public ControlStream {
 public:
  explicit SocketStream(UniqueFd fd) : fd_(std::move(fd)) {
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }

  IoResult send(std::span<iovec> pieces) noexcept override {
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    return moved([&] { return ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
  }
  IoResult receive(std::span<iovec> pieces) noexcept override {
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    return moved([&] { return ::recvmsg(fd_.get(), &message, MSG_DONTWAIT); });
  }
  Result<bool> connected() override {
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return cannot_connect(error);
    return !peer_host().empty();
  }
  std::string peer_host() const override { return name_of(fd_.get(), true).host; }
  std::string local_host() const override { return name_of(fd_.get(), false).host; }
  std::string peer_address() const override { return socket_address(fd_.get(), true); }
  int fd() const noexcept override { return fd_.get(); }

 private:
  template <typename Call>
  static IoResult moved(Call&& call) noexcept {
    while (true) {
      const ssize_t n = call();
      if (n >= 0) return {static_cast<std::size_t>(n), 0};
      if (errno != EINTR) return {0, errno};
    }
  }

  PrivateFd fd_;
};

}  // namespace

std::unique_ptr<ControlStream> make_control_stream(UniqueFd fd) {
  return std::make_unique<SocketStream>(std::move(fd));
}

std::string socket_address(int fd, bool peer_end) {
  const SocketName name = name_of(fd, peer_end);
  if (name.host.empty()) return {};
  return name.host.find(':') == std::string::npos ? fmt::format("{}:{}", name.host, name.port)
                                                  : fmt::format("[{}]:{}", name.host, name.port);
}

Result<UniqueFd> start_connect(const std::string& numeric_host, std::uint16_t port) {
  Result<AddressList> list = numeric_addresses(numeric_host, port, 0);
  if (!list) return list.error();
  const addrinfo& a = **list;
  UniqueFd fd(::socket(a.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return no_socket(errno);
  if (::connect(fd.get(), a.ai_addr, a.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return cannot_connect(errno);
  }
  return fd;
}

Result<UniqueFd> start_listen(const std::string& host, std::uint16_t port) {
  // All addresses: one dual-stack socket, or IPv4 alone where the host has no IPv6.
  std::string bind_host = host;
  UniqueFd fd;
  if (host.empty()) {
    fd.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd && errno != EAFNOSUPPORT) return no_socket(errno);
    bind_host = fd ? "::" : "0.0.0.0";
  }
  Result<AddressList> list = numeric_addresses(bind_host, port, AI_PASSIVE);
  if (!list) return list.error();
  const addrinfo& a = **list;
  if (!fd) fd.reset(::socket(a.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return no_socket(errno);
  const int on = 1, off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (host.empty() && a.ai_family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd.get(), a.ai_addr, a.ai_addrlen) != 0 || ::listen(fd.get(), 128) != 0) {
    const int error = errno;
    const char* remedy = error == EADDRINUSE      ? "; choose another port, or 0 for any free one"
                         : error == EADDRNOTAVAIL ? "; it is not an address of this host (see `ip address`)"
                         : error == EACCES        ? "; ports below 1024 need privileges, choose a higher one"
                                                  : "";
    return Status(error == EADDRINUSE ? Code::kAlreadyExists : Code::kInvalidArgument,
                  fmt::format("cannot listen on {} port {}: {}{}", host.empty() ? "all addresses" : host, port,
                              std::strerror(error), remedy));
  }
  return fd;
}

}  // namespace fairlead::datapath
