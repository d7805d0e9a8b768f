#include "datapath/session/dialer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fairlead::datapath {

void Dialer::begin(std::vector<Place> places, Clock::time_point now, Clock::time_point deadline) {
  *this = {};
  deadline_ = deadline;
  if (!places.empty()) {
    const auto share = (deadline - now) / static_cast<Clock::rep>(places.size());
    head_start_ = std::min<Clock::duration>(kHeadStart, share);
  }
  for (Place& place : places) dialed_.push_back({std::move(place), State::kWaits, {}});
}

std::optional<std::size_t> Dialer::next(Clock::time_point now) noexcept {
  if (count(State::kUnderWay) != 0 && now - begun_at_ < head_start_) return std::nullopt;
  const auto waits = std::ranges::find(dialed_, State::kWaits, &Dialed::state);
  if (waits == dialed_.end()) return std::nullopt;
  waits->state = State::kUnderWay;
  begun_at_ = now;
  return static_cast<std::size_t>(waits - dialed_.begin());
}

void Dialer::failed(std::size_t which, const Status& why) {
  dialed_[which].state = State::kFailed;
  dialed_[which].why = why;
  if (why.code() != Code::kNotFound) code_ = why.code();
}

void Dialer::answered(std::size_t which) noexcept {
  for (std::size_t i = 0; i < dialed_.size(); ++i) {
    if (i != which && dialed_[i].state == State::kUnderWay) dialed_[i].state = State::kWaits;
  }
}

std::size_t Dialer::count(State state) const noexcept {
  return static_cast<std::size_t>(std::ranges::count(dialed_, state, &Dialed::state));
}

bool Dialer::has_other(std::size_t which) const noexcept {
  return dialed_.size() - count(State::kFailed) > (dialed_[which].state == State::kFailed ? 0U : 1U);
}

bool Dialer::is_over() const noexcept { return count(State::kFailed) == dialed_.size(); }

Clock::time_point Dialer::greets_until(Clock::time_point now) const noexcept {
  const auto left = static_cast<Clock::rep>(dialed_.size() - count(State::kFailed));
  return now + (deadline_ - now) / std::max<Clock::rep>(left, 1);
}

Status Dialer::failure() const {
  const bool one_port =
      std::ranges::all_of(dialed_, [this](const Dialed& d) { return d.place.port == dialed_.front().place.port; });
  std::string reasons;
  for (const Dialed& each : dialed_) {
    if (each.state != State::kFailed) continue;
    if (!reasons.empty()) reasons += "; ";
    if (dialed_.size() > 1) reasons += (one_port ? each.place.address : to_string(each.place)) + ": ";
    reasons += each.why.message();
  }
  return {code_, reasons};
}

}  // namespace fairlead::datapath
