#include "datapath/control_channel.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace fairlead::datapath {
namespace {

constexpr std::string_view kPreamble = "FAIRLEAD";
constexpr std::size_t kMaxQueued = std::size_t{16} << 20;

std::uint32_t load_u32(const char* bytes) {
  unsigned char b[4];
  std::memcpy(b, bytes, 4);
  return static_cast<std::uint32_t>(b[0]) | static_cast<std::uint32_t>(b[1]) << 8 |
         static_cast<std::uint32_t>(b[2]) << 16 | static_cast<std::uint32_t>(b[3]) << 24;
}

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text.push_back(c >= 0x20 && c < 0x7f ? c : '.');
  return text;
}

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

}  // namespace

Result<bool> FrameReader::next(control::Frame& frame) {
  if (!preamble_seen_) {
    const std::size_t have = std::min(buffer_.size(), kPreamble.size());
    if (std::string_view(buffer_).substr(0, have) != kPreamble.substr(0, have)) {
      return Status(Code::kVersionMismatch, fmt::format("not a Fairlead peer: it began with \"{}\", not \"{}\"",
                                                        printable(std::string_view(buffer_).substr(0, 16)), kPreamble));
    }
    if (have < kPreamble.size()) return false;
    preamble_seen_ = true;
    consumed_ = kPreamble.size();
  }
  if (buffer_.size() - consumed_ < 4) return false;
  const std::uint32_t length = load_u32(buffer_.data() + consumed_);
  if (length > kMaxFrame) {
    return Status(Code::kDataLoss, fmt::format("control frame of {} bytes; the limit is {}", length, kMaxFrame));
  }
  if (buffer_.size() - consumed_ - 4 < length) {
    buffer_.erase(0, std::exchange(consumed_, 0));
    return false;
  }
  const bool parsed = frame.ParseFromArray(buffer_.data() + consumed_ + 4, static_cast<int>(length));
  consumed_ += 4 + length;
  if (!parsed) return Status(Code::kDataLoss, fmt::format("malformed control frame of {} bytes", length));
  return true;
}

ControlChannel::ControlChannel(UniqueFd fd, bool connecting)
    : fd_(std::move(fd)), connecting_(connecting), out_(kPreamble) {
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

void ControlChannel::send(const control::Frame& frame) {
  const auto length = static_cast<std::uint32_t>(frame.ByteSizeLong());
  const char header[4] = {static_cast<char>(length), static_cast<char>(length >> 8), static_cast<char>(length >> 16),
                          static_cast<char>(length >> 24)};
  out_.append(header, sizeof header);
  frame.AppendToString(&out_);
  // The owner sees a failure when it flushes or reads next.
  if (!connecting_) static_cast<void>(flush());
}

Status ControlChannel::flush() {
  if (connecting_) {
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error != 0) return Status(Code::kUnavailable, std::strerror(error));
    if (name_of(fd_.get(), true).host.empty()) return {};  // not there yet
    connecting_ = false;
  }
  while (sent_ < out_.size()) {
    const ssize_t n = ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (out_.size() - sent_ > kMaxQueued) {
        return Status(Code::kResourceExhausted,
                      fmt::format("the peer does not read its control connection: {} bytes queued, the limit is {}",
                                  out_.size() - sent_, kMaxQueued));
      }
      return {};
    }
    if (n < 0) return Status(Code::kPeerDied, std::strerror(errno));
    sent_ += static_cast<std::size_t>(n);
  }
  out_.clear();
  sent_ = 0;
  return {};
}

Status ControlChannel::read(const std::function<bool(const control::Frame&)>& handle) {
  control::Frame frame;
  char bytes[16384];
  while (true) {
    const ssize_t n = ::recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (n < 0) return Status(Code::kPeerDied, std::strerror(errno));
    if (n == 0) return Status(Code::kPeerDied, "it closed its control connection without a goodbye");
    reader_.append(bytes, static_cast<std::size_t>(n));
    while (true) {
      Result<bool> got = reader_.next(frame);
      if (!got) return got.error();
      if (!*got) break;
      if (!handle(frame)) return {};
    }
  }
}

std::string ControlChannel::peer_host() const { return name_of(fd_.get(), true).host; }
std::string ControlChannel::local_host() const { return name_of(fd_.get(), false).host; }
std::string ControlChannel::peer_address() const { return socket_address(fd_.get(), true); }

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
  if (!fd) return Status(Code::kResourceExhausted, fmt::format("cannot create a socket: {}", std::strerror(errno)));
  if (::connect(fd.get(), a.ai_addr, a.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return Status(Code::kUnavailable,
                  fmt::format("cannot connect to {} port {}: {}", numeric_host, port, std::strerror(errno)));
  }
  return fd;
}

Result<UniqueFd> start_listen(const std::string& host, std::uint16_t port) {
  // All addresses: one dual-stack socket, or IPv4 alone where the host has no IPv6.
  std::string bind_host = host;
  UniqueFd fd;
  if (host.empty()) {
    fd.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    bind_host = fd ? "::" : "0.0.0.0";
  }
  Result<AddressList> list = numeric_addresses(bind_host, port, AI_PASSIVE);
  if (!list) return list.error();
  const addrinfo& a = **list;
  if (!fd) fd.reset(::socket(a.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Status(Code::kResourceExhausted, fmt::format("cannot create a socket: {}", std::strerror(errno)));
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
