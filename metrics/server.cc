#include "metrics/server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "base/private_fd.h"
#include "base/system/fork_mark.h"
#include "base/system/no_thread.h"
#include "base/system/quiet_thread.h"
#include "fairlead/config.h"
#include "metrics/port_range.h"
#include "metrics/text.h"

namespace fairlead::metrics {
namespace {

using std::chrono::steady_clock;

// What a request costs at most. Who is slower than this, or one too many, is hung up on: nobody waits for another.
constexpr std::size_t kMaxConnections = 64;
constexpr std::size_t kMaxRequest = 8192;  // bytes
constexpr std::chrono::seconds kPatience{5};

std::string answer(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", status,
                     type, body.size(), body);
}

struct Content {
  MetricSource source;
  std::vector<Page> pages;
};

// `line` is the request's first: "GET /metrics HTTP/1.1".
std::string answer_to(std::string_view line, const Content& content) {
  constexpr std::string_view kText = "text/plain; charset=utf-8";
  const std::string_view method = line.substr(0, line.find(' '));
  std::string_view path = line.substr(std::min(line.size(), method.size() + 1));
  path = path.substr(0, path.find_first_of(" ?"));
  if (method != "GET") return answer("405 Method Not Allowed\r\nAllow: GET", kText, "GET only\n");
  if (path == "/healthz") return answer("200 OK", kText, "ok\n");
  if (path == "/metrics")
    return answer("200 OK", "text/plain; version=0.0.4; charset=utf-8", text_of(content.source()));
  std::string known = "there are /metrics, /healthz";
  for (const Page& page : content.pages) {
    if (path == page.path) {
      const PageText text = page.make();
      return answer(text.ok ? "200 OK" : "503 Service Unavailable", text.type, text.body);
    }
    known.append(", ").append(page.path);
  }
  return answer("404 Not Found", kText, known + "\n");
}

struct Connection {
  PrivateFd fd;
  steady_clock::time_point until = steady_clock::now() + kPatience;
  std::string request, reply;  // reply: empty while the request is not complete
  std::size_t sent = 0;        // of it

  // False when it is over.
  bool go_on(const Content& content) {
    while (reply.empty()) {
      char buffer[2048];
      const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      if (got == 0) return false;
      request.append(buffer, static_cast<std::size_t>(got));
      if (request.find('\0') != std::string::npos) return false;  // no HTTP: an engine that was given the wrong port
      if (request.find("\r\n\r\n") != std::string::npos) {
        reply = answer_to(std::string_view(request).substr(0, request.find("\r\n")), content);
      } else if (request.size() > kMaxRequest) {
        reply = answer("431 Request Header Fields Too Large", "text/plain", "");
      }
    }
    while (sent < reply.size()) {
      const ssize_t more = ::send(fd.get(), reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      sent += static_cast<std::size_t>(more);
    }
    return false;
  }
};

// All addresses: one socket for both families, or IPv4 alone where the host has no IPv6. Gives an errno.
int bind_to(const HostPort& where, PrivateFd& listener) {
  UniqueFd fd;
  std::string host = where.host;
  if (host.empty()) {
    fd.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    host = fd ? "::" : "0.0.0.0";
  }
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(where.port).c_str(), &hints, &found) != 0) return EADDRNOTAVAIL;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  if (!fd) fd.reset(::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  const int on = 1, off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (where.host.empty() && list->ai_family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0 || ::listen(fd.get(), 128) != 0) return errno;
  listener = PrivateFd(std::move(fd));
  return 0;
}

std::string name_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

struct MetricsServer::Impl {
  PrivateFd listener, stop{UniqueFd(::eventfd(0, EFD_CLOEXEC))};
  const ForkMark fork_mark;
  Content content;
  std::vector<Connection> connections;  // oldest first
  std::thread thread;

  void run() {
    std::vector<pollfd> fds;
    while (true) {
      fds.assign({{stop.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}});
      for (const Connection& c : connections) {
        fds.push_back({c.fd.get(), static_cast<short>(c.reply.empty() ? POLLIN : POLLOUT), 0});
      }
      ::poll(fds.data(), fds.size(), wait_ms());
      if (fds[0].revents != 0) return;
      for (std::size_t i = connections.size(); i-- > 0;) {
        const bool over = fds[2 + i].revents != 0 && !connections[i].go_on(content);
        if (over || connections[i].until <= steady_clock::now()) {
          connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
      if (fds[1].revents != 0) accept_all();
    }
  }

  [[nodiscard]] int wait_ms() const {
    if (connections.empty()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(connections.front().until - steady_clock::now());
    return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
  }

  void accept_all() {
    for (std::size_t i = 0; i < kMaxConnections; ++i) {
      UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) {
        // Out of descriptors: the listener stays readable, so wait a little rather than spin.
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        return;
      }
      if (connections.size() == kMaxConnections) connections.erase(connections.begin());
      connections.push_back({.fd = PrivateFd(std::move(fd)), .request = {}, .reply = {}});
      if (!connections.back().go_on(content)) connections.pop_back();  // most have sent their request already
    }
  }
};

MetricsServer::MetricsServer() : impl_(std::make_unique<Impl>()) {}

MetricsServer::~MetricsServer() {
  if (!impl_->fork_mark.is_mine()) {
    // The parent's thread is not here, nor is what it was in the middle of: it all stays as it is.
    static_cast<void>(impl_.release());
    return;
  }
  if (!impl_->thread.joinable()) return;
  ::eventfd_write(impl_->stop.get(), 1);
  impl_->thread.join();
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(std::string_view host_port, MetricSource source,
                                                            std::vector<Page> pages) {
  const Result<PortRange> where = parse_port_range(host_port);
  if (!where) return where.error();
  std::unique_ptr<MetricsServer> server(new MetricsServer);
  Impl& impl = *server->impl_;
  int error = EADDRINUSE;
  for (std::uint32_t port = where->first; port <= where->last && error == EADDRINUSE; ++port) {
    impl.listener.reset();
    error = bind_to({where->host, static_cast<std::uint16_t>(port)}, impl.listener);
  }
  if (error != 0) {
    const bool elsewhere = error == EADDRNOTAVAIL;
    return Status(elsewhere ? Code::kNotFound : Code::kAlreadyExists,
                  fmt::format("cannot serve metrics on {}: {}; choose {}", host_port, std::strerror(error),
                              elsewhere         ? "an address of this host"
                              : error == EACCES ? "a port above 1023, or port 0 for a free one"
                                                : "another port, or port 0 for a free one"));
  }
  if (!impl.stop) return Status(Code::kResourceExhausted, "no file descriptors left; raise `ulimit -n`");
  server->address_ = name_of(impl.listener.get());
  impl.content = {std::move(source), std::move(pages)};
  try {
    impl.thread = quiet_thread("fairlead-metrics", [&impl] { impl.run(); });
  } catch (const std::system_error& refused) {
    return no_thread("metrics", refused);
  }
  return server;
}

}  // namespace fairlead::metrics
