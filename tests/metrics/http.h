// Requests of tests.
#pragma once

#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>

#include <string>

#include "base/unique_fd.h"
#include "fairlead/config.h"

namespace fairlead::metrics {

// A connection; `address` is numeric, and "[::]" or "0.0.0.0" is reached through `host` if one is given.
inline UniqueFd connect_to(const std::string& address, const std::string& host = "") {
  const Result<HostPort> where = parse_host_port(address);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* to = nullptr;
  const std::string name = host.empty() ? where->host : host;
  EXPECT_EQ(::getaddrinfo(name.c_str(), std::to_string(where->port).c_str(), &hints, &to), 0) << name;
  UniqueFd fd(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), to->ai_addr, to->ai_addrlen) != 0) fd.reset();
  ::freeaddrinfo(to);
  return fd;
}

inline bool say(const UniqueFd& fd, const std::string& text) {
  return ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

// The whole answer to one HTTP/1.0 request.
inline std::string get(const std::string& address, const std::string& path, const std::string& host = "") {
  const UniqueFd fd = connect_to(address, host);
  if (!fd) return "no connection";
  const timeval patience{20, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (!say(fd, "GET " + path + " HTTP/1.0\r\nHost: test\r\n\r\n")) return "";
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(got));
  return answer;
}

}  // namespace fairlead::metrics
