// Training over two transports, compared: steps of both in turn, as blocks of gain, and what the same run says of links
// that are not here.
//
// Each rank is one process with both transports. A block first sums what a bucket holds, and steps of a ring that hold
// nothing: this warms the transport up, and gives its parameters. Its steps are timed after that; no parameter is taken
// from them. Threads: pure functions, but for compare_training: one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/gain/report.h"
#include "bench/training/predict.h"
#include "bench/training/rank.h"

namespace fairlead::bench {

/// What is said of PVRDMA, and was measured elsewhere.
inline constexpr double kClaim = 2;
inline constexpr std::string_view kClaimSource =
    "Mellanox and VMware 2019: PVRDMA beside TCP, 4 nodes, 100 Gb/s, 'two times better efficiency'";

struct TrainingGainPlan {
  TrainingPlan training;     // of which `steps` are a block's; its model is scaled already
  double scale = 1;          // of the model, and of its computing time
  std::uint64_t batch = 64;  // samples that a rank computes in a step that is not scaled
  std::string candidate;     // a transport; the baseline's is the group's
  std::uint64_t quads = 24, seed = 1;
  std::uint64_t sum_bytes = std::uint64_t{16} << 20;  // that a block sums beforehand; at most all gradients
  bool control = true;
  std::vector<double> links;    // bytes a second, headers included: to predict for
  double links_round_trip = 0;  // seconds that theirs is longer than that of the link that is measured
  const std::atomic<int>* stop = nullptr;

  [[nodiscard]] std::size_t gradient_bytes() const noexcept {
    return training.model.parameters() * element_size(training.dtype);
  }
  /// Of all ranks; a scaled step stands for as many fewer.
  [[nodiscard]] double samples_per_second(std::size_t ranks, double step_seconds) const noexcept {
    return static_cast<double>(batch) * scale * static_cast<double>(ranks) / step_seconds;
  }
  [[nodiscard]] bool stopped() const noexcept { return stop != nullptr && stop->load() != 0; }
};

/// What one block gave, by rank 0's clock.
struct TrainingBlock {
  double step = 0;       // seconds, the median of its steps
  double sum = 0;        // seconds of the sum beforehand
  double ring_step = 0;  // seconds of a step of a ring that carries nothing
};
struct TrainingQuad {
  bool candidate_outside = false;
  std::array<TrainingBlock, 2> baseline, candidate;
};

/// What is measured of a transport, and what follows for others of its parameters.
struct TrainingSide {
  SideFacts facts;
  TransportModel model;       // on the link that is measured
  double wire_share = 1;      // of a link's rate that is payload
  double step = 0;            // seconds, median
  double predicted_step = 0;  // from `model`, on the ranks that there are
};

struct TrainingRun {
  std::vector<TrainingQuad> quads, control;
  TrainingSide baseline, candidate;
  std::vector<Term> terms;
  std::size_t ranks = 0;
  bool verified = false;
};

/// Runs the plan as this rank of `group`, whose engine has the baseline's transport; every rank does, with the same
/// plan. The run is rank 0's; at others it is empty. `done` is told of each quad. Once the plan's stop flag is set at
/// rank 0 there is what there is: whole quads. Errors: those of Engine::create, Group and Trainer.
Result<TrainingRun> compare_training(Group& group, const TrainingGainPlan& plan,
                                     const std::function<void(const TrainingQuad&)>& done);

/// A step over a link that is not here, or over that which is, with each rank on a node that has what a rank has here.
struct Prediction {
  double link = 0;  // bytes a second; 0: the link that was measured
  std::size_t nodes = 1;
  double baseline_step = 0, candidate_step = 0;  // seconds
};
/// From how many bytes of gradients for each second of computation on the better transport is twice as fast.
struct Threshold {
  double link = 0;
  bool candidate = true;            // it is the better one
  std::optional<double> intensity;  // none: never, its rate is not twice the other's
};

struct TrainingReport {
  TrainingGainPlan plan;
  std::size_t ranks = 0;
  GainReport gain;  // without its plan
  TrainingSide baseline, candidate;
  std::vector<Prediction> predictions;
  std::vector<Threshold> thresholds;
  [[nodiscard]] double intensity() const noexcept {  // that the plan's model has
    return static_cast<double>(plan.gradient_bytes()) / plan.training.step.compute_seconds;
  }
  [[nodiscard]] double efficiency(double step_seconds) const noexcept {
    return plan.training.step.compute_seconds / step_seconds;
  }
};

[[nodiscard]] TrainingReport report_of(TrainingRun run, TrainingGainPlan plan, std::vector<std::string> warnings);
/// docs/schemas/gain_training.schema.json
[[nodiscard]] Json to_json(const TrainingReport& report);
[[nodiscard]] std::vector<std::string> lines_of(const TrainingReport& report);
/// One HTML document: the findings of a comparison, and efficiency by nodes beside the claim (page.h).
[[nodiscard]] std::string page_of(const TrainingReport& report);

// Their parts.

/// "25 Gb/s", "this link".
[[nodiscard]] std::string link_text(double link);
/// "resnet50 scaled by 0.1: 10.2 MB of gradients, ..."
[[nodiscard]] std::string words_of(const TrainingReport& report);
[[nodiscard]] std::string words_of(const TrainingReport& report, const TrainingSide& side);
/// From how many bytes of gradients on the claim holds, and for whom; without the link's name.
[[nodiscard]] std::string words_of(const TrainingReport& report, const Threshold& threshold);
/// Efficiency by nodes over one link, of both sides: lines that were predicted, and over the link that was measured
/// (link 0) squares and circles that were measured.
[[nodiscard]] std::string draw_efficiency(const TrainingReport& report, double link);

/// `model` on a link of `link` bytes a second, of which `wire_share` is payload, whose round trip is longer by so much.
[[nodiscard]] TransportModel on_link(TransportModel model, double link, double wire_share, double longer) noexcept;
/// Bytes that a side lets be on their way to a peer; 0: no limit is known.
[[nodiscard]] double window_of(const SideFacts& side) noexcept;
/// Of the bytes that a link carries for a full packet of this side, the payload; 1: not known.
[[nodiscard]] double wire_share(const SideFacts& side) noexcept;

}  // namespace fairlead::bench
