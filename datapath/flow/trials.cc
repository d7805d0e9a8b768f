#include "datapath/flow/trials.h"

#include <algorithm>
#include <utility>

namespace fairlead::datapath {

void Trials::failed(std::size_t candidate, std::string because, Clock::time_point now, Use use) {
  Trial& trial = trials_[candidate];
  if (use.time >= kLong) trial.looks = 0;
  if (use.time >= kLong || use.carried) trial.failures = 0;
  if (trial.failures == 0) trial.since = now;
  trial.at = now + kFirstPause * (1 << std::min(trial.failures, kMostFailures));
  trial.exhausted = ++trial.failures >= kMostFailures && now - trial.since >= patience_;
  trial.because = std::move(because);
  put_off(trial, now);
}

void Trials::failed_beside(std::size_t candidate, std::string because, Clock::time_point now) {
  trials_[candidate].because = std::move(because);
  put_off(trials_[candidate], now);
}

void Trials::put_off(Trial& trial, Clock::time_point now) {
  trial.look_at = now + kFirstPause * (1 << std::min(trial.looks, kMostDoublings));
  ++trial.looks;
}

std::optional<std::size_t> Trials::next(Clock::time_point now) const noexcept {
  std::optional<std::size_t> found;
  for (std::size_t c = 0; c < trials_.size(); ++c) {
    if (is_open(trials_[c], now) && (!found || trials_[c].failures < trials_[*found].failures)) found = c;
  }
  return found;
}

bool Trials::has_other(std::size_t candidate, Clock::time_point now) const noexcept {
  for (std::size_t c = 0; c < trials_.size(); ++c) {
    if (c != candidate && is_open(trials_[c], now)) return true;
  }
  return false;
}

std::optional<std::size_t> Trials::better(std::size_t candidate, Clock::time_point now) const noexcept {
  for (std::size_t c = 0; c < candidate; ++c) {
    if (trials_[c].look_at <= now) return c;
  }
  return std::nullopt;
}

std::optional<Clock::time_point> Trials::next_at() const noexcept {
  std::optional<Clock::time_point> first;
  for (const Trial& trial : trials_) {
    if (!is_given_up(trial) && (!first || trial.at < *first)) first = trial.at;
  }
  return first;
}

}  // namespace fairlead::datapath
