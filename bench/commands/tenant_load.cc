// One tenant of a GPU server that keeps it busy: what scripts/measure_shares starts several of.
//
//   fairlead-tenant-load HOST:PORT KEYS PRINCIPAL SECONDS FLOATS DEPTH
//
// Launches `reduce` over FLOATS numbers again and again, DEPTH of them under way at once (1: each waits for the one
// before). Prints a line of JSON: launches, and how long each took from its call to being complete, in nanoseconds.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <utility>

#include "bench/base/floor_program.h"
#include "bench/net/histogram.h"
#include "fairlead/command.h"

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file
using bench::must;
using Clock = std::chrono::steady_clock;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    fmt::print(stderr, "usage: fairlead-tenant-load HOST:PORT KEYS PRINCIPAL SECONDS FLOATS DEPTH\n");
    return 2;
  }
  EngineConfig config;
  config.keys_file = argv[2];
  config.principal = argv[3];
  const std::chrono::seconds length(bench::number_argument(argv[4], 3600));
  const unsigned floats = bench::number_argument(argv[5], 1 << 28), depth = bench::number_argument(argv[6], 1024);
  Engine engine = must(Engine::create(config));
  command::Session session = must(command::Session::connect(engine, argv[1]));
  command::Channel channel = must(session.open_channel());
  const command::Handle in = session.new_handle(), out = session.new_handle(), reduce = session.new_handle();
  must(channel.allocate(in, floats * sizeof(float)));
  must(channel.allocate(out, sizeof(float)));
  must(channel.load(reduce, "reduce"));
  must(channel.synchronize());
  const auto parameters = command::pack(command::Pointer{in}, command::Pointer{out}, std::uint32_t{floats});

  bench::Histogram times;
  std::deque<std::pair<std::uint64_t, Clock::time_point>> under_way;
  const Clock::time_point end = Clock::now() + length;
  for (Clock::time_point now = Clock::now(); now < end; now = Clock::now()) {
    under_way.emplace_back(must(channel.launch({reduce}, parameters)), now);
    if (under_way.size() < depth) continue;
    must(channel.wait(under_way.front().first));
    times.record(static_cast<std::uint64_t>((Clock::now() - under_way.front().second).count()));
    under_way.pop_front();
  }
  must(channel.synchronize());
  fmt::print("{{\"tenant\": \"{}\", \"launches\": {}, \"p50_ns\": {}, \"p99_ns\": {}}}\n", argv[3], times.count(),
             times.percentile(50), times.percentile(99));
  return 0;
}
