#include <poll.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "bench/base/file_output.h"
#include "cli/base/args.h"
#include "cli/base/engine_options.h"
#include "cli/commands.h"
#include "cli/push_server.h"
#include "cli/ready_file.h"
#include "cli/serve_metrics.h"
#include "cli/server_front.h"
#include "cli/server_signals.h"

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

void reload_keys(Engine& engine, Console& console) {
  if (const Status done = engine.reload_keys(); done.ok()) {
    console.line("the keys were read again");
  } else {
    console.error({done.code(), done.message() + "; the keys that were read before still hold"});
  }
}

void serve_clients(Engine& engine, PushServer& server, ServerSignals& signals, bool once) {
  while ((!once || server.clients_ended() == 0) && !signals.now()) {
    pollfd fds[] = {{engine.event_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}, {server.wake_fd(), POLLIN, 0}};
    ::poll(fds, std::size(fds), signals.poll_ms());
    if (fds[1].revents != 0) signals.came();
    if (fds[2].revents != 0) server.progress();
    while (std::optional<Peer> peer = engine.accept()) server.on_connected(*peer);
    for (auto [peer, event] = engine.next_event(); event.kind != Event::Kind::kNone;
         std::tie(peer, event) = engine.next_event()) {
      server.on_event(peer, event);
    }
  }
}

// `signal_fd`: of catch_signals().
Status serve(Engine& engine, const Options& options, int signal_fd, Console& console) {
  ServeCounters counters;
  ModelStore store(&engine, options.max_bytes, options.max_push == 0 ? options.max_bytes : options.max_push);
  PushServer server(&store, &console, &counters,
                    {.check = options.check == "end" ? Check::kAtEnd : Check::kOnArrival, .shared = options.shared});

  auto exposition = start_metrics(options.metrics, engine, [&] { return serve_metrics(counters, store); });
  if (!exposition) return exposition.error();
  Status status = announce({.listen = engine.listen_address(),
                            .metrics = *exposition ? (*exposition)->address() : "",
                            .ready_file = options.ready_file,
                            .named_no_host = options.named_no_host},
                           console);
  if (!status.ok()) return status;
  const ReadyFile ready(options.ready_file);
  ServerSignals::Served served{[&] { server.drain(); }, [&] { return server.busy(); }};
  if (!options.config.keys_file.empty()) served.reload = [&] { reload_keys(engine, console); };
  ServerSignals signals(signal_fd, options.drain, std::move(served), console);
  serve_clients(engine, server, signals, options.once);
  console.line("ending");
  return {};
}

}  // namespace

int serve_command(Words words) {
  const auto names_gpu = [](std::string_view word) { return word == "--gpu" || word.starts_with("--gpu="); };
  if (std::ranges::any_of(words, names_gpu)) return serve_gpu_command(words);
  Options options;
  options.config.listen = ":7471";
  Args args("serve",
            "Accepts models from `fairlead push` into registered memory, checks every tensor, and hands them out "
            "to `fairlead pull`. Models live in memory only: they go with the server. SIGTERM or SIGINT "
            "ends it when what is under way is finished, a second one at once. With --keys SIGHUP reads the keys "
            "again: clients whose key is gone are cut off, and new ones may come.",
            "Examples:\n  fairlead serve\n"
            "  fairlead serve --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --ready-file ready.json\n"
            "  fairlead serve --gpu host --help      another server: of a device, for command channels");
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
