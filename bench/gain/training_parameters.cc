#include "bench/gain/training_parameters.h"

#include <algorithm>
#include <utility>

namespace fairlead::bench {
namespace {

/// Bytes, of all ranks, for each core-second of their hosts: each host's time counts once.
double bytes_per_core_second(double bytes, const std::vector<std::uint64_t>& busy_ns,
                             const std::vector<EndFacts>& ends) {
  double busy = 0;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    const auto neighbours =
        std::ranges::count_if(ends, [&](const EndFacts& end) { return end.host.boot == ends[rank].host.boot; });
    busy += static_cast<double>(busy_ns[rank]) * 1e-9 / static_cast<double>(neighbours);
  }
  return busy > 0 ? bytes / busy : 0;
}

double cores_of(const std::vector<EndFacts>& ends) {
  const HostInfo& host = ends[0].host;
  const auto ranks = std::ranges::count_if(ends, [&](const EndFacts& end) { return end.host.boot == host.boot; });
  const double usable = host.quota > 0 ? std::min<double>(host.quota, host.usable) : host.usable;
  return usable / static_cast<double>(ranks);
}

template <typename Of>
double median_of(const std::vector<TrainingQuad>& quads, std::array<TrainingBlock, 2> TrainingQuad::* side, Of of) {
  std::vector<double> values;
  for (const TrainingQuad& quad : quads) {
    for (const TrainingBlock& block : quad.*side) values.push_back(of(block));
  }
  return median(std::move(values));
}

}  // namespace

TrainingSide side_of(const std::vector<TrainingQuad>& quads, std::array<TrainingBlock, 2> TrainingQuad::* which,
                     const SumsOfSide& sums, const std::vector<EndFacts>& ends, const TrainingGainPlan& plan,
                     SideFacts facts) {
  TrainingSide side{.facts = std::move(facts), .model = {}, .wire_share = 1, .step = 0, .predicted_step = 0};
  const auto n = static_cast<double>(ends.size());
  const double sent = 2 * (n - 1) / n * static_cast<double>(plan.sum_bytes);
  side.step = median_of(quads, which, [](const TrainingBlock& block) { return block.step; });
  TransportModel& model = side.model;
  model.latency = median_of(quads, which, [](const TrainingBlock& block) { return block.ring_step; });
  const double sum = median_of(quads, which, [](const TrainingBlock& block) { return block.sum; });
  const double moving = std::max(sum - 2 * (n - 1) * model.latency, sum / 2);
  model.link_bytes_per_second = moving > 0 ? sent / moving : 0;
  model.cores = cores_of(ends);
  // Hosts are never busier than their cores allow; but their time is counted in ticks, which sums may be shorter than.
  model.bytes_per_core_second =
      std::max(bytes_per_core_second(sent * n * static_cast<double>(sums.count), sums.busy_ns, ends),
               model.link_bytes_per_second / model.cores);
  model.window_bytes = window_of(side.facts);  // and no round trip: in what was measured the window is contained
  side.wire_share = wire_share(side.facts);
  side.predicted_step = predict_step(plan.training.model, plan.training.step, model, ends.size());
  return side;
}

}  // namespace fairlead::bench
