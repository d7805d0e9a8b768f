#include "cli/resolve.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <memory>

namespace fairlead::cli {

Result<std::string> numeric_address(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return Status(Code::kNotFound, fmt::format("no such host '{}': {}", host, ::gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  char text[NI_MAXHOST] = "";
  ::getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return std::string(text);
}

}  // namespace fairlead::cli
