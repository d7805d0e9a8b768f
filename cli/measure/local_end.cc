#include "cli/measure/local_end.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "bench/memory/end_memory.h"
#include "bench/net/target.h"
#include "cli/base/args.h"
#include "fairlead/engine.h"
#include "fairlead/metrics.h"

namespace fairlead::cli {

Result<LocalEnd> LocalEnd::start(EngineConfig& config, const std::string& transports,
                                 const bench::LocalTarget::Serve& serve) {
  Result<bench::LocalWire> wire = bench::LocalWire::make(config.verbs.packet_io);
  if (!wire) return wire.error();
  EngineConfig its = config;
  its.transport = transports;
  its.verbs.packet_io = wire->target();
  Result<bench::LocalTarget> target = bench::LocalTarget::start(std::move(its), serve);
  if (!target) return target.error();
  config.verbs.packet_io = wire->initiator();
  return LocalEnd(*std::move(wire), *std::move(target));
}

int serve_measurements(EngineConfig config, const std::string& address, bool once, bench::Place memory,
                       Console& console, const std::string& metrics) {
  config.listen = address;
  if (Status there = bench::usable(memory); !there.ok()) return console.no_engine(there);
  Result<Engine> engine = Engine::create(std::move(config));
  if (!engine) return console.no_engine(engine.error());
  std::optional<Metrics> served;
  if (!metrics.empty()) {
    Result<Metrics> started = Metrics::serve(*engine, {.listen = metrics, .service = "bench"});
    if (!started) return console.no_engine(started.error());
    served.emplace(*std::move(started));
    console.line(fmt::format("metrics on http://{}/metrics", served->address()));
  }
  console.line("listening on " + engine->listen_address());
  const Status status = bench::Target(&*engine, memory).serve(once);
  if (!status.ok()) console.error(status);
  return status.ok() ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
