#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/base/args.h"
#include "cli/base/engine_options.h"
#include "cli/commands.h"
#include "cli/server/front.h"
#include "cli/server/reloads.h"
#include "cli/server/status_page.h"
#include "cli/tenants/tenant_metrics.h"
#include "cli/tenants/tenants_file.h"
#include "fairlead/command_service.h"
#include "fairlead/cuda_executor.h"
#include "fairlead/host_executor.h"

namespace fairlead::cli {
namespace {

using command::Service;
using command::ServiceConfig;
using command::Sharing;
using command::Tenant;

struct Options {
  EngineConfig config;
  ServiceConfig service;
  FrontOptions front;
  std::string gpu, tenants, sharing = "best-effort";
  std::uint64_t memory = std::uint64_t{1} << 30;
  double keep_away = 60;
  bool threads = false;
  bool one_session = false;
};

constexpr std::string_view kCuda = "cuda:";
constexpr std::size_t kMostDevices = 16;  // of a service

/// The words between commas.
std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> words;
  for (std::size_t end = 0; end != std::string_view::npos; list.remove_prefix(end + 1)) {
    end = list.find(',');
    words.emplace_back(list.substr(0, end));
    if (end == std::string_view::npos) break;
  }
  return words;
}

/// "host" or "cuda:N", or several of them with commas between.
Setter set_gpu(std::string* target) {
  return [target](std::string_view text) {
    const auto wrong = [](std::string why) { return Status(Code::kInvalidArgument, std::move(why)); };
    const std::vector<std::string> words = words_of(text);
    std::set<std::string_view> gpus;
    for (const std::string_view word : words) {
      int ordinal = 0;
      const bool is_cuda = word.starts_with(kCuda) && set_number(&ordinal, 0, 1023)(word.substr(kCuda.size())).ok();
      if (word != "host" && !is_cuda) {
        return wrong(fmt::format(
            "'{}' is no device (legal: host, cuda:0, cuda:1 and so on, several with commas between)", word));
      }
      if (is_cuda && !gpus.insert(word).second) return wrong(fmt::format("'{}' is there twice", word));
    }
    if (words.size() > kMostDevices) {
      return wrong(fmt::format("'{}' are {} devices, and a server has at most {}", text, words.size(), kMostDevices));
    }
    *target = text;
    return Status();
  };
}

Result<command::ExecutorFactory> executors_of(const std::string& gpu, const Options& options) {
  if (gpu == "host") {
    command::HostExecutorConfig host;
    host.memory_bytes = options.memory;
    return command::host_executors(std::move(host));
  }
  command::CudaExecutorConfig cuda;
  cuda.ordinal = std::stoi(gpu.substr(kCuda.size()));
  cuda.memory_bytes = options.memory;
  cuda.own_process = options.one_session;
  return command::cuda_executors(std::move(cuda));
}

Result<std::vector<command::ServedDevice>> devices_of(const Options& options) {
  std::vector<command::ServedDevice> devices;
  for (std::string& gpu : words_of(options.gpu)) {
    Result<command::ExecutorFactory> executors = executors_of(gpu, options);
    if (!executors) return Status(executors.error().code(), fmt::format("{}: {}", gpu, executors.error().message()));
    devices.push_back({std::move(gpu), *std::move(executors)});
  }
  return devices;
}

Setter set_memory(std::uint64_t* target) { return set_size(target, 4096, std::uint64_t{1} << 50); }

constexpr const char* kOneSession = "--one-session";

/// Of a session's process, which has all that it needs from start(): environment and file say what the server is to do,
/// and are to be no reason for a session to fail.
int serve_one(Words words) {
  Options options;
  Args args("serve --gpu --one-session", "Runs one session of a server, which starts it; it is of no other use.", "");
  args.flag(kOneSession, &options.one_session, "That it does so");
  args.option("--gpu", "WHICH", "As the server's", set_gpu(&options.gpu));
  args.option("--memory", "SIZE", "As the server's", set_memory(&options.memory));
  if (const auto exit = args.parse(words)) return *exit;
  const Result<std::vector<command::ServedDevice>> devices = devices_of(options);
  if (devices) return command::serve_session(*devices);
  Console("serve").error(devices.error());
  return kFailure;
}

Sharing sharing_of(std::string_view word) {
  if (word == "equal") return Sharing::kEqual;
  if (word == "fixed") return Sharing::kFixed;
  return word == "free" ? Sharing::kFree : Sharing::kBestEffort;
}

/// Keys and tenants, from their files. Keys first: whose key is gone goes, whatever the tenants are. A file that cannot
/// be read, or is wrong in itself, changes nothing.
Status reload(Service& service, const Options& options) {
  constexpr std::string_view kStill = "; what was read before still holds";
  const auto but = [](const Status& status, std::string_view what) {
    return Status(status.code(), status.message() + std::string(what));
  };
  Result<std::vector<Tenant>> tenants = options.tenants.empty() ? std::vector<Tenant>() : load_tenants(options.tenants);
  if (!tenants) return but(tenants.error(), kStill);
  if (const Status keys = service.engine().reload_keys(); !keys.ok()) return but(keys, kStill);
  if (options.tenants.empty()) return {};
  const Status set = service.set_tenants(*std::move(tenants));
  return set.ok() ? set : but(set, "; the tenants that were read before still hold, the keys are the new ones");
}

void reload(Service& service, const Options& options, Reloads& reloads, Console& console) {
  if (options.config.keys_file.empty()) {
    console.line("SIGHUP: nothing is to be read again, as there are no keys and tenants");
  } else if (const Status done = reload(service, options); !done.ok()) {
    ++reloads.failed;
    console.error(done);
  } else {
    ++reloads.done;
    console.line(options.tenants.empty() ? "the keys were read again" : "the tenants and the keys were read again");
  }
}

Status serve(Service& service, const Options& options, Front& front, int signal_fd, Console& console) {
  Reloads reloads;
  const auto own = [&] {
    std::vector<metrics::Metric> all = tenant_metrics(service.stats(), service.tenants(), service.devices());
    all.push_back(reloads.metric());
    return all;
  };
  const auto own_status = [&service](bench::Json::Object& page) {
    page.emplace_back("clients", peers_of(service.engine()));
    page.emplace_back("tenants", std::uint64_t{service.tenants().size()});
    bench::Json::Array devices;
    for (const std::string& name : service.devices()) devices.emplace_back(name);
    page.emplace_back("devices", std::move(devices));
  };
  const auto exposition = front.open(service.engine(), own, own_status);
  if (!exposition) return exposition.error();
  if (const Status ready = front.ready(service.listen_address()); !ready.ok()) return ready;
  ServerSignals::Served served{[&] { service.drain(); }, [&] { return service.stats().sessions != 0; },
                               [&] { reload(service, options, reloads, console); }};
  ServerSignals signals = front.signals(signal_fd, std::move(served));
  while (!signals.now()) {
    pollfd fd{signals.fd(), POLLIN, 0};
    ::poll(&fd, 1, front.poll_ms(signals.poll_ms()));
    front.alive();
    if (fd.revents != 0) signals.came();
  }
  console.line("ending");
  return {};
}

Result<Service> start(Options& options) {
  if (!options.tenants.empty()) {
    Result<std::vector<Tenant>> tenants = load_tenants(options.tenants);
    if (!tenants) return tenants.error();
    options.service.tenants = *std::move(tenants);
  }
  options.service.sharing = sharing_of(options.sharing);
  options.service.keep_away = std::chrono::milliseconds(static_cast<std::int64_t>(options.keep_away * 1000));
  // Asked in any case: what there is no driver for is better said now than to each client.
  Result<std::vector<command::ServedDevice>> devices = devices_of(options);
  if (!devices) return devices.error();
  options.service.devices = *std::move(devices);
  if (!options.threads) {  // this program again, whatever has become of its file
    options.service.program = {
        "/proc/self/exe", "serve", "--gpu", options.gpu, kOneSession, "--memory", std::to_string(options.memory)};
  }
  Result<Engine> engine = Engine::create(options.config);
  if (!engine) return engine.error();
  return Service::start(*std::move(engine), options.service);
}

}  // namespace

int serve_gpu_command(Words words) {
  if (std::ranges::find(words, std::string_view(kOneSession)) != words.end()) return serve_one(words);
  Options options;
  options.config.listen = ":7471";
  Args args(
      "serve --gpu",
      "Serves devices to programs at other hosts, over command channels. With --keys clients show who they are, "
      "and --tenants says what each may have. SIGTERM or SIGINT takes no new sessions and ends it when those that "
      "are there have ended, a second one at once. SIGHUP reads keys and tenants again, if there are any.",
      "Examples:\n"
      "  fairlead serve --gpu host\n"
      "  fairlead serve --gpu cuda:0 --memory 8G\n"
      "  fairlead serve --gpu cuda:0,cuda:1,cuda:2\n"
      "  fairlead serve --gpu host --listen 0.0.0.0:7471 --keys keys --tenants tenants --sharing equal "
      "--metrics :9100\n"
      "A file of tenants has a line for each: NAME memory=8G sessions=4 channels=16 commands=2048 bandwidth=1G "
      "share=25% devices=0,2\nSee docs/commands.md, docs/gpu_server.md.");
  args.option(
      "--gpu", "WHICH",
      "The device: host (this host's memory and processor), or cuda:0, cuda:1 and so on. Several with commas "
      "between, at most 16, have the numbers 0, 1 and so on in this order, whatever their names: a session says "
      "which it wants, and has the first of those that it may use if it says nothing",
      set_gpu(&options.gpu));
  args.option("--tenants", "FILE",
              "Who may come, and what each may have, by the names of --keys (default: everybody, all there is)",
              set_text(&options.tenants));
  args.option("--sharing", "POLICY",
              "How tenants share each device: best-effort (by turns), equal (of its time), fixed (the share of each, "
              "which is not lent out), free (all at once; default best-effort)",
              set_choice(&options.sharing, {"best-effort", "equal", "fixed", "free"}));
  args.flag(
      "--threads", &options.threads,
      "Run sessions in threads of the server, which is faster for small commands; else each has a process of its own, "
      "and one that crashes or hangs harms no other");
  args.option("--memory", "SIZE", "Of each device that it has, for each session (default 1G)",
              set_memory(&options.memory));
  args.option("--max-sessions", "N", "At once (default 64)", set_number(&options.service.max_sessions, 1, 65536));
  args.option("--window", "SIZE",
              "Of each session, from its first large copy on: memory that its client writes copies into; 1 MiB at "
              "least, or 0: they come by messages, which is slower (default 8M)",
              set_size(&options.service.window_bytes, 0, std::uint64_t{1} << 30));
  args.option(
      "--keep-away", "SECONDS",
      "How long a session whose connection is lost for good is kept for its client, with all that it has, if that "
      "wishes to go on with it over another; 0: not at all (default 60)",
      set_seconds(&options.keep_away, 0, 86'400));
  args.option("--most-away", "N",
              "Sessions of a tenant that are kept so; of more the one that was lost first ends (default 4)",
              set_number(&options.service.most_away, 0, 65536));
  args.option("--listen", "HOST:PORT",
              "Where to listen. Without a host it is 127.0.0.1, but every address with --keys; port 0 takes a free one "
              "(default :7471)",
              set_host_port(&options.config.listen, false));
  add_front_options(args, &options.front, "sessions to end");
  add_engine_options(args, &options.config);
  args.rule([&] {
    const bool nameless = !options.tenants.empty() && options.config.keys_file.empty();
    return nameless ? std::string("--tenants names principals, whom --keys FILE knows: give that, too") : std::string();
  });
  if (const auto exit = args.parse(words)) return *exit;

  options.front.named_no_host = options.config.listen.starts_with(':') && options.config.keys_file.empty();
  if (options.front.named_no_host) options.config.listen.insert(0, "127.0.0.1");
  Console console("serve", Console::Lines::kLogged);
  Front front(options.front, "serve-gpu", console);
  Status status = front.begin();
  const Result<UniqueFd> signals = catch_signals();  // before the engine has threads
  if (status.ok() && !signals) status = signals.error();
  if (status.ok()) {
    Result<Service> service = start(options);
    if (!service) return console.no_engine(service.error());
    status = serve(*service, options, front, signals->get(), console);
  }
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
