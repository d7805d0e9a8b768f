// The least that a message over UDP sockets takes on this host: two processes on loopback that spin on their sockets.
//
//   fairlead-udp-pingpong BYTES ROUNDS     prints half of the median round trip, in microseconds
//
// What softroce adds to a message's latency is measured against this (scripts/compare_softroce).
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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

constexpr unsigned kMostBytes = 65507;
constexpr unsigned kWarmupRounds = 1000;
constexpr unsigned kPollsBetweenLooks = 4096;
constexpr std::chrono::seconds kPatience{1};

// A socket on a free port of loopback, and its address.
fairlead::UniqueFd bound_socket(sockaddr_in* address) {
  fairlead::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(*address);
  auto* generic = reinterpret_cast<sockaddr*>(address);
  if (!fd || ::bind(fd.get(), generic, size) != 0 || ::getsockname(fd.get(), generic, &size) != 0) die("bind");
  return fd;
}

void send(int fd, const std::vector<char>& bytes) {
  if (::send(fd, bytes.data(), bytes.size(), 0) < 0) die("send");
}

// Whether one has come.
bool receive(int fd, std::vector<char>& bytes) {
  if (::recv(fd, bytes.data(), bytes.size(), 0) >= 0) return true;
  if (errno != EAGAIN && errno != EINTR) die("recv");
  return false;
}

// Of the process `other`, to what was sent at `sent`.
void spin_for_answer(int fd, std::vector<char>& bytes, pid_t other, Clock::time_point sent) {
  for (unsigned polls = 1; !receive(fd, bytes); ++polls) {
    if (polls % kPollsBetweenLooks != 0) continue;
    if (::waitpid(other, nullptr, WNOHANG) != 0) die({fairlead::Code::kPeerDied, "the process that answers has ended"});
    if (Clock::now() - sent > kPatience)
      die({fairlead::Code::kDataLoss, "a datagram was lost: no answer came within a second"});
  }
}

[[noreturn]] void answer(int fd, std::vector<char>& bytes, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  while (true) {
    while (!receive(fd, bytes)) {
    }
    send(fd, bytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: fairlead-udp-pingpong BYTES ROUNDS\n");
    return 2;
  }
  std::vector<char> bytes(number_argument(argv[1], kMostBytes));
  const unsigned rounds = number_argument(argv[2], 100'000'000);
  sockaddr_in near{};
  sockaddr_in far{};
  fairlead::UniqueFd here = bound_socket(&near);
  fairlead::UniqueFd there = bound_socket(&far);
  if (::connect(here.get(), reinterpret_cast<const sockaddr*>(&far), sizeof(far)) != 0) die("connect");
  if (::connect(there.get(), reinterpret_cast<const sockaddr*>(&near), sizeof(near)) != 0) die("connect");
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) die("fork");
  (child == 0 ? here : there).reset();  // each has its own alone: what goes to a process that has ended is refused
  if (child == 0) answer(there.get(), bytes, parent);
  fairlead::bench::Histogram round_trips;
  for (unsigned round = 0; round < kWarmupRounds + rounds; ++round) {
    const Clock::time_point begin = Clock::now();
    send(here.get(), bytes);
    spin_for_answer(here.get(), bytes, child, begin);
    const auto taken = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
    if (round >= kWarmupRounds) round_trips.record(static_cast<std::uint64_t>(taken.count()));
  }
  ::kill(child, SIGKILL);
  fmt::print("{:.2f}\n", static_cast<double>(round_trips.percentile(50)) / 2000);
}
