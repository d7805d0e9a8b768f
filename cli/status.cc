#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "base/printable.h"
#include "bench/base/file_output.h"
#include "bench/base/json.h"
#include "bench/base/sizes.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/commands.h"
#include "cli/tenants/http_get.h"
#include "cli/tenants/tenant_rates.h"

namespace fairlead::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{5000};

struct Options {
  std::string server, json;
  double interval = 1;  // seconds
  bool once = false;
};

std::atomic<bool> g_stop{false};

struct Reading {
  std::map<std::string, TenantReading> tenants;
  steady_clock::time_point at;
};

Result<Reading> read(const std::string& server) {
  const Result<std::string> text = http_get(server, "/metrics", kPatience);
  if (!text) return text.error();
  Result<std::map<std::string, TenantReading>> tenants = read_tenants(*text);
  if (!tenants) return Status(tenants.error().code(), fmt::format("{}: {}", server, tenants.error().message()));
  return Reading{*std::move(tenants), steady_clock::now()};
}

/// Sleeps in slices: a signal ends it soon.
void pause(double seconds) {
  const auto end = steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!g_stop && steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

std::string table(const std::string& server, const std::vector<TenantRates>& all) {
  std::string text = fmt::format("{}: {} tenant{}\n", printable(server), all.size(), all.size() == 1 ? "" : "s");
  text += fmt::format("{:<20} {:>8} {:>10} {:>8} {:>12} {:>12} {:>12} {:>6} {:>6} {:>8} {:>7}\n", "tenant", "sessions",
                      "memory", "waiting", "commands/s", "in/s", "out/s", "busy", "share", "rejected", "failed");
  for (const TenantRates& each : all) {
    const double failures = each.now.failures[0] + each.now.failures[1] + each.now.failures[2];
    text += fmt::format(
        "{:<20} {:>8.0f} {:>10} {:>8.0f} {:>12.0f} {:>12} {:>12} {:>5.0f}% {:>5.0f}% {:>8.0f} {:>7.0f}\n",
        printable(each.name), each.now.sessions, bench::format_bytes(each.now.memory_bytes), each.now.waiting,
        each.commands, bench::format_bytes(each.bytes_in), bench::format_bytes(each.bytes_out), 100 * each.busy,
        100 * each.share, each.now.rejections, failures);
  }
  return text;
}

/// What came as a number of Prometheus' is a count, if it can be one.
std::uint64_t count(double value) {
  constexpr double kMost = 9e18;
  return value >= 0 && value < kMost ? static_cast<std::uint64_t>(value) : 0;
}

bench::Json document(const std::string& server, const std::vector<TenantRates>& all, double seconds) {
  bench::Json::Array tenants;
  for (const TenantRates& each : all) {
    tenants.push_back(bench::Json::Object{{"name", each.name},
                                          {"sessions", count(each.now.sessions)},
                                          {"memory_bytes", count(each.now.memory_bytes)},
                                          {"waiting", count(each.now.waiting)},
                                          {"commands", count(each.now.commands)},
                                          {"commands_per_second", each.commands},
                                          {"bytes_in_per_second", each.bytes_in},
                                          {"bytes_out_per_second", each.bytes_out},
                                          {"busy", each.busy},
                                          {"share", each.share},
                                          {"rejections", count(each.now.rejections)},
                                          {"failures", bench::Json::Object{{"command", count(each.now.failures[0])},
                                                                           {"stream", count(each.now.failures[1])},
                                                                           {"context", count(each.now.failures[2])}}}});
  }
  return bench::Json::Object{
      {"schema", "fairlead.status/1"}, {"server", server}, {"seconds", seconds}, {"tenants", std::move(tenants)}};
}

int run(const Options& options, Console& console) {
  const bool refreshes = options.json.empty() && !options.once && ::isatty(STDOUT_FILENO) == 1;
  const auto failed = [&](const Status& why) {
    console.error(why);
    return kFailure;
  };
  Result<Reading> before = read(options.server);
  if (!before) return failed(before.error());
  do {
    pause(options.interval);
    Result<Reading> now = read(options.server);
    if (!now) return failed(now.error());
    const double seconds = std::chrono::duration<double>(now->at - before->at).count();
    const std::vector<TenantRates> all = rates(before->tenants, now->tenants, seconds);
    if (!options.json.empty()) {
      const Status written = bench::write_text(options.json, document(options.server, all, seconds).dump(2) + "\n");
      return written.ok() ? kSuccess : failed(written);
    }
    constexpr std::string_view kClear = "\x1b[H\x1b[J";
    fmt::print("{}{}", refreshes ? kClear : "", table(options.server, all));
    std::fflush(stdout);
    before = std::move(now);
  } while (refreshes && !g_stop);
  return kSuccess;
}

}  // namespace

int status_command(Words words) {
  Options options;
  Args args(
      "status",
      "Shows a GPU server's tenants: what each has, and how fast it goes. On a terminal it refreshes until Ctrl-C; "
      "else it says it once.",
      "Examples:\n  fairlead status gpu7:9100          the --metrics address of `fairlead serve --gpu`\n"
      "  fairlead status gpu7:9100 --json - --interval 10");
  args.positional("HOST:PORT", "Where the server has its metrics", set_host_port(&options.server, true));
  args.option("--interval", "S", "Seconds that rates are over (default 1)", set_seconds(&options.interval, 0.05, 3600));
  args.flag("--once", &options.once, "Once, also on a terminal");
  args.option("--json", "FILE", "Write it as JSON, once; - for standard output", set_text(&options.json));
  if (const auto exit = args.parse(words)) return *exit;
  struct sigaction action{};
  action.sa_handler = [](int) { g_stop.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  Console console("status", options.json == "-");
  return run(options, console);
}

}  // namespace fairlead::cli
