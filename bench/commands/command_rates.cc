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

namespace {

constexpr std::size_t kBulkPiece = 1 << 20;

/// The measuring of one session.
class Client {
 public:
  Client(command::Session session, command::Channel channel, Handle kernel, const std::atomic<int>& stop)
      : session_(std::move(session)), channel_(std::move(channel)), launch_{.function = kernel}, stop_(stop) {}

  Status stream(std::chrono::nanoseconds how_long, std::uint64_t depth, CommandRates& rates) {
    const Clock::time_point begin = Clock::now(), end = begin + how_long;
    rates.commands = 0;
    rates.ages = {};
    Aged aged;
    do {
      for (std::uint64_t i = 0; i < kPerClockRead; ++i) {
        const auto appended = channel_.launch(launch_, kParameters);
        if (!appended) return appended.error();
        if (depth != 0 && *appended - channel_.reached(Stage::kExecuted) >= depth) {
          if (Status room = channel_.wait(*appended - depth * 3 / 4, Stage::kExecuted); !room.ok()) return room;
        }
        aged.look(channel_, *appended, rates.ages);
      }
      rates.commands += kPerClockRead;
    } while (Clock::now() < end && stop_ == 0);
    Status done = channel_.synchronize();
    rates.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return done;
  }

  /// At least one, however long that takes.
  Status wait_for_each(std::chrono::nanoseconds how_long, Histogram& times) {
    const Clock::time_point warm = Clock::now() + kWarmUp, end = warm + how_long;
    for (Clock::time_point begin = Clock::now(); (begin < end || times.count() == 0) && stop_ == 0;) {
      const Result<std::uint64_t> appended = channel_.launch(launch_, kParameters);
      if (!appended) return appended.error();
      if (Status done = channel_.wait(*appended, Stage::kExecuted); !done.ok()) return done;
      const Clock::time_point now = Clock::now();
      if (begin >= warm) times.record(static_cast<std::uint64_t>((now - begin).count()));
      begin = now;
    }
    return {};
  }

  Status wait_for_each_under_bulk(std::chrono::nanoseconds how_long, Bulk way, CommandRates& rates) {
    Result<command::Channel> bulk = session_.open_channel();
    if (!bulk) return bulk.error();
    const Handle memory = session_.new_handle();
    if (const auto made = bulk->allocate(memory, kBulkPiece); !made) return made.error();
    std::atomic<bool> enough{false};
    std::uint64_t bytes = 0;
    Status copied;
    const Clock::time_point begin = Clock::now();
    std::thread copier([&] {
      // Out of it two at a time, each to memory of its own.
      std::array<std::vector<std::byte>, 2> pieces;
      std::array<std::uint64_t, 2> last{};
      for (auto& piece : pieces) piece.assign(kBulkPiece, std::byte{1});
      const auto copy = [&](std::size_t i) -> Result<std::uint64_t> {
        if (way == Bulk::kIn) return bulk->copy_in(memory, 0, pieces[i]);
        if (Status before = last[i] != 0 ? bulk->wait(last[i]) : Status(); !before.ok()) return before;
        return bulk->copy_out(pieces[i], memory, 0);
      };
      for (std::size_t i = 0; copied.ok() && !enough.load(); i ^= 1, bytes += kBulkPiece) {
        const Result<std::uint64_t> appended = copy(i);
        if (appended) last[i] = *appended;
        if (!appended) copied = appended.error();
      }
      if (copied.ok()) copied = bulk->synchronize();
    });
    Status waited = wait_for_each(how_long, rates.bulk_round_trips);
    enough = true;
    copier.join();
    rates.bulk_bytes_per_second =
        static_cast<double>(bytes) / std::chrono::duration<double>(Clock::now() - begin).count();
    return waited.ok() ? copied : waited;
  }

 private:
  /// How long the command takes that was looked at last.
  struct Aged {
    void look(const command::Channel& channel, std::uint64_t latest, Histogram& ages) {
      if (sequence != 0 && channel.reached(Stage::kExecuted) < sequence) return;
      const Clock::time_point now = Clock::now();
      if (sequence != 0) ages.record(static_cast<std::uint64_t>((now - since).count()));
      sequence = latest;
      since = now;
    }
    std::uint64_t sequence = 0;
    Clock::time_point since;
  };

  const decltype(command::pack(std::uint64_t{1}, std::uint64_t{2})) kParameters =
      command::pack(std::uint64_t{1}, std::uint64_t{2});  // with these a command has 64 bytes
  command::Session session_;
  command::Channel channel_;
  const command::Launch launch_;
  const std::atomic<int>& stop_;
};

}  // namespace

Result<CommandRates> measure_commands(Engine& engine, const std::string& address, const CommandLoad& load,
                                      const std::atomic<int>& stop) {
  Result<command::Session> session = command::Session::connect(engine, address);
  if (!session) return session.error();
  Result<command::Channel> channel = session->open_channel();
  if (!channel) return channel.error();
  const Handle kernel = session->new_handle();
  if (const auto loaded = channel->load(kernel, kName); !loaded) return loaded.error();
  if (Status ready = channel->synchronize(); !ready.ok()) return ready;

  CommandRates rates;
  rates.transport = session->peer().transport();
  rates.path = session->peer().explain();
  Client client(*session, *channel, kernel, stop);
  Status status = client.stream(kWarmUp, load.depth, rates);
  if (status.ok()) status = client.stream(load.duration, load.depth, rates);
  if (status.ok()) status = client.wait_for_each(load.duration, rates.round_trips);
  if (status.ok()) status = client.wait_for_each_under_bulk(load.duration, load.bulk, rates);
  if (!status.ok()) return status;
  session->close();
  return rates;
}

Json percentiles(const Histogram& times) {
  if (times.count() == 0) return {};
  return Json::Object{{"min", times.min()},
                      {"p50", times.percentile(50)},
                      {"p99", times.percentile(99)},
                      {"max", times.max()},
                      {"count", times.count()}};
}

}  // namespace fairlead::bench
