// Paths: the choice by measurement (EngineConfig::choice).
//
// While a flow has nothing to do the path in use is measured, and each other candidate, set up and proved beside it: by
// writes to the memory at the other end that proves paths, of which that end's engine knows nothing. What is measured
// to be better, twice, takes over as one that works again does; else the path beside is let go. A flow that has much to
// do is not measured, since its own traffic is what would be measured: it goes by what is known.
#include <fmt/format.h>

#include <algorithm>

#include "datapath/flow/path_set.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kLookEvery{10}, kFirstPutOff{200};
constexpr unsigned kMostDoublings = 6;   // of the pause after a measurement that came to nothing: 13 s
constexpr milliseconds kAnswers{2'000};  // for a measurement to end

}  // namespace

Figures::Way PathSet::way_of(std::size_t candidate) const {
  const Candidate& over = candidates_[candidate];
  return {host_.transports()[over.local].offer.name, over.remote, over.host.empty() ? session_host_ : over.host};
}

std::optional<Figure> PathSet::figure_of(std::size_t candidate) const {
  return figures_ != nullptr ? figures_->last(way_of(candidate)) : std::nullopt;
}

/// The others stay as they are ranked.
void PathSet::put_best_first() {
  session_host_ = host_.path_config().peer_host;
  std::size_t best = 0;
  for (std::size_t c = 1; c < candidates_.size(); ++c) {
    if (figures_->better(way_of(c), way_of(best), rules_.traffic)) best = c;
  }
  const auto at = candidates_.begin() + static_cast<std::ptrdiff_t>(best);
  std::rotate(candidates_.begin(), at, at + 1);
}

/// Whether it is to take the place of the one in use: by its figures, or where one has none by its rank.
bool PathSet::is_preferred(std::size_t candidate) const {
  const Figures::Way way = way_of(candidate), in_use = way_of(candidate_);
  if (!figures_->last(way) || !figures_->last(in_use)) return candidate < candidate_;
  return figures_->better(way, in_use, rules_.traffic);
}

bool PathSet::may_measure(const PathSlot& slot) const noexcept {
  const bool idle = user_.is_idle() && slot_->in_flight.empty();
  return idle && !slot.write_failed && slot.peer_probe_bytes >= Measurement::kSmall && slot.peer_probe.key != 0;
}

/// Active, with a path in use.
void PathSet::look_by_figures(Clock::time_point now) {
  if (slot_->measurement || beside_ != nullptr || stays_ || !host_.linked() || now < look_at_) return;
  look_at_ = now + kLookEvery;
  session_host_ = host_.path_config().peer_host;
  const auto is_due = [&](std::size_t c) {
    return figures_->is_due(way_of(c), way_of(candidate_), rules_.traffic, now);
  };
  const bool measures_now = may_measure(*slot_);
  if (measures_now && is_due(candidate_)) return begin_measuring(*slot_);
  if (!beside_allowed_ || !rules_.failover) return;
  for (std::size_t c = 0; c < candidates_.size(); ++c) {
    if (c == candidate_ || !trials_.may_look(c, now)) continue;
    if (is_preferred(c) || (measures_now && is_due(c))) return set_up_beside(c);
  }
}

void PathSet::begin_measuring(PathSlot& slot) {
  const Clock::time_point now = host_.now();
  slot.measurement.emplace(std::min(slot.peer_probe_bytes, kProbeBytes), now);
  ++slot.measurements;
  look_at_ = now + kFirstPutOff * (1 << std::min(put_off_++, kMostDoublings));  // if it comes to nothing
  measure(slot);
}

/// Posts what is to be posted now.
void PathSet::measure(PathSlot& slot) {
  while (const std::uint64_t bytes = slot.measurement->next()) {
    if (slot.in_flight.room(slot.can.max_outstanding) <= 1) return;
    LocalSegment source = probe_of(slot).source();
    source.length = std::min<std::uint64_t>(source.length, bytes);
    const WorkRequest request{
        slot.in_flight.next_id(), OpKind::kWrite, {&source, 1}, slot.peer_probe.address, slot.peer_probe.key};
    if (slot.path->post({&request, 1}) == 0) return;
    slot.in_flight.push({.use = PostedRequest::Use::kMeasure, .bytes = bytes, .sequence = slot.measurements});
    slot.measurement->given(bytes, host_.now());
  }
}

void PathSet::advance_measuring(PathSlot& slot, Clock::time_point now) {
  if (!slot.measurement) return;
  const bool is_beside = &slot == beside_.get();
  // Beside a path that is gone it is the next one, which the peer may use already, whatever was to be measured.
  const bool is_next = is_beside && state() != PathState::kInUse;
  if (slot.down || slot.state >= PathState::kClosing || stays_ || is_next) return slot.measurement.reset();
  if (slot.measurement->done()) {
    const Figure figure = slot.measurement->figure();
    slot.measurement.reset();
    put_off_ = 0;
    look_at_ = now;
    figures_->add(way_of(slot.candidate), figure, now);
    log(LogLevel::kInfo, fmt::format("{} to {}: measured {}", name_of(slot.candidate), host_.who(), to_string(figure)));
    return user_.path_measured();
  }
  const bool late = now - slot.measurement->begun() > kAnswers;
  const bool busy = !user_.is_idle() || (is_beside && !slot_->in_flight.empty());
  if (!late && !busy) return measure(slot);
  slot.measurement.reset();
  if (is_beside && late) trials_.failed_beside(slot.candidate, "it does not answer what would measure it", now);
  if (is_beside) dismiss_beside("it could not be measured");
}

/// Both ends have proved the path beside the one in use.
void PathSet::weigh_beside() {
  if (!active_ || stays_ || state() != PathState::kInUse || beside_->measurement) return;
  const std::size_t candidate = beside_->candidate;
  const Clock::time_point now = host_.now();
  const Figures::Way way = way_of(candidate), in_use = way_of(candidate_);
  if (figures_->is_due(way, in_use, rules_.traffic, now) && may_measure(*beside_)) return begin_measuring(*beside_);
  if (!is_preferred(candidate)) {
    const bool measured = figures_->last(way).has_value();
    if (!measured) trials_.failed_beside(candidate, "it works, and could not be measured", now);
    return dismiss_beside(measured ? "it is not better by what was measured" : "it could not be measured");
  }
  const std::optional<Figure> theirs = figures_->last(way), ours = figures_->last(in_use);
  const std::string name = name_of(candidate);
  take_over(theirs && ours ? fmt::format("{} is better: {}, and not {}", name, to_string(*theirs), to_string(*ours))
                           : fmt::format("{} works again", name));
}

void PathSet::dismiss_beside(const std::string& reason) {
  say_down(beside_->epoch, Code::kAborted, reason);
  retire(std::move(beside_));
}

}  // namespace fairlead::datapath
