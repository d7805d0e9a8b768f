#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/unique_fd.h"
#include "bench/base/build_info.h"
#include "bench/base/file_output.h"
#include "bench/base/json.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/push_server.h"
#include "cli/serve_metrics.h"
#include "cli/softroce_metrics.h"
#include "metrics/engine_metrics.h"
#include "metrics/server.h"

namespace fairlead::cli {
namespace {

struct Options {
  EngineConfig config;
  std::string metrics, ready_file, check = "end";
  std::uint64_t max_bytes = std::uint64_t{4} << 30;
  std::uint64_t max_push = 0;  // 0: as max_bytes
  double drain = 20;           // seconds
  bool once = false;
  bool shared = false;
  bool named_no_host = false;
};

// SIGTERM, SIGINT and SIGHUP as a descriptor. Blocked first, so that every thread made later leaves them to it. A
// SIGHUP that nohup has us ignore would come all the same: what is blocked is kept.
Result<UniqueFd> catch_signals(bool has_keys) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&set, signal);
  struct sigaction now{};
  ::sigaction(SIGHUP, nullptr, &now);
  if (has_keys || now.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  if (::pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) return Status(Code::kInternal, "cannot block SIGTERM");
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return Status(Code::kResourceExhausted, "cannot create a signal descriptor");
  return fd;
}

// The ready file says that a server is there, so it goes with the server. A device or a pipe stays.
class ReadyFile {
 public:
  explicit ReadyFile(std::string path) : path_(std::move(path)) {}
  ~ReadyFile() {
    struct stat info{};
    if (!path_.empty() && ::lstat(path_.c_str(), &info) == 0 && S_ISREG(info.st_mode)) ::unlink(path_.c_str());
  }
  ReadyFile(const ReadyFile&) = delete;
  ReadyFile& operator=(const ReadyFile&) = delete;

 private:
  std::string path_;
};

using std::chrono::steady_clock;

// The first signal lets what is under way finish, for so long; the second ends at once. SIGHUP has the keys read again,
// if there are any; else it is a signal to end, as ever.
class Signals {
 public:
  Signals(int fd, double seconds, bool has_keys, Console& console)
      : fd_(fd), seconds_(seconds), has_keys_(has_keys), console_(console) {}

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] int poll_ms() const {
    if (signals_ == 0) return -1;
    constexpr std::int64_t kAgain = 50;  // whether an answer has arrived is no event
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(by_ - steady_clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, kAgain));
  }
  void came(Engine& engine, PushServer& server) {
    signalfd_siginfo signal{};
    const std::size_t before = signals_;
    while (::read(fd_, &signal, sizeof signal) == sizeof signal) {
      if (has_keys_ && signal.ssi_signo == SIGHUP) {
        reload_keys(engine);
      } else {
        ++signals_;
      }
    }
    if (before != 0 || signals_ == 0) return;
    server.drain();
    by_ = steady_clock::now() +
          std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds_));
    if (server.busy() && seconds_ > 0) {
      console_.line(
          fmt::format("ending when what is under way is finished, in {:g} s at most; a second signal ends it "
                      "now",
                      seconds_));
    }
  }
  [[nodiscard]] bool now(PushServer& server) const {
    if (signals_ == 0) return false;
    if (!server.busy()) return true;
    if (signals_ < 2 && steady_clock::now() < by_) return false;
    console_.line("what was under way is dropped");
    return true;
  }

 private:
  void reload_keys(Engine& engine) {
    if (const Status done = engine.reload_keys(); done.ok()) {
      console_.line("the keys were read again");
    } else {
      console_.error({done.code(), done.message() + "; the keys that were read before still hold"});
    }
  }

  int fd_;
  double seconds_;
  bool has_keys_;
  Console& console_;
  std::size_t signals_ = 0;
  steady_clock::time_point by_{};
};

void serve_clients(Engine& engine, PushServer& server, Signals& signals, bool once) {
  while ((!once || server.clients_ended() == 0) && !signals.now(server)) {
    pollfd fds[] = {{engine.event_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}, {server.wake_fd(), POLLIN, 0}};
    ::poll(fds, std::size(fds), signals.poll_ms());
    if (fds[1].revents != 0) signals.came(engine, server);
    if (fds[2].revents != 0) server.progress();
    while (std::optional<Peer> peer = engine.accept()) server.on_connected(*peer);
    for (auto [peer, event] = engine.next_event(); event.kind != Event::Kind::kNone;
         std::tie(peer, event) = engine.next_event()) {
      server.on_event(peer, event);
    }
  }
}

Status announce(const Options& options, const std::string& listen, const std::string& metrics, Console& console) {
  console.line("listening on " + listen);
  if (options.named_no_host) {
    console.line(
        "that is for this host alone; --listen 0.0.0.0:PORT serves other hosts, and everybody who reaches it there");
  }
  if (!metrics.empty()) console.line(fmt::format("metrics on http://{}/metrics", metrics));
  if (options.ready_file.empty()) return {};
  const bench::Json::Object ready{{"listen", listen}, {"metrics", metrics}};
  return bench::write_text(options.ready_file, bench::Json(ready).dump() + "\n");
}

// `signal_fd`: of catch_signals().
Status serve(Engine& engine, const Options& options, int signal_fd, Console& console) {
  ServeCounters counters;
  ModelStore store(&engine, options.max_bytes, options.max_push == 0 ? options.max_bytes : options.max_push);
  PushServer server(&store, &console, &counters,
                    {.check = options.check == "end" ? Check::kAtEnd : Check::kOnArrival, .shared = options.shared});

  std::unique_ptr<metrics::MetricsServer> exposition;
  if (!options.metrics.empty()) {
    auto started = metrics::MetricsServer::start(options.metrics, [&] {
      std::vector<metrics::Metric> all = metrics::engine_metrics(engine.stats());
      for (metrics::Metric& metric : metrics::placement_metrics(engine.placement())) all.push_back(std::move(metric));
      const bench::BuildInfo& build = bench::build_info();
      all.push_back(
          metrics::build_metric(std::string(build.version), std::string(build.commit), std::string(build.build_type)));
      for (metrics::Metric& metric : serve_metrics(counters, store)) all.push_back(std::move(metric));
      for (metrics::Metric& metric : softroce_metrics(softroce_devices(), static_cast<std::uint32_t>(::getpid()))) {
        all.push_back(std::move(metric));
      }
      return all;
    });
    if (!started) return started.error();
    exposition = *std::move(started);
  }
  Status status = announce(options, engine.listen_address(), exposition ? exposition->address() : "", console);
  if (!status.ok()) return status;
  const ReadyFile ready(options.ready_file);
  Signals signals(signal_fd, options.drain, !options.config.keys_file.empty(), console);
  serve_clients(engine, server, signals, options.once);
  console.line("ending");
  return {};
}

}  // namespace

int serve_command(Words words) {
  Options options;
  options.config.listen = ":7471";
  Args args("serve",
            "Accepts models from `fairlead push` into registered memory, checks every tensor, and hands them out "
            "to `fairlead pull`. Models live in memory only: they go with the server. SIGTERM or SIGINT "
            "ends it when what is under way is finished, a second one at once. With --keys SIGHUP reads the keys "
            "again: clients whose key is gone are cut off, and new ones may come.",
            "Examples:\n  fairlead serve\n"
            "  fairlead serve --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --ready-file ready.json");
  args.option(
      "--listen", "HOST:PORT",
      "Where to listen. Whoever can connect may push and pull, so without a host it is 127.0.0.1, but every address "
      "with --keys; 0.0.0.0 or an address of the host serves others. Port 0 takes a free one (default :7471)",
      set_host_port(&options.config.listen, false));
  args.option("--metrics", "HOST:PORT", "Serve /metrics and /healthz there (default: not at all)",
              set_host_port(&options.metrics, false));
  args.option("--ready-file", "FILE", "Written when ready, removed at the end: {\"listen\": ..., \"metrics\": ...}",
              set_text(&options.ready_file));
  args.option("--max-bytes", "SIZE",
              "Memory for models, and as much again for pushes under way; the oldest model makes room for a new one "
              "when that is verified (default 4G)",
              set_size(&options.max_bytes, 1, std::uint64_t{1} << 50));
  args.option("--max-push", "SIZE",
              "What one client may push at once, or all of one principal together (default as --max-bytes)",
              set_size(&options.max_push, 1, std::uint64_t{1} << 50));
  args.option("--check", "WHEN", "When to compute checksums: end or arrival of each tensor (default end)",
              set_choice(&options.check, {"end", "arrival"}));
  args.option("--drain", "SECONDS",
              "How long SIGTERM or SIGINT waits for pushes and pulls under way, 0 for not at all (default 20)",
              set_seconds(&options.drain, 0, 86'400));
  args.flag("--shared", &options.shared,
            "With --keys: every client may pull, list and replace every model, not only the principal who pushed it");
  args.flag("--once", &options.once, "End when the first client has gone");
  add_engine_options(args, &options.config);
  set_push_limits(&options.config);
  if (const auto exit = args.parse(words)) return *exit;

  options.named_no_host = options.config.listen.starts_with(':') && options.config.keys_file.empty();
  if (options.named_no_host) options.config.listen.insert(0, "127.0.0.1");

  Console console("serve");
  Status status = options.ready_file.empty() ? Status() : bench::check_writable(options.ready_file);
  const Result<UniqueFd> signals = catch_signals(!options.config.keys_file.empty());  // before the engine has threads
  if (status.ok() && !signals) status = signals.error();
  if (status.ok()) {
    Result<Engine> engine = Engine::create(options.config);
    if (!engine) return console.no_engine(engine.error());
    status = serve(*engine, options, signals->get(), console);
  }
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
