// What a thousand peers cost an engine that they connect to, and what is left when they have gone, again and again.
//
//   fairlead-peers-churn [PEERS] [ROUNDS] [TRANSPORT]     1000 peers, 6 rounds, tcp, if nothing is said
//
// In each round another process connects PEERS times; every session is ready before the round counts. In every second
// round that process is killed, so that nobody says goodbye. One line a round: resident memory and open descriptors of
// the engine that serves, with all peers idle and with none, and the bytes that it has allocated then. Exit code 1 if a
// session is lost for another reason, if an idle peer takes more than 100 KiB over tcp, or if allocations, descriptors
// or resident memory grow from round to round. (The allocator keeps some megabytes of free pages in one round or
// another: resident memory has grown if it never comes down to what it was.)
#include <dirent.h>
#include <fmt/format.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "bench/base/floor_program.h"
#include "fairlead/engine.h"
#include "tests/soak/resident.h"

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file
using bench::die;

constexpr std::chrono::seconds kPatience{60};
constexpr std::size_t kMostPerPeer = 100 * 1024;

std::size_t open_descriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  std::size_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

std::size_t allocated_bytes() {
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

/// `now` is more than a tenth past what it was at `first`.
bool has_grown(std::size_t first, std::size_t now) { return now > first + first / 10; }

Engine make_engine(const std::string& transport, const char* listen) {
  EngineConfig config;
  config.transport = transport;
  config.listen = listen;
  config.peer_timeout = std::chrono::milliseconds(2000);  // of those that are killed
  Result<Engine> engine = Engine::create(config);
  if (!engine) die(engine.error().to_string());
  return std::move(*engine);
}

/// Connects so often, says so, and waits until it is told to go, or is killed.
int connect_all(const std::string& transport, const std::string& address, std::size_t peers, int say, int hear) {
  Engine engine = make_engine(transport, "");
  std::vector<Peer> connected;
  std::size_t ready = 0;
  for (std::size_t i = 0; i < peers; ++i) {
    Result<Peer> peer = engine.connect(address);
    if (!peer) die(peer.error().to_string());
    connected.push_back(*peer);
    // Not all at once: of those that have not said hello an engine keeps max_handshakes.
    for (; i % 100 == 99 || i + 1 == peers ? ready < connected.size() : false; ++ready) {
      if (const Status up = connected[ready].wait_ready(kPatience); !up.ok()) die(up.to_string());
    }
  }
  char byte = 0;
  if (::write(say, &byte, 1) != 1 || ::read(hear, &byte, 1) != 1) return 1;
  for (Peer& peer : connected) peer.close();
  for (Peer& peer : connected) {
    while (peer.next_event(kPatience).kind != Event::Kind::kClosed) {
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t peers = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 6;
  const std::string transport = argc > 3 ? argv[3] : "tcp";
  rlimit descriptors{};
  ::getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &descriptors);

  // Begun before the engine: a child of a process with an engine has none.
  bool fine = true;
  std::size_t first_memory = 0, least_memory = SIZE_MAX, first_allocated = 0, first_descriptors = 0;
  int to_parent[2], to_child[2], where[2];
  std::vector<pid_t> children;
  std::vector<std::array<int, 3>> ends;  // of each child: heard of it, said to it, told where to connect
  for (int round = 0; round < rounds; ++round) {
    if (::pipe(to_parent) != 0 || ::pipe(to_child) != 0 || ::pipe(where) != 0) die("no pipes");
    const pid_t child = ::fork();
    if (child == 0) {
      char text[64] = "";
      if (::read(where[0], text, sizeof text - 1) <= 0) ::_exit(1);
      ::_exit(connect_all(transport, text, peers, to_parent[1], to_child[0]));
    }
    children.push_back(child);
    ends.push_back({to_parent[0], to_child[1], where[1]});
  }
  Engine engine = make_engine(transport, "127.0.0.1:0");
  const std::string address = engine.listen_address();
  for (int round = 0; round < rounds; ++round) {
    const std::size_t memory_before = resident_kilobytes() * 1024;
    const auto& [heard, said, told] = ends[static_cast<std::size_t>(round)];
    if (::write(told, address.c_str(), address.size()) < 0) die("a process is gone");
    char byte = 0;
    pollfd connected{heard, POLLIN, 0};
    if (::poll(&connected, 1, 120'000) != 1 || ::read(heard, &byte, 1) != 1) die("the peers do not connect");
    std::vector<Peer> accepted;
    while (accepted.size() < peers) {
      Result<Peer> peer = engine.accept(kPatience);
      if (!peer) die(fmt::format("{} of {} peers: {}", accepted.size(), peers, peer.error().to_string()));
      accepted.push_back(*peer);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::size_t memory_with = resident_kilobytes() * 1024, descriptors_with = open_descriptors();
    const bool killed = round % 2 == 1;
    if (killed) {
      ::kill(children[static_cast<std::size_t>(round)], SIGKILL);
    } else if (::write(said, &byte, 1) != 1) {
      die("a process is gone");
    }
    for (Peer& peer : accepted) {
      Event event;
      while (event.kind != Event::Kind::kClosed) {
        event = peer.next_event(kPatience);
        if (event.kind == Event::Kind::kNone) die("a session does not end");
      }
      if (event.status.ok() == killed) die("a session ended otherwise: " + event.status.to_string());
    }
    accepted.clear();
    ::waitpid(children[static_cast<std::size_t>(round)], nullptr, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::malloc_trim(0);
    const std::size_t memory_after = resident_kilobytes() * 1024, descriptors_after = open_descriptors();
    const std::size_t allocated = allocated_bytes();
    const std::size_t each = (memory_with - std::min(memory_with, memory_before)) / peers;
    fmt::print(
        "round {}: {} peers {}: {:.1f} KiB a peer, {} descriptors; after: {} KiB resident, {} KiB allocated, {} "
        "descriptors\n",
        round, peers, killed ? "killed" : "closed", static_cast<double>(each) / 1024, descriptors_with,
        memory_after / 1024, allocated / 1024, descriptors_after);
    std::fflush(stdout);
    if (round == 1) {
      first_memory = memory_after;
      first_allocated = allocated;
      first_descriptors = descriptors_after;
    }
    if (transport == "tcp" && round == 0 && each > kMostPerPeer) fine = false;
    if (round > 1) {
      least_memory = std::min(least_memory, memory_after);
      if (has_grown(first_allocated, allocated) || descriptors_after > first_descriptors) fine = false;
    }
  }
  if (rounds > 2 && has_grown(first_memory, least_memory)) fine = false;
  if (!fine) fmt::print(stderr, "fairlead-peers-churn: an idle peer takes more than 100 KiB, or something grows\n");
  return fine ? 0 : 1;
}
