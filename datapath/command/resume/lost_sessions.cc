#include "datapath/command/resume/lost_sessions.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::datapath::command {

namespace {
constexpr std::size_t kFates = 256;  // that are remembered
}  // namespace

LostSessions::Owned LostSessions::keep(Owned session, Clock::time_point now) {
  Owned gone;
  if (session->account().away.load() >= most_) {
    const auto first =
        std::ranges::find(kept_, &session->account(), [](const Lost& lost) { return &lost.session->account(); });
    if (first == kept_.end()) return session;
    remember(*first->session, fmt::format("its tenant had {} more sessions whose clients were away, the limit", most_));
    gone = let_go(first);
  }
  session->account().away.fetch_add(1);
  kept_.push_back({std::move(session), now});
  return gone;
}

LostSessions::Owned LostSessions::let_go(Place lost) noexcept {
  Owned session = std::move(lost->session);
  session->account().away.fetch_sub(1);
  kept_.erase(lost);
  return session;
}

ServedPeer* LostSessions::find(const SessionId& id) noexcept {
  const auto found = std::ranges::find(kept_, id, [](const Lost& lost) { return lost.session->key().id; });
  return found != kept_.end() ? found->session.get() : nullptr;
}

LostSessions::Owned LostSessions::take(const SessionId& id) noexcept {
  const auto found = std::ranges::find(kept_, id, [](const Lost& lost) { return lost.session->key().id; });
  return found != kept_.end() ? let_go(found) : nullptr;
}

std::vector<LostSessions::Owned> LostSessions::expire(Clock::time_point now, const Ends& ends) {
  std::vector<Owned> gone;
  for (Place each = kept_.begin(); each != kept_.end();) {
    const Place lost = each++;
    std::optional<std::string> why = ends(*lost->session);
    if (!why && now - lost->since >= time_) {
      why = fmt::format("its client was away for longer than it is kept, {} ms", time_.count());
    }
    if (!why) continue;
    remember(*lost->session, *std::move(why));
    gone.push_back(let_go(lost));
  }
  return gone;
}

void LostSessions::remember(const ServedPeer& session, std::string why) {
  if (fates_.size() == kFates) fates_.pop_front();
  fates_.push_back({session.key().id, session.principal(), std::move(why)});
}

std::string LostSessions::fate(const SessionId& id, std::string_view principal) const {
  const auto found = std::ranges::find(fates_, id, &Fate::id);
  return found != fates_.end() && found->principal == principal ? found->why : std::string();
}

void LostSessions::clear() noexcept {
  while (!kept_.empty()) (void)let_go(kept_.begin());
}

}  // namespace fairlead::datapath::command
