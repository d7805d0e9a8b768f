#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/printable.h"
#include "bench/base/cpu_time.h"
#include "bench/base/file_output.h"
#include "bench/base/json.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/engine_options.h"
#include "cli/base/unreachable.h"
#include "cli/commands.h"
#include "cli/resolve.h"
#include "fairlead/engine.h"

namespace fairlead::cli {
namespace {

using bench::Json;

struct Options {
  EngineConfig config;
  std::string server, json;
};

/// One transport of this host's, and what became of an attempt to reach the server by it alone.
struct Way {
  enum class Verdict : std::uint8_t { kChosen, kWorks, kFails, kUnusable };
  std::string transport;
  Verdict verdict = Verdict::kUnusable;
  std::string reason;
  double seconds = 0;    // until a path was proved, where one was
  std::string measured;  // what it carries, if that was asked for

  [[nodiscard]] bool is_software() const { return transport.starts_with("verbs:soft"); }
  [[nodiscard]] bool is_hardware() const { return transport.starts_with("verbs") && !is_software(); }
};

std::string_view to_string(Way::Verdict verdict) {
  constexpr std::string_view kNames[] = {"chosen", "works", "fails", "unusable"};
  return kNames[static_cast<std::size_t>(verdict)];
}

struct Reached {
  std::string transport, explain;
  double seconds = 0;
  std::string measured;
};

/// What the line that explains a path says of what it was measured to carry; empty: nothing.
std::string measured_in(std::string_view explain) {
  constexpr std::string_view kWord = ", measured ";
  const std::string_view path = explain.substr(0, explain.find(';'));
  const std::size_t at = path.find(kWord);
  return at == std::string_view::npos ? "" : std::string(path.substr(at + kWord.size()));
}

/// Until the path in use was measured, or it takes too long.
void wait_for_figures(const Peer& peer) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (peer.stats().paths_measured == 0 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Connects, and waits until a path is proved, and measured if that is asked for.
Result<Reached> reach(Engine& engine, const Options& options) {
  const bench::Stopwatch watch;
  Result<Peer> peer = engine.connect(options.server);
  if (!peer) return peer.error();
  const Status ready = peer->wait_ready(options.config.connect_timeout + std::chrono::seconds(1));
  if (!ready.ok()) return ready;
  Reached reached{peer->transport(), {}, watch.seconds(), {}};
  if (options.config.choice == PathChoice::kMeasured) wait_for_figures(*peer);
  reached.explain = peer->explain();
  reached.measured = measured_in(reached.explain);
  peer->close();
  return reached;
}

/// Each transport once, with the reasons of its devices, in the order of the engine's list.
std::vector<Way> ways_of(const std::vector<DeviceInfo>& devices) {
  std::vector<Way> ways;
  for (const DeviceInfo& device : devices) {
    auto way = std::find_if(ways.begin(), ways.end(), [&](const Way& w) { return w.transport == device.transport; });
    if (way == ways.end()) {
      way = ways.insert(ways.end(), {.transport = device.transport, .reason = device.reason, .measured = {}});
    }
    if (device.usable) way->verdict = Way::Verdict::kWorks;
  }
  return ways;
}

void try_alone(Way& way, const Options& options) {
  EngineConfig config = options.config;
  config.transport = way.transport;
  config.failover = false;
  Result<Engine> engine = Engine::create(config);
  const Result<Reached> reached = engine ? reach(*engine, options) : Result<Reached>(engine.error());
  if (!reached) {
    way.verdict = Way::Verdict::kFails;
    way.reason = reached.error().message();
    return;
  }
  way.seconds = reached->seconds;
  way.reason = way.is_software() ? fmt::format("ranks below tcp, since processors do its work; --transport {} takes it",
                                               way.transport)
                                 : fmt::format("ranks below; --transport {} takes it", way.transport);
  way.measured = reached->measured;
  if (!way.measured.empty()) way.reason = fmt::format("measured {}; {}", way.measured, way.reason);
}

/// What would make a better way than the chosen one usable.
std::vector<std::string> advice(const std::vector<Way>& ways, const Options& options) {
  std::vector<std::string> lines;
  const auto chosen =
      std::find_if(ways.begin(), ways.end(), [](const Way& way) { return way.verdict == Way::Verdict::kChosen; });
  if (chosen != ways.end() && chosen->is_hardware()) return lines;
  const auto is_hardware = [](const Way& way) { return way.is_hardware(); };
  if (std::none_of(ways.begin(), ways.end(), is_hardware)) {
    lines.emplace_back(
        "RDMA hardware would rank first, and this host shows none: a NIC needs its driver (`rdma link` lists it), a "
        "container needs /dev/infiniband, a virtual machine a device of its own (SR-IOV or PVRDMA)");
  }
  for (const Way& way : ways) {
    if (!way.is_hardware() || way.verdict == Way::Verdict::kWorks || way.verdict == Way::Verdict::kChosen) continue;
    lines.push_back(
        fmt::format("{} would rank first: mend what is said of it; `fairlead devices --peer {}` shows its "
                    "addresses, docs/troubleshooting.md what to look for",
                    way.transport, options.server));
  }
  return lines;
}

void print(const std::vector<Way>& ways, const std::vector<std::string>& advice) {
  std::size_t name = 9;
  for (const Way& way : ways) name = std::max(name, way.transport.size());
  fmt::print("{:<{}}  {:<8}  {:>8}  WHY\n", "TRANSPORT", name, "VERDICT", "SET UP");
  for (const Way& way : ways) {
    const std::string time = way.seconds != 0 ? fmt::format("{:.1f} ms", way.seconds * 1e3) : "";
    fmt::print("{:<{}}  {:<8}  {:>8}  {}\n", way.transport, name, to_string(way.verdict), time, printable(way.reason));
  }
  for (const std::string& line : advice) fmt::print("\n{}.\n", line);
}

Json::Object report(const Options& options, const std::vector<Way>& ways, const std::vector<std::string>& advice) {
  Json::Array candidates, remedies;
  for (const Way& way : ways) {
    candidates.push_back(Json::Object{{"transport", way.transport},
                                      {"verdict", std::string(to_string(way.verdict))},
                                      {"seconds", way.seconds},
                                      {"measured", way.measured},
                                      {"reason", way.reason}});
  }
  for (const std::string& line : advice) remedies.emplace_back(line);
  return Json::Object{{"schema", "fairlead.explain/1"},
                      {"server", options.server},
                      {"candidates", std::move(candidates)},
                      {"advice", std::move(remedies)}};
}

Status explain(Engine& engine, const Options& options) {
  const Result<std::string> numeric = numeric_address(parse_places(options.server)->front().host);
  if (!numeric) return numeric.error();
  const Result<Reached> chosen = reach(engine, options);
  std::vector<Way> ways = ways_of(engine.devices(*numeric));
  for (Way& way : ways) {
    if (chosen && way.transport == chosen->transport) {
      way = {way.transport, Way::Verdict::kChosen, chosen->explain, chosen->seconds, chosen->measured};
    } else if (way.verdict == Way::Verdict::kWorks) {
      try_alone(way, options);
    }
  }
  const std::vector<std::string> lines = advice(ways, options);
  if (options.json != "-") print(ways, lines);
  if (!options.json.empty()) {
    const Status written = bench::write_text(options.json, Json(report(options, ways, lines)).dump(2) + "\n");
    if (!written.ok()) return written;
  }
  return chosen ? Status() : unreachable(options.server, chosen.error(), "fairlead serve");
}

}  // namespace

int explain_command(Words words) {
  Options options;
  Args args("explain",
            "Connects to a server by every transport of this host, one after the other, and says which one a session "
            "takes, what each of the others would need, and how long a path took to set up.",
            "Examples:\n  fairlead explain gpu7:7471\n  fairlead explain gpu7:7471 --forbid software --json -");
  args.positional("HOST:PORT", "Where the server listens", set_places(&options.server));
  args.option("--json", "FILE", "Write a report; - for standard output", set_text(&options.json));
  add_engine_options(args, &options.config);
  if (const auto exit = args.parse(words)) return *exit;
  Console console("explain", options.json == "-");
  Result<Engine> engine = Engine::create(options.config);
  if (!engine) return console.no_engine(engine.error());
  const Status status = explain(*engine, options);
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
