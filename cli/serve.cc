#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>

#include "cli/base/args.h"
#include "cli/base/engine_options.h"
#include "cli/base/settings_file.h"
#include "cli/commands.h"
#include "cli/push_server.h"
#include "cli/serve_metrics.h"
#include "cli/serve_status.h"
#include "cli/serve_store.h"
#include "cli/server/front.h"
#include "cli/server/quotas_file.h"
#include "fairlead/log.h"

namespace fairlead::cli {
namespace {

constexpr std::uint64_t kMostSize = std::uint64_t{1} << 50;

struct Options {
  EngineConfig config;
  FrontOptions front;
  std::string check = "end", store, quotas;
  std::uint64_t max_bytes = std::uint64_t{4} << 30;
  std::uint64_t max_push = 0;       // 0: as max_bytes
  std::uint64_t spare = kMostSize;  // of max_bytes at most
  bool once = false;
  bool shared = false;
};

/// Says so of quotas that nobody can have: nobody has the key.
void look_at(const Quotas& quotas, const Engine& engine, const Options& options) {
  for (const std::string& name : quotas.principals()) {
    if (engine.knows(name)) continue;
    log(LogLevel::kWarning,
        fmt::format("the quota of '{0}' ({1}): the keys file ({2}) has no line for that name, so nobody can be it; add "
                    "one (`fairlead key {0}`), or take the quota out",
                    name, options.quotas, options.config.keys_file));
  }
}

/// Keys and quotas, from their files: all of it, or nothing changes.
Status reload(Engine& engine, ModelStore& store, const Options& options) {
  Result<Quotas> quotas = options.quotas.empty() ? Quotas() : load_quotas(options.quotas);
  if (!quotas) return quotas.error();
  const Status done = engine.reload_keys();
  if (done.ok()) look_at(*quotas, engine, options);
  if (done.ok()) store.set_quotas(*std::move(quotas));
  return done;
}

void reload(Engine& engine, ModelStore& store, const Options& options, ServeCounters& counters, Console& console) {
  if (options.config.keys_file.empty()) {
    console.line("SIGHUP: nothing is to be read again, as there are no keys and quotas");
  } else if (const Status done = reload(engine, store, options); done.ok()) {
    ++counters.reloads.done;
    console.line(options.quotas.empty() ? "the keys were read again" : "the quotas and the keys were read again");
  } else {
    ++counters.reloads.failed;
    console.error({done.code(), done.message() + (options.quotas.empty() ? "; the keys that were read before still hold"
                                                                         : "; what was read before still holds")});
  }
}

// Clients that never stop must not keep signals, the watchdog and finished pushes waiting.
constexpr int kMostOfARound = 256;

void serve_clients(Engine& engine, PushServer& server, Front& front, ServerSignals& signals, bool once) {
  while ((!once || server.clients_ended() == 0) && !signals.now()) {
    pollfd fds[] = {{engine.event_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}, {server.wake_fd(), POLLIN, 0}};
    ::poll(fds, std::size(fds), front.poll_ms(signals.poll_ms()));
    front.alive();
    if (fds[1].revents != 0) signals.came();
    if (fds[2].revents != 0) server.progress();
    // What is left keeps the engine's descriptor readable.
    for (int i = 0; i < kMostOfARound; ++i) {
      const std::optional<Peer> peer = engine.accept();
      if (!peer) break;
      server.on_connected(*peer);
    }
    for (int i = 0; i < kMostOfARound; ++i) {
      const auto [peer, event] = engine.next_event();
      if (event.kind == Event::Kind::kNone) break;
      server.on_event(peer, event);
    }
  }
}

// `signal_fd`: of catch_signals().
Status serve(Engine& engine, const Options& options, Front& front, int signal_fd, Console& console) {
  ServeCounters counters;
  ModelStore store(&engine, {.bytes = options.max_bytes,
                             .push = options.max_push == 0 ? options.max_bytes : options.max_push,
                             .spare = {.most = std::min(options.spare, options.max_bytes)}});
  if (!options.quotas.empty()) {
    Result<Quotas> quotas = load_quotas(options.quotas);
    if (!quotas) return quotas.error();
    look_at(*quotas, engine, options);
    store.set_quotas(*std::move(quotas));
  }
  std::unique_ptr<ModelDisk> disk;
  if (!options.store.empty()) {
    Result<std::unique_ptr<ModelDisk>> opened = ModelDisk::open(options.store);
    if (!opened) return opened.error();
    disk = *std::move(opened);
  }
  PushServer server(&store, &console, &counters,
                    {.check = options.check == "end" ? Check::kAtEnd : Check::kOnArrival,
                     .disk = disk.get(),
                     .shared = options.shared});

  const auto exposition = front.open(
      engine, [&] { return serve_metrics(counters, store); },
      [&](bench::Json::Object& page) { add_serve_status(page, server, counters, store); });
  if (!exposition) return exposition.error();
  if (disk != nullptr) {
    const Status loaded = load_models(*disk, store, counters, front, console, &end_is_pending);
    if (loaded.code() == Code::kCancelled) {
      console.line("ending, with " + loaded.message());
      return {};
    }
    if (!loaded.ok()) return loaded;
  }
  if (const Status ready = front.ready(engine.listen_address()); !ready.ok()) return ready;
  ServerSignals::Served served{[&] { server.drain(); }, [&] { return server.busy(); },
                               [&] { reload(engine, store, options, counters, console); }};
  ServerSignals signals = front.signals(signal_fd, std::move(served));
  serve_clients(engine, server, front, signals, options.once);
  console.line("ending");
  return {};
}

/// Whether it is a device that is served: --gpu, or its like in the environment or the file of settings.
bool serves_gpu(Words words) {
  const auto names_gpu = [](std::string_view word) { return word == "--gpu" || word.starts_with("--gpu="); };
  if (std::ranges::any_of(words, names_gpu) || std::getenv("FAIRLEAD_GPU") != nullptr) return true;
  const std::optional<std::string> path = settings_path(words);
  const auto settings = path ? load_settings(*path) : Result<std::vector<Setting>>(std::vector<Setting>());
  return settings && std::ranges::any_of(*settings, [](const Setting& each) { return each.name == "gpu"; });
}

}  // namespace

int serve_command(Words words) {
  if (serves_gpu(words)) return serve_gpu_command(words);
  Options options;
  options.config.listen = ":7471";
  // A thread of ours that has waited for data sums it, and drives nothing meanwhile.
  options.config.progress = fairlead::Progress::kThread;
  Args args(
      "serve",
      "Accepts models from `fairlead push` into registered memory, checks every tensor, and hands them out "
      "to `fairlead pull`. Models live in memory, and with --store on disk too; without, they go with the server. "
      "SIGTERM or SIGINT drains it: what is new is refused, and it ends when what is under way is finished; a "
      "second one ends it at once. SIGHUP reads keys and quotas again, if there are any: clients whose key is gone are "
      "cut off, and new ones may come.",
      "Examples:\n  fairlead serve\n"
      "  fairlead serve --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --ready-file ready.json\n"
      "  fairlead serve --config /etc/fairlead/fairlead.conf      lines as: listen = 0.0.0.0:7471\n"
      "  fairlead serve --gpu host --help      another server: of a device, for command channels\n"
      "As a service of systemd: docs/operations.md.");
  args.option(
      "--listen", "HOST:PORT",
      "Where to listen. Whoever can connect may push and pull, so without a host it is 127.0.0.1, but every address "
      "with --keys; 0.0.0.0 or an address of the host serves others. Port 0 takes a free one (default :7471)",
      set_host_port(&options.config.listen, false));
  args.option("--max-bytes", "SIZE",
              "Memory for models, and as much again for pushes under way; the oldest model makes room for a new one "
              "when that is verified (default 4G)",
              set_size(&options.max_bytes, 1, kMostSize));
  args.option("--max-push", "SIZE",
              "What one client may push at once, or all of one principal together (default as --max-bytes)",
              set_size(&options.max_push, 1, kMostSize));
  args.option(
      "--spare", "SIZE",
      "Memory of models that are gone to keep, cleared, for the next, which are then pushed faster; it goes back "
      "after 5 minutes without use, and where it would be more than --max-bytes twice with all else (default as "
      "--max-bytes)",
      set_size(&options.spare, 0, kMostSize));
  args.option("--check", "WHEN", "When to compute checksums: end or arrival of each tensor (default end)",
              set_choice(&options.check, {"end", "arrival"}));
  args.option(
      "--store", "DIR",
      "Keep verified models on disk there, too, and load them when the server begins; a damaged one is named and "
      "set aside (default: memory alone)",
      unless_empty(set_text(&options.store)));
  args.option("--quotas", "FILE",
              "What each principal of --keys may have, a line for each: NAME memory=8G models=10 push=2G sessions=4; "
              "beyond memory or models its own oldest make room (default: no limit but the server's)",
              set_text(&options.quotas));
  args.flag("--shared", &options.shared,
            "With --keys: every client may pull, list and replace every model, not only the principal who pushed it");
  args.flag("--once", &options.once, "End when the first client has gone");
  add_front_options(args, &options.front, "pushes and pulls under way");
  add_engine_options(args, &options.config);
  set_push_limits(&options.config);
  args.rule([&]() -> std::string {
    if (options.quotas.empty()) return "";
    if (options.config.keys_file.empty()) return "--quotas names principals, whom --keys FILE knows: give that, too";
    return options.shared ? "--quotas are each principal's, and with --shared models are everybody's" : "";
  });
  if (const auto exit = args.parse(words)) return *exit;

  options.front.named_no_host = options.config.listen.starts_with(':') && options.config.keys_file.empty();
  if (options.front.named_no_host) options.config.listen.insert(0, "127.0.0.1");

  Console console("serve", Console::Lines::kLogged);
  Front front(options.front, "serve", console);
  Status status = front.begin();
  const Result<UniqueFd> signals = catch_signals();  // before the engine has threads
  if (status.ok() && !signals) status = signals.error();
  if (status.ok()) {
    Result<Engine> engine = Engine::create(options.config);
    if (!engine) return console.no_engine(engine.error());
    status = serve(*engine, options, front, signals->get(), console);
  }
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
