// What READs take after a session has had nothing to do for a while: first of all, and then one after the other.
//
//   fairlead-read-after-rest TRANSPORT REST_SECONDS [READS]
//
// One process of this host publishes 4 KiB, the other reads them, READS times (1000 if not given) before and after it
// has rested. Prints for each the first one's time, the 50th and 99th percentile and the longest, in microseconds.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "bench/base/floor_program.h"
#include "bench/net/histogram.h"
#include "fairlead/engine.h"

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file
using bench::die;
using bench::must;
using bench::number_argument;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = 4096;

Engine make_engine(const std::string& transport, const char* listen) {
  EngineConfig config;
  config.transport = transport;
  config.listen = listen;
  return must(Engine::create(config));
}

/// Until it is killed.
int publish(const std::string& transport, int say) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Engine engine = make_engine(transport, "127.0.0.1:0");
  const Memory memory = must(engine.allocate(kBytes));
  if (!engine.publish("source", memory, Access::kRemoteRead).ok()) return 1;
  const std::string address = engine.listen_address();
  if (::write(say, address.data(), address.size()) < 0) die("write");
  ::pause();
  return 0;
}

void measure(const char* when, Peer& peer, const Memory& to, const RemoteMemory& from, unsigned reads) {
  bench::Histogram times;
  double first = 0;
  for (unsigned i = 0; i < reads; ++i) {
    const Clock::time_point begin = Clock::now();
    Transfer read = peer.read(to.slice(0, kBytes), from.slice(0, kBytes));
    must(read.wait());
    const auto took = static_cast<std::uint64_t>((Clock::now() - begin).count());
    times.record(took);
    if (i == 0) first = static_cast<double>(took) / 1e3;
  }
  const auto us = [&times](double percent) { return static_cast<double>(times.percentile(percent)) / 1e3; };
  fmt::print("{:18} first {:8.1f} us, mean {:6.1f}, p50 {:6.1f}, p99 {:6.1f}, longest {:8.1f}\n", when, first,
             times.mean() / 1e3, us(50), us(99), us(100));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    fmt::print(stderr, "usage: fairlead-read-after-rest TRANSPORT REST_SECONDS [READS]\n");
    return 2;
  }
  const std::string transport = argv[1];
  const unsigned rest = number_argument(argv[2], 3600), reads = argc == 4 ? number_argument(argv[3], 1'000'000) : 1000;
  int address[2];
  if (::pipe(address) != 0) die("pipe");
  const pid_t publisher = ::fork();  // before there is an engine
  if (publisher < 0) die("fork");
  if (publisher == 0) return publish(transport, address[1]);
  ::close(address[1]);
  char text[64];
  const ssize_t size = ::read(address[0], text, sizeof text);
  if (size <= 0) return 1;  // the other has said why
  Engine engine = make_engine(transport, "");
  Peer peer = must(engine.connect(std::string_view(text, static_cast<std::size_t>(size))));
  const Memory to = must(engine.allocate(kBytes));
  const RemoteMemory from = must(peer.lookup("source"));
  measure("at once", peer, to, from, reads);
  std::this_thread::sleep_for(std::chrono::seconds(rest));
  measure(fmt::format("after {} s of rest", rest).c_str(), peer, to, from, reads);
  peer.close();
  ::kill(publisher, SIGKILL);
  ::waitpid(publisher, nullptr, 0);
  return 0;
}
