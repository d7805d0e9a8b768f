#include "cli/tenants/http_get.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "base/unique_fd.h"
#include "fairlead/config.h"

namespace fairlead::cli {
namespace {

using std::chrono::steady_clock;

Status unreachable(std::string_view where, std::string_view why) {
  return {Code::kUnavailable, fmt::format("cannot reach {}: {}; give the address of --metrics", where, why)};
}

/// False: not in time.
bool await(int fd, short events, steady_clock::time_point by) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(by - steady_clock::now()).count();
    pollfd poll{fd, events, 0};
    if (left <= 0) return false;
    const int ready = ::poll(&poll, 1, static_cast<int>(left));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

/// How long the body is to be, if the head says so.
std::optional<std::size_t> length_of(std::string_view head) {
  constexpr std::string_view kName = "content-length:";
  const auto is_same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  while (!head.empty()) {
    const std::size_t end = std::min(head.find("\r\n"), head.size());
    std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    if (line.size() < kName.size() || !std::ranges::equal(line.substr(0, kName.size()), kName, is_same)) continue;
    line.remove_prefix(std::min(line.find_first_not_of(" \t", kName.size()), line.size()));
    std::size_t length = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), length).ec == std::errc()) return length;
  }
  return std::nullopt;
}

Result<UniqueFd> connect(std::string_view host_port, steady_clock::time_point by) {
  const Result<HostPort> place = parse_host_port(host_port);
  if (!place) return place.error();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int result = ::getaddrinfo(place->host.c_str(), std::to_string(place->port).c_str(), &hints, &found);
  if (result != 0) return unreachable(host_port, ::gai_strerror(result));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, &::freeaddrinfo);
  int error = 0;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    UniqueFd fd(::socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return unreachable(host_port, std::strerror(errno));
    if (::connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0) return fd;
    error = errno;
    if (error != EINPROGRESS) continue;
    if (!await(fd.get(), POLLOUT, by)) {
      error = ETIMEDOUT;
      continue;
    }
    socklen_t bytes = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error == 0) return fd;
  }
  return unreachable(host_port, std::strerror(error));
}

}  // namespace

Result<std::string> http_get(std::string_view host_port, std::string_view path, std::chrono::milliseconds patience,
                             std::size_t most) {
  const steady_clock::time_point by = steady_clock::now() + patience;
  Result<UniqueFd> fd = connect(host_port, by);
  if (!fd) return fd.error();
  const auto late = [&] {
    return Status(Code::kDeadlineExceeded, fmt::format("{} did not answer within {} ms", host_port, patience.count()));
  };
  const std::string request = fmt::format("GET {} HTTP/1.0\r\nHost: {}\r\n\r\n", path, host_port);
  for (std::string_view left = request; !left.empty();) {
    if (!await(fd->get(), POLLOUT, by)) return late();
    const ssize_t sent = ::send(fd->get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return unreachable(host_port, std::strerror(errno));
    if (sent > 0) left.remove_prefix(static_cast<std::size_t>(sent));
  }
  std::string answer;
  for (char buffer[16384];;) {
    if (!await(fd->get(), POLLIN, by)) return late();
    const ssize_t came = ::recv(fd->get(), buffer, sizeof buffer, 0);
    if (came == 0) break;
    if (came < 0 && errno != EAGAIN) return unreachable(host_port, std::strerror(errno));
    if (came > 0) answer.append(buffer, static_cast<std::size_t>(came));
    if (answer.size() > most) {
      return Status(Code::kResourceExhausted, fmt::format("{} sends more than {} bytes", host_port, most));
    }
  }
  const std::size_t head = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.") || head == std::string::npos) {
    return Status(Code::kDataLoss, fmt::format("{} does not speak HTTP; give the address of --metrics", host_port));
  }
  if (answer.size() < 12 || answer.substr(9, 3) != "200") {
    return Status(Code::kUnavailable,
                  fmt::format("{} has no {}: {}", host_port, path,
                              answer.substr(9, std::min<std::size_t>(answer.find("\r\n"), 80) - 9)));
  }
  const std::size_t came = answer.size() - head - 4;
  if (const auto length = length_of(std::string_view(answer).substr(0, head)); length && came < *length) {
    return Status(Code::kDataLoss,
                  fmt::format("{} hung up within {}, after {} of {} bytes; try again", host_port, path, came, *length));
  }
  return answer.substr(head + 4);
}

}  // namespace fairlead::cli
