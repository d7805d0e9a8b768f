#include "cli/serve_metrics.h"

namespace fairlead::cli {
namespace {

using metrics::Kind;
using metrics::Metric;
using metrics::Sample;

Sample plain(std::uint64_t value) { return {static_cast<double>(value), {}}; }
Sample result(const char* text, std::uint64_t value) { return {static_cast<double>(value), {{"result", text}}}; }

}  // namespace

std::vector<Metric> serve_metrics(const ServeCounters& counters, const ModelStore& store) {
  return {
      {"fairlead_serve_clients", "Clients connected now.", Kind::kGauge, {plain(counters.clients)}},
      {"fairlead_serve_models", "Verified models that the server keeps.", Kind::kGauge, {plain(store.count())}},
      {"fairlead_serve_model_bytes",
       "Memory of all models, those being pushed included.",
       Kind::kGauge,
       {plain(store.bytes_held())}},
      {"fairlead_serve_models_evicted_total",
       "Verified models dropped to make room for others.",
       Kind::kCounter,
       {plain(counters.models_evicted)}},
      {"fairlead_serve_received_bytes_total",
       "Bytes of tensors that were pushed and checked.",
       Kind::kCounter,
       {plain(counters.received_bytes)}},
      {"fairlead_serve_pushes_total",
       "Pushes, by how they ended.",
       Kind::kCounter,
       {result("verified", counters.pushes_verified), result("failed", counters.pushes_failed),
        result("refused", counters.pushes_refused), result("abandoned", counters.pushes_abandoned)}},
      {"fairlead_serve_push_seconds",
       "How long pushes took that were received whole, from the server's being ready to the client's end.",
       Kind::kHistogram,
       {{0, {}, counters.push_seconds.read()}}},
      {"fairlead_serve_pulls_total",
       "Pulls, by how they ended.",
       Kind::kCounter,
       {result("completed", counters.pulls_completed), result("refused", counters.pulls_refused),
        result("abandoned", counters.pulls_abandoned)}},
      {"fairlead_serve_pull_seconds",
       "How long pulls took that were completed, from the model's description to the client's end.",
       Kind::kHistogram,
       {{0, {}, counters.pull_seconds.read()}}},
      {"fairlead_serve_tensors_total",
       "Pushed tensors, by what their checksum said.",
       Kind::kCounter,
       {result("verified", counters.tensors_verified), result("failed", counters.tensors_failed)}},
  };
}

}  // namespace fairlead::cli
