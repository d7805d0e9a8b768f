#include "datapath/flow/figures.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::datapath {

std::string to_string(const Figure& figure) {
  const auto us = std::chrono::duration<double, std::micro>(figure.round_trip).count();
  const std::string time = us < 10       ? fmt::format("{:.1f} us", us)
                           : us < 10'000 ? fmt::format("{:.0f} us", us)
                                         : fmt::format("{:.0f} ms", us / 1000);
  return figure.rate < 1e9 ? fmt::format("{}, {:.3g} MB/s", time, figure.rate / 1e6)
                           : fmt::format("{}, {:.3g} GB/s", time, figure.rate / 1e9);
}

Clock::duration cost(const Figure& figure, TrafficClass traffic) noexcept {
  constexpr double kBytes = 1 << 20;
  if (traffic == TrafficClass::kCommands || figure.rate <= 0) return figure.round_trip;
  const std::chrono::duration<double> carries(kBytes / figure.rate);
  return figure.round_trip + std::chrono::duration_cast<Clock::duration>(carries);
}

void Figures::add(const Way& way, const Figure& figure, Clock::time_point now) {
  if (known_.size() >= kMost && !known_.contains(way)) {
    known_.erase(std::ranges::min_element(known_, {}, [](const auto& each) { return each.second.at; }));
  }
  Known& known = known_[way];
  const bool first = known.at == Clock::time_point{};
  known.before = first ? std::nullopt : std::optional(known.last);
  known.last = figure;
  known.at = now;
}

const Figures::Known* Figures::find(const Way& way) const {
  const auto at = known_.find(way);
  return at != known_.end() ? &at->second : nullptr;
}

std::optional<Figure> Figures::last(const Way& way) const {
  const Known* known = find(way);
  return known != nullptr ? std::optional(known->last) : std::nullopt;
}

bool Figures::beats(const Figure& figure, const Known& in_use, TrafficClass traffic) const noexcept {
  Clock::duration best = cost(in_use.last, traffic);
  if (in_use.before) best = std::min(best, cost(*in_use.before, traffic));
  return kFactor * std::chrono::duration<double>(cost(figure, traffic)) < std::chrono::duration<double>(best);
}

bool Figures::better(const Way& way, const Way& in_use, TrafficClass traffic) const {
  const Known* one = find(way);
  const Known* other = find(in_use);
  return one != nullptr && other != nullptr && one->before && beats(one->last, *other, traffic) &&
         beats(*one->before, *other, traffic);
}

bool Figures::is_due(const Way& way, const Way& in_use, TrafficClass traffic, Clock::time_point now) const {
  const Known* one = find(way);
  if (one == nullptr || now - one->at >= kFresh) return true;
  const Known* other = find(in_use);
  return other != nullptr && now - one->at >= kAgain && beats(one->last, *other, traffic) &&
         !better(way, in_use, traffic);
}

}  // namespace fairlead::datapath
