// The least that a message over a TCP connection takes: two processes that spin on their sockets (TCP_NODELAY,
// MSG_DONTWAIT) and send the same bytes to and fro.
//
//   fairlead-tcp-pingpong --server ADDRESS PORT BYTES     answers one client, then ends
//   fairlead-tcp-pingpong ADDRESS PORT BYTES ROUNDS       prints p50 and p99 of half the round trip, in microseconds
//
// Each is a program of its own, so that they can be in two network namespaces. What RDMA over DPDK saves is measured
// against this (scripts/compare_dpdk).
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "bench/base/floor_program.h"
#include "bench/net/histogram.h"

namespace {

using fairlead::bench::die;
using fairlead::bench::number_argument;
using Clock = std::chrono::steady_clock;

constexpr unsigned kMostBytes = 65536;  // fits the socket's buffers, so that a send never has to wait
constexpr unsigned kWarmupRounds = 1000;

sockaddr_in address_of(const char* host, const char* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(number_argument(port, 65535)));
  if (::inet_pton(AF_INET, host, &address.sin_addr) != 1) {
    fmt::print(stderr, "fairlead-tcp-pingpong: '{}' is no IPv4 address\n", host);
    std::exit(2);
  }
  return address;
}

fairlead::UniqueFd stream_socket() {
  fairlead::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) die("socket");
  return fd;
}

void send_at_once(int fd) {
  const int on = 1;
  if (::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) die("TCP_NODELAY");
}

void send_all(int fd, const std::vector<char>& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t some = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (some > 0) {
      sent += static_cast<std::size_t>(some);
    } else if (errno != EAGAIN && errno != EINTR) {
      die("send");
    }
  }
}

// False when the peer has closed.
bool spin_for_all(int fd, std::vector<char>& bytes) {
  for (std::size_t here = 0; here < bytes.size();) {
    const ssize_t some = ::recv(fd, bytes.data() + here, bytes.size() - here, MSG_DONTWAIT);
    if (some == 0) return false;
    if (some > 0) {
      here += static_cast<std::size_t>(some);
    } else if (errno != EAGAIN && errno != EINTR) {
      die("recv");
    }
  }
  return true;
}

int serve(const sockaddr_in& address, std::vector<char>& bytes) {
  const fairlead::UniqueFd listener = stream_socket();
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) die("bind");
  if (::listen(listener.get(), 1) != 0) die("listen");
  const fairlead::UniqueFd client(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!client) die("accept");
  send_at_once(client.get());
  while (spin_for_all(client.get(), bytes)) send_all(client.get(), bytes);
  return 0;
}

int measure(const sockaddr_in& address, std::vector<char>& bytes, unsigned rounds) {
  const fairlead::UniqueFd server = stream_socket();
  if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) die("connect");
  send_at_once(server.get());
  fairlead::bench::Histogram round_trips;
  for (unsigned round = 0; round < kWarmupRounds + rounds; ++round) {
    const Clock::time_point begin = Clock::now();
    send_all(server.get(), bytes);
    if (!spin_for_all(server.get(), bytes)) {
      fmt::print(stderr, "fairlead-tcp-pingpong: the server closed the connection\n");
      return 1;
    }
    const auto taken = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
    if (round >= kWarmupRounds) round_trips.record(static_cast<std::uint64_t>(taken.count()));
  }
  const auto half = [&](double percent) { return static_cast<double>(round_trips.percentile(percent)) / 2000; };
  fmt::print("p50 {:.2f} p99 {:.2f}\n", half(50), half(99));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr,
               "usage: fairlead-tcp-pingpong --server ADDRESS PORT BYTES\n"
               "       fairlead-tcp-pingpong ADDRESS PORT BYTES ROUNDS\n");
    return 2;
  }
  const bool server = std::string_view(argv[1]) == "--server";
  std::vector<char> bytes(number_argument(argv[server ? 4 : 3], kMostBytes));
  if (server) return serve(address_of(argv[2], argv[3]), bytes);
  return measure(address_of(argv[1], argv[2]), bytes, number_argument(argv[4], 100'000'000));
}
