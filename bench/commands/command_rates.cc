#include "bench/commands/command_rates.h"

#include <fmt/format.h>

#include <string>
#include <thread>
#include <utility>

#include "fairlead/command.h"
#include "fairlead/host_executor.h"

namespace fairlead::bench {

using command::Handle;
using command::ServiceConfig;
using command::Stage;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{20}, kWarmUp{100};
constexpr std::uint64_t kPerClockRead = 256;
constexpr char kName[] = "bench";

}  // namespace

bool serve_one_session(Engine engine, ServiceConfig config) {
  Result<command::Service> service = command::Service::start(std::move(engine), std::move(config));
  if (!service) return false;
  command::ServiceStats stats;
  do {
    std::this_thread::sleep_for(kLook);
    stats = service->stats();
  } while (stats.sessions != 0 || stats.sessions_begun == 0);
  return stats.failures == 0 && stats.sessions_ended_wrong == 0;
}

command::ExecutorFactory bench_executors() {
  command::HostExecutorConfig host;
  host.kernels.push_back({kName,
                          {{command::ParameterKind::kU64}, {command::ParameterKind::kU64}},
                          {},
                          [](const command::Call&) { return Status(); },
                          true});
  return command::host_executors(std::move(host));
}

bool serve_commands(Engine engine, ServiceConfig::Where where, std::vector<std::string> program) {
  ServiceConfig config;
  config.executors = bench_executors();
  config.where = where;
  config.program = std::move(program);
  return serve_one_session(std::move(engine), std::move(config));
}

Result<CommandRates> measure_commands(Engine& engine, const std::string& address, std::chrono::nanoseconds duration,
                                      const std::atomic<int>& stop) {
  Result<command::Session> session = command::Session::connect(engine, address);
  if (!session) return session.error();
  Result<command::Channel> channel = session->open_channel();
  if (!channel) return channel.error();
  const Handle kernel = session->new_handle();
  if (const auto loaded = channel->load(kernel, kName); !loaded) return loaded.error();
  const auto parameters = command::pack(std::uint64_t{1}, std::uint64_t{2});  // with these a command has 64 bytes
  const command::Launch launch{.function = kernel};
  if (Status ready = channel->synchronize(); !ready.ok()) return ready;

  CommandRates rates;
  rates.transport = session->peer().transport();
  rates.path = session->peer().explain();
  const auto stream = [&](std::chrono::nanoseconds how_long) -> Status {
    const Clock::time_point begin = Clock::now(), end = begin + how_long;
    rates.commands = 0;
    do {
      for (std::uint64_t i = 0; i < kPerClockRead; ++i) {
        if (const auto appended = channel->launch(launch, parameters); !appended) return appended.error();
      }
      rates.commands += kPerClockRead;
    } while (Clock::now() < end && stop == 0);
    Status done = channel->synchronize();
    rates.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return done;
  };
  if (Status warm = stream(kWarmUp); !warm.ok()) return warm;
  if (Status done = stream(duration); !done.ok()) return done;

  const Clock::time_point warm = Clock::now() + kWarmUp, end = warm + duration;
  for (Clock::time_point begin = Clock::now(); begin < end && stop == 0;) {
    const Result<std::uint64_t> appended = channel->launch(launch, parameters);
    if (!appended) return appended.error();
    if (Status done = channel->wait(*appended, Stage::kExecuted); !done.ok()) return done;
    const Clock::time_point now = Clock::now();
    if (begin >= warm) rates.round_trips.record(static_cast<std::uint64_t>((now - begin).count()));
    begin = now;
  }
  session->close();
  return rates;
}

Json percentiles(const Histogram& times) {
  return Json::Object{{"min", times.min()},
                      {"p50", times.percentile(50)},
                      {"p99", times.percentile(99)},
                      {"max", times.max()},
                      {"count", times.count()}};
}

}  // namespace fairlead::bench
