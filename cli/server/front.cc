#include "cli/server/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "bench/base/file_output.h"
#include "bench/base/json.h"
#include "cli/base/log_options.h"
#include "cli/server/status_page.h"
#include "metrics/engine_metrics.h"
#include "metrics/port_range.h"
#include "metrics/process.h"

namespace fairlead::cli {

using metrics::Metric;
using metrics::Page;
using metrics::PageText;

namespace {

Setter set_port_range(std::string* target) {
  return [target](std::string_view text) {
    const Result<metrics::PortRange> range = metrics::parse_port_range(text);
    if (range) *target = text;
    return range.status();
  };
}

std::vector<Metric> with_build(std::vector<Metric> all) {
  all.push_back(metrics::build_metric());
  return all;
}

}  // namespace

void add_front_options(Args& args, FrontOptions* options, const std::string& drains) {
  args.option(
      "--metrics", "HOST:PORT",
      "Serve /metrics, /healthz, /readyz and /status there, which `fairlead status` reads; of HOST:PORT-LAST the "
      "first port that is free (default: not at all)",
      set_port_range(&options->metrics));
  args.option("--metrics-discovery", "DIR",
              "Write a file there by which Prometheus finds that port (file_sd), removed at the end",
              set_text(&options->discovery));
  args.option("--ready-file", "FILE", "Written when ready, removed at the end: {\"listen\": ..., \"metrics\": ...}",
              set_text(&options->ready_file));
  args.option("--drain", "SECONDS",
              "How long SIGTERM or SIGINT waits for " + drains + ", 0 for not at all (default 20)",
              set_seconds(&options->drain, 0, 86'400));
  args.option("--drain-least", "SECONDS",
              "How long it drains at least, though nothing is under way: so that a load balancer sees /readyz say 503 "
              "(default 0)",
              set_seconds(&options->drain_least, 0, 86'400));
  add_log_options(args);
  args.settings_file();
  args.rule([options] {
    const bool longer = options->drain_least > options->drain;
    return longer ? fmt::format("--drain-least {:g} is more than --drain {:g}: raise that, too", options->drain_least,
                                options->drain)
                  : std::string();
  });
  args.rule([options] {
    const bool nowhere = !options->discovery.empty() && options->metrics.empty();
    return nowhere ? std::string("--metrics-discovery says where --metrics is: give that, too") : std::string();
  });
}

Front::Front(FrontOptions options, std::string service, Console& console)
    : options_(std::move(options)),
      service_(std::move(service)),
      console_(console),
      manager_(ServiceManager::from_environment()) {}

Status Front::begin() const {
  if (options_.ready_file.empty()) return {};
  ReadyFile::remove_stale(options_.ready_file);
  return bench::check_writable(options_.ready_file);
}

std::string_view Front::word(State state) {
  return state == State::kReady ? "ready" : state == State::kStarting ? "starting" : "draining";
}

Result<Front::Exposition> Front::open(Engine& engine, std::function<std::vector<Metric>()> own,
                                      std::function<void(bench::Json::Object&)> own_status) {
  Exposition exposition;
  if (options_.metrics.empty()) return exposition;
  const auto readiness = [this]() -> PageText {
    const State state = state_.load();
    return {.ok = state == State::kReady, .body = std::string(word(state)) + "\n"};
  };
  const auto status = [this, &engine, own_status = std::move(own_status)]() -> PageText {
    const State state = state_.load();
    const StatusFacts facts{service_, std::string(word(state)), state == State::kStarting ? "" : listen_, since_};
    return {.body = status_page(facts, engine, own_status), .type = "application/json"};
  };
  std::vector<Page> pages{{"/readyz", readiness}, {"/status", status}};
  const auto all = [this, &engine, own = std::move(own)] {
    std::vector<Metric> every = with_build(metrics::metrics_of(engine));
    std::ranges::move(own(), std::back_inserter(every));
    every.push_back(metrics::ready_metric(state_.load() == State::kReady));
    return every;
  };
  auto started = metrics::MetricsServer::start(options_.metrics, all, std::move(pages));
  if (!started) return started.error();
  exposition.server = *std::move(started);
  metrics_address_ = exposition.server->address();
  if (options_.discovery.empty()) return exposition;
  Result<metrics::Discovery> found = metrics::Discovery::announce(options_.discovery, metrics_address_, service_);
  if (!found) return found.error();
  exposition.discovery.emplace(*std::move(found));
  return exposition;
}

void Front::starting(std::string_view what, std::chrono::seconds longer) { manager_.starting(what, longer); }

Status Front::ready(const std::string& listen) {
  listen_ = listen;
  console_.line("listening on " + listen);
  if (options_.named_no_host) {
    console_.line(
        "that is for this host alone; --listen 0.0.0.0:PORT serves other hosts, and everybody who reaches it there");
  }
  if (!metrics_address_.empty()) console_.line(fmt::format("metrics on http://{}/metrics", metrics_address_));
  if (!options_.ready_file.empty()) {
    const bench::Json::Object facts{{"listen", listen}, {"metrics", metrics_address_}};
    const Status written = bench::write_text(options_.ready_file, bench::Json(facts).dump() + "\n");
    if (!written.ok()) return written;
    ready_file_ = ReadyFile(options_.ready_file);
  }
  state_ = State::kReady;
  manager_.ready("listening on " + listen);
  manager_.alive();
  return {};
}

ServerSignals Front::signals(int signal_fd, ServerSignals::Served served) {
  served.drain = [this, drain = std::move(served.drain)] {
    constexpr std::chrono::seconds kBeyond{10};  // to let go of memory and devices
    state_ = State::kDraining;
    manager_.stopping("draining: finishes what is under way",
                      std::chrono::ceil<std::chrono::seconds>(std::chrono::duration<double>(options_.drain)) + kBeyond);
    drain();
  };
  served.reload = [this, reload = std::move(served.reload)] {
    manager_.reloading();
    reload();
    manager_.ready("listening on " + listen_);
  };
  return ServerSignals(signal_fd, {options_.drain_least, options_.drain}, std::move(served), console_);
}

int Front::poll_ms(int other) const {
  const int own = manager_.poll_ms();
  if (own < 0 || other < 0) return std::max(own, other);
  return std::min(own, other);
}

}  // namespace fairlead::cli
