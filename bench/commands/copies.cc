// How fast a command channel copies: from and to ordinary memory of this process, over and over, each copy waited for.
//
//   fairlead-command-copies HOST:PORT TRANSPORT MIB SECONDS
//
// There `fairlead serve --gpu` listens. Prints GB (1e9 bytes) per second, in and out.
#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "bench/base/floor_program.h"
#include "fairlead/command.h"
#include "fairlead/engine.h"

namespace {

using namespace fairlead;  // NOLINT(google-build-using-namespace): a program of one file
using bench::must;
using bench::time_of;

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = argc == 5 ? static_cast<std::size_t>(std::atof(argv[3]) * (1 << 20)) : 0;
  const double seconds = argc == 5 ? std::atof(argv[4]) : 0;
  if (bytes == 0 || seconds <= 0) {
    fmt::print(stderr, "usage: fairlead-command-copies HOST:PORT TRANSPORT MIB SECONDS\n");
    return 2;
  }
  EngineConfig config;
  config.transport = argv[2];
  Engine engine = must(Engine::create(config));
  command::Session session = must(command::Session::connect(engine, argv[1]));
  command::Channel channel = must(session.open_channel());
  const command::Handle memory = session.new_handle();
  std::vector<std::byte> host(bytes, std::byte{1});
  must(channel.allocate(memory, bytes));
  const auto wait = [&] { must(channel.synchronize(std::chrono::seconds(60))); };
  const auto copy_in = [&] { must(channel.copy_in(memory, 0, host)), wait(); };
  const auto copy_out = [&] { must(channel.copy_out(host, memory, 0)), wait(); };
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  copy_in();  // the first asks for the session's window
  const double in = gigabytes / time_of(seconds, copy_in), out = gigabytes / time_of(seconds, copy_out);
  fmt::print("{}: in {:.2f}, out {:.2f} GB/s\n", session.peer().transport(), in, out);
  return 0;
}
