// What it costs that several threads post to one peer and wait for what they posted, beside one thread that does it
// all.
//
//   fairlead-posting-threads TRANSPORT THREADS SECONDS [LANES]    prints GB (1e9 bytes) written per second
//
// WRITEs of 1 MiB, 16 in flight however many threads share them, to another process of this host, which only owns the
// memory. A thread waits for its oldest write, then posts the next. With LANES each thread has a session of its own,
// and the engines of both ends have so many lanes. scripts/compare_engine compares one thread and eight, one lane and
// two.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "bench/base/floor_program.h"
#include "fairlead/engine.h"

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file
using bench::die;
using bench::must;
using bench::number_argument;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr unsigned kInFlight = 16, kSlots = 4;  // 4 MiB at each end are gone round

struct Wanted {
  std::string transport;
  unsigned threads, seconds, lanes;
  bool session_each;
};

Engine make_engine(const Wanted& wanted, const char* listen) {
  EngineConfig config;
  config.transport = wanted.transport;
  config.lanes = wanted.lanes;
  config.listen = listen;
  return must(Engine::create(config));
}

/// Owns the memory until `until` ends.
int own(const Wanted& wanted, int say, int until) {
  Engine engine = make_engine(wanted, "127.0.0.1:0");
  const Memory memory = must(engine.allocate(kSlots * kBytes));
  if (!engine.publish("target", memory, Access::kRemoteWrite).ok()) return 1;
  const std::string address = engine.listen_address();
  if (::write(say, address.data(), address.size()) < 0) die("write");
  char none;
  while (::read(until, &none, 1) > 0) {
  }
  return 0;
}

/// GB per second.
double measure(const Wanted& wanted, const std::string& address) {
  Engine engine = make_engine(wanted, "");
  Peer shared = must(engine.connect(address));
  const Memory source = must(engine.allocate(kSlots * kBytes));
  std::atomic<std::uint64_t> written{0};
  std::atomic<bool> stop{false};
  const auto write = [&](unsigned first) {
    Peer peer = wanted.session_each && first != 0 ? must(engine.connect(address)) : shared;
    const RemoteMemory target = must(peer.lookup("target"));
    std::deque<Transfer> posted;
    for (unsigned slot = first % kSlots; !stop; slot = (slot + 1) % kSlots) {
      posted.push_back(peer.write(source.slice(slot * kBytes, kBytes), target.slice(slot * kBytes, kBytes)));
      if (posted.size() < kInFlight / wanted.threads) continue;
      if (const Status end = posted.front().wait(); !end.ok()) {
        fmt::print(stderr, "fairlead-posting-threads: {}\n", end.to_string());
        std::exit(1);
      }
      written += kBytes;
      posted.pop_front();
    }
    (void)wait_all(std::vector(posted.begin(), posted.end()));
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < wanted.threads; ++i) workers.emplace_back(write, i);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until it runs evenly
  const std::uint64_t before = written;
  const Clock::time_point begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(wanted.seconds));
  const double rate =
      static_cast<double>(written - before) / std::chrono::duration<double>(Clock::now() - begin).count();
  stop = true;
  for (std::thread& worker : workers) worker.join();
  return rate / 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    fmt::print(stderr, "usage: fairlead-posting-threads TRANSPORT THREADS SECONDS [LANES]\n");
    return 2;
  }
  const Wanted wanted{argv[1], number_argument(argv[2], kInFlight), number_argument(argv[3], 3600),
                      argc == 5 ? number_argument(argv[4], 64) : 1, argc == 5};
  int address[2], life[2];
  if (::pipe(address) != 0 || ::pipe(life) != 0) die("pipe");
  const pid_t owner = ::fork();  // before there is an engine
  if (owner < 0) die("fork");
  if (owner == 0) {
    ::close(life[1]);
    return own(wanted, address[1], life[0]);
  }
  ::close(address[1]);
  char text[64];
  const ssize_t size = ::read(address[0], text, sizeof text);
  if (size <= 0) return 1;  // the owner has said why
  fmt::print("{:.3f}\n", measure(wanted, std::string(text, static_cast<std::size_t>(size))));
  ::close(life[1]);
  int status = 0;
  ::waitpid(owner, &status, 0);
  return status == 0 ? 0 : 1;
}
