#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "bench/base/file_output.h"
#include "bench/base/json.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/commands.h"
#include "cli/server/server_reading.h"
#include "cli/status_tables.h"
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
  ServerReading server;
  std::map<std::string, TenantReading> tenants, devices;  // of a GPU server
  steady_clock::time_point at;
};

Result<Reading> read(const std::string& server) {
  const Result<std::string> page = http_get(server, "/status", kPatience);
  if (!page) return page.error();
  Result<ServerReading> said = read_server(*page);
  if (!said) return Status(said.error().code(), fmt::format("{}: {}", server, said.error().message()));
  Reading reading{*std::move(said), {}, {}, steady_clock::now()};
  if (reading.server.service != "serve-gpu") return reading;
  const Result<std::string> text = http_get(server, "/metrics", kPatience);
  if (!text) return text.error();
  Result<std::map<std::string, TenantReading>> tenants = read_tenants(*text);
  if (!tenants) return Status(tenants.error().code(), fmt::format("{}: {}", server, tenants.error().message()));
  reading.tenants = *std::move(tenants);
  reading.devices = read_devices(*text);
  return reading;
}

/// Sleeps in slices: a signal ends it soon.
void pause(double seconds) {
  const auto end = steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!g_stop && steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(20));
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
    set_rates(before->server, now->server, seconds);
    const GpuRates gpu{rates(before->tenants, now->tenants, seconds), rates(before->devices, now->devices, seconds)};
    if (!options.json.empty()) {
      const bench::Json document = status_document(options.server, now->server, gpu, seconds);
      const Status written = bench::write_text(options.json, document.dump(2) + "\n");
      return written.ok() ? kSuccess : failed(written);
    }
    constexpr std::string_view kClear = "\x1b[H\x1b[J";
    fmt::print("{}{}", refreshes ? kClear : "", status_tables(options.server, now->server, gpu));
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
      "Shows what a server does: its transports, paths and rates, who its clients are and how far each is, its models, "
      "and a GPU server's tenants. On a terminal it refreshes until Ctrl-C; else it says it once. What a transport "
      "carries is what the server's end sees of it: over verbs not what peers write and read without a word, over shm "
      "not what they read.",
      "Examples:\n  fairlead status gpu7:9100          the --metrics address of `fairlead serve`\n"
      "  fairlead status gpu7:9100 --json - --interval 10");
  args.positional("HOST:PORT", "Where the server has its metrics", set_host_port(&options.server, true));
  args.option("--interval", "S", "Seconds that rates are over (default 1)", set_seconds(&options.interval, 0.05, 3600));
  args.flag_by_itself("--once", &options.once, "Once, also on a terminal");
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
