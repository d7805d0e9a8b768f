// What a small message waits for while large writes are under way in the same session: idle, as bulk, as a command.
//
//   fairlead-commands-beside-bulk [--pin] TRANSPORT SECONDS [SERVER_PACKET_IO CLIENT_PACKET_IO]
//
// --pin: each end on a core of its own. Else the system may let both run on one for some milliseconds, now and then.
// One process of this host sends eight bytes, the other sends them back with the same class: a round trip. "beside"
// means that two WRITEs of 16 MiB are kept in flight. SECONDS for each; prints one line each: how many round
// trips, their 50th and 99th percentile in microseconds, and what was written meanwhile in GB (1e9 bytes) per second.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "bench/base/cores.h"
#include "bench/base/floor_program.h"
#include "bench/net/histogram.h"
#include "fairlead/engine.h"

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file
using bench::die;
using bench::must;
using bench::number_argument;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = std::size_t{16} << 20, kWrites = 2;
constexpr std::chrono::seconds kPatience{30};

/// From here on on that one of the cores.
void pin(std::size_t end) {
  const std::vector<unsigned> cores = bench::own_cores();
  if (end >= cores.size()) {
    fmt::print(stderr, "fairlead-commands-beside-bulk: --pin takes two cores, and there is one; leave it out\n");
    std::exit(2);
  }
  must(bench::use_cores({&cores[end], 1}));
}

Engine make_engine(const std::string& transport, const char* packet_io, const char* listen) {
  EngineConfig config;
  config.transport = transport;
  config.listen = listen;
  if (packet_io != nullptr) config.verbs.packet_io = packet_io;
  return must(Engine::create(config));
}

/// The next message; none: the session has ended.
bool hear(Peer& peer, Event& event) {
  do {
    event = peer.next_event(kPatience);
    if (event.kind == Event::Kind::kClosed || event.kind == Event::Kind::kNone) return false;
  } while (event.kind != Event::Kind::kMessage);
  return true;
}

/// Sends back what it hears until the session ends.
int answer(const std::string& transport, const char* packet_io, int say) {
  Engine engine = make_engine(transport, packet_io, "127.0.0.1:0");
  const Memory memory = must(engine.allocate(kWrites * kBytes));
  if (!engine.publish("target", memory, Access::kRemoteWrite).ok()) return 1;
  const std::string address = engine.listen_address();
  if (::write(say, address.data(), address.size()) < 0) die("write");
  Peer peer = must(engine.accept(kPatience));
  for (Event event; hear(peer, event);) peer.send(event.data, event.value, {.traffic = event.traffic});
  return 0;
}

struct Client {
  Peer peer;
  Memory source;
  RemoteMemory target;
  std::array<Transfer, kWrites> writes{};

  void keep_writing() {
    for (std::size_t i = 0; i < kWrites; ++i) {
      if (writes[i].valid() && !writes[i].done()) continue;
      if (writes[i].valid()) must(writes[i].status());
      writes[i] = peer.write(source.slice(i * kBytes, kBytes), target.slice(i * kBytes, kBytes));
    }
  }

  void measure(const char* what, TrafficClass traffic, bool beside, unsigned seconds) {
    bench::Histogram times;
    const std::array<std::byte, 8> bytes{};
    std::uint64_t written = 0;
    const Clock::time_point warm = Clock::now() + std::chrono::milliseconds(200);
    const Clock::time_point end = warm + std::chrono::seconds(seconds);
    for (std::uint64_t i = 0;; ++i) {
      if (beside) keep_writing();
      const Clock::time_point begin = Clock::now();
      if (begin >= end) break;
      if (begin < warm) written = peer.stats().bytes_written;
      peer.send(bytes, i, {.traffic = traffic});
      Event event;
      if (!hear(peer, event)) {
        fmt::print(stderr, "fairlead-commands-beside-bulk: no answer: {}\n", event.status.to_string());
        std::exit(1);
      }
      if (begin >= warm) times.record(static_cast<std::uint64_t>((Clock::now() - begin).count()));
    }
    const double moved = static_cast<double>(peer.stats().bytes_written - written);
    fmt::print("{:37} {:8} round trips, p50 {:9.1f} us, p99 {:9.1f} us; {:5.2f} GB/s\n", what, times.count(),
               static_cast<double>(times.percentile(50)) / 1e3, static_cast<double>(times.percentile(99)) / 1e3,
               moved / 1e9 / seconds);
    (void)wait_all(writes, kPatience);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bool pinned = argc > 1 && std::string_view(argv[1]) == "--pin";
  if (pinned) --argc, ++argv;
  if (argc != 3 && argc != 5) {
    fmt::print(stderr,
               "usage: fairlead-commands-beside-bulk [--pin] TRANSPORT SECONDS [SERVER_PACKET_IO CLIENT_PACKET_IO]\n");
    return 2;
  }
  const std::string transport = argv[1];
  const unsigned seconds = number_argument(argv[2], 3600);
  int address[2];
  if (::pipe(address) != 0) die("pipe");
  const pid_t answerer = ::fork();  // before there is an engine
  if (answerer < 0) die("fork");
  if (answerer == 0) {
    if (pinned) pin(1);
    return answer(transport, argc == 5 ? argv[3] : nullptr, address[1]);
  }
  if (pinned) pin(0);
  ::close(address[1]);
  char text[64];
  const ssize_t size = ::read(address[0], text, sizeof text);
  if (size <= 0) return 1;  // the other has said why
  {
    Engine engine = make_engine(transport, argc == 5 ? argv[4] : nullptr, "");
    Peer peer = must(engine.connect(std::string_view(text, static_cast<std::size_t>(size))));
    Client client{peer, must(engine.allocate(kWrites * kBytes)), must(peer.lookup("target"))};
    client.measure("idle", TrafficClass::kBulk, false, seconds);
    client.measure("bulk, beside bulk", TrafficClass::kBulk, true, seconds);
    client.measure("commands, beside bulk", TrafficClass::kCommands, true, seconds);
    client.measure("bulk, beside a quiet path of commands", TrafficClass::kBulk, true, seconds);
    peer.close();
  }
  int status = 0;
  ::waitpid(answerer, &status, 0);
  return status == 0 ? 0 : 1;
}
