#include "datapath/command/shares.h"

#include <algorithm>

namespace fairlead::datapath::command {

using fairlead::command::Sharing;

namespace {

// What a member may catch up on that had nothing to run for a moment: a client that waits for replies loses nothing by
// it, and nobody saves up for longer.
constexpr double kRemembered = 0.01;  // seconds of the device's
// What a fixed share gathers: as much as it earns in this time while it is not used, and in that while others keep it
// from being used.
constexpr double kGathered = 0.02, kGatheredWaiting = 0.2;

double seconds(Shares::Clock::duration duration) noexcept { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Shares::Member Shares::join(double share, Clock::time_point now) {
  State state;
  state.share = share;
  state.credit = share * kGathered;
  state.counted = now;
  state.served = served_;
  members_.emplace(next_member_, state);
  return next_member_++;
}

void Shares::set_share(Member member, double share, Clock::time_point now) {
  State& state = members_.at(member);
  accrue(state, now);
  state.share = share;
}

void Shares::want(Member member) {
  State& state = members_.at(member);
  if (!std::exchange(state.wants, true)) state.served = std::max(state.served, served_ - kRemembered);
}

void Shares::rest(Member member) { members_.at(member).wants = false; }

void Shares::ran(Member member, Clock::duration took) {
  State& state = members_.at(member);
  state.served += seconds(took);
  state.credit -= seconds(took);
}

void Shares::accrue(State& state, Clock::time_point now) const noexcept {
  if (now <= state.counted) return;
  const double most = state.share * (state.wants ? kGatheredWaiting : kGathered);
  state.credit = std::max(state.credit, std::min(most, state.credit + state.share * seconds(now - state.counted)));
  state.counted = now;
}

bool Shares::goes_before(const State& one, const State& other) const noexcept {
  if (sharing_ == Sharing::kEqual && one.served != other.served) return one.served < other.served;
  // Of those that may run the one that has waited for longest for what is its own: shares hold also where all together
  // are given more time than there is.
  const double mine = one.credit / one.share, yours = other.credit / other.share;
  if (sharing_ == Sharing::kFixed && mine != yours) return mine > yours;
  return one.turn < other.turn;
}

/// Where all that wait have been given more than there is, as some of the time is lost between turns, none has a claim
/// on what all have too much.
void Shares::forget_excess() noexcept {
  double least = kGatheredWaiting;
  for (const auto& [member, state] : members_) {
    if (state.wants) least = std::min(least, state.credit / state.share);
  }
  if (least <= kGathered) return;
  for (auto& [member, state] : members_) {
    if (state.wants) state.credit -= (least - kGathered) * state.share;
  }
}

Shares::Choice Shares::next(Clock::time_point now) {
  Choice choice;
  State* best = nullptr;
  if (sharing_ == Sharing::kFixed) {
    for (auto& [member, state] : members_) accrue(state, now);
    forget_excess();
  }
  for (auto& [member, state] : members_) {
    if (!state.wants) continue;
    if (sharing_ == Sharing::kFixed && state.credit <= 0) {
      const std::chrono::duration<double> wait(-state.credit / state.share);
      const auto again = now + std::chrono::ceil<Clock::duration>(wait) + Clock::duration(1);
      choice.again = std::min(choice.again, again);
      continue;
    }
    if (best != nullptr && !goes_before(state, *best)) continue;
    best = &state;
    choice.member = member;
  }
  if (best == nullptr) return choice;
  best->turn = ++turns_;
  served_ = std::max(served_, best->served);
  return choice;
}

}  // namespace fairlead::datapath::command
