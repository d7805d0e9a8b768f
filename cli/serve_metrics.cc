#include "cli/serve_metrics.h"

#include <map>
#include <string>
#include <utility>

namespace fairlead::cli {
namespace {

using metrics::Kind;
using metrics::Metric;
using metrics::Sample;

Sample plain(std::uint64_t value) { return {static_cast<double>(value), {}}; }
Sample result(const char* text, std::uint64_t value) { return {static_cast<double>(value), {{"result", text}}}; }

// What each owner has; models without one are everybody's.
std::vector<Metric> by_owner(const std::vector<ModelStore::KeptModel>& kept) {
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> owners;
  for (const ModelStore::KeptModel& model : kept) {
    auto& [count, bytes] = owners[model.owner.empty() ? "(everybody)" : model.owner];
    ++count;
    bytes += model.charge;
  }
  if (owners.empty()) return {};
  Metric models{"fairlead_serve_owner_models", "Verified models, by whose they are.", Kind::kGauge, {}};
  Metric memory{"fairlead_serve_owner_bytes",
                "Memory of verified models, by whose they are, with what describes them.",
                Kind::kGauge,
                {}};
  for (const auto& [owner, has] : owners) {
    models.samples.push_back({static_cast<double>(has.first), {{"owner", owner}}});
    memory.samples.push_back({static_cast<double>(has.second), {{"owner", owner}}});
  }
  return {std::move(models), std::move(memory)};
}

Metric refusals(const ServeCounters& counters) {
  Metric metric{"fairlead_serve_refusals_total", "What clients were refused, by reason.", Kind::kCounter, {}};
  for (std::size_t i = 0; i < kRefusedNames.size(); ++i) {
    metric.samples.push_back({static_cast<double>(counters.refused[i].load()), {{"reason", kRefusedNames[i]}}});
  }
  return metric;
}

}  // namespace

std::vector<Metric> serve_metrics(const ServeCounters& counters, const ModelStore& store) {
  const memreg::SpareArenas::Stats spare = store.spare();
  std::vector<Metric> all{
      {"fairlead_serve_clients", "Clients connected now.", Kind::kGauge, {plain(counters.clients)}},
      {"fairlead_serve_clients_total", "Clients that came.", Kind::kCounter, {plain(counters.clients_total)}},
      {"fairlead_serve_under_way",
       "Pushes and pulls that have begun and not ended.",
       Kind::kGauge,
       {{static_cast<double>(counters.pushing.load()), {{"op", "push"}}},
        {static_cast<double>(counters.pulling.load()), {{"op", "pull"}}}}},
      {"fairlead_serve_models", "Verified models that the server keeps.", Kind::kGauge, {plain(store.count())}},
      {"fairlead_serve_model_bytes",
       "Memory of all models, those being pushed included.",
       Kind::kGauge,
       {plain(store.bytes_held())}},
      {"fairlead_serve_model_limit_bytes",
       "Memory that verified models may take (--max-bytes), and pushes as much again.",
       Kind::kGauge,
       {plain(store.max_bytes())}},
      {"fairlead_serve_spare_bytes",
       "Memory of models that are gone, kept for the next (--spare).",
       Kind::kGauge,
       {plain(spare.bytes)}},
      {"fairlead_serve_spare_used_bytes_total",
       "Memory of models that are gone which pushes were given.",
       Kind::kCounter,
       {plain(spare.taken_bytes)}},
      {"fairlead_serve_models_evicted_total",
       "Verified models dropped to make room for others.",
       Kind::kCounter,
       {plain(counters.models_evicted)}},
      {"fairlead_serve_arrived_bytes_total",
       "Bytes of tensors that were pushed, counted as each has arrived whole.",
       Kind::kCounter,
       {plain(counters.arrived_bytes)}},
      {"fairlead_serve_received_bytes_total",
       "Bytes of tensors that were pushed and checked.",
       Kind::kCounter,
       {plain(counters.received_bytes)}},
      {"fairlead_serve_pulled_bytes_total",
       "Bytes of models whose pulls were completed; clients read them, which the server does not see.",
       Kind::kCounter,
       {plain(counters.pulled_bytes)}},
      {"fairlead_serve_pushes_total",
       "Pushes, by how they ended; unchecked: received whole, and without checksums.",
       Kind::kCounter,
       {result("verified", counters.pushes_verified), result("unchecked", counters.pushes_unchecked),
        result("failed", counters.pushes_failed), result("refused", counters.pushes_refused),
        result("abandoned", counters.pushes_abandoned)}},
      {"fairlead_serve_push_seconds",
       "How long pushes took that were received whole, from the server's being ready to the client's end, checks not "
       "included.",
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
       {result("verified", counters.tensors_verified), result("failed", counters.tensors_failed),
        result("unchecked", counters.tensors_unchecked)}},
      refusals(counters),
      counters.reloads.metric(),
      {"fairlead_store_models_loaded_total",
       "Models of --store that were loaded and verified when the server began.",
       Kind::kCounter,
       {plain(counters.store_models_loaded)}},
      {"fairlead_store_damaged_total",
       "Models of --store that were damaged, and set aside.",
       Kind::kCounter,
       {plain(counters.store_damaged)}},
      {"fairlead_store_failures_total",
       "Pushed models that could not be written to --store.",
       Kind::kCounter,
       {plain(counters.store_failed)}},
      {"fairlead_store_written_bytes_total",
       "Bytes of models that were written to --store.",
       Kind::kCounter,
       {plain(counters.store_written_bytes)}},
      {"fairlead_store_write_seconds",
       "How long it took to write a model to --store and have it on the disk.",
       Kind::kHistogram,
       {{0, {}, counters.store_seconds.read()}}},
  };
  for (Metric& metric : by_owner(store.kept())) all.push_back(std::move(metric));
  return all;
}

}  // namespace fairlead::cli
