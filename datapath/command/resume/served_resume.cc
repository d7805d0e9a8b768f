// Sessions whose clients have lost their peers: which are kept, who may go on with one, and when they end.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "datapath/command/resume/points.h"
#include "datapath/command/served_peers.h"

namespace fairlead::datapath::command {

namespace {

constexpr std::string_view kEnding = "the service is ending";
constexpr std::chrono::seconds kOneAttempt{10};  // for who names a session to show that it is his; clients wait as long

/// Whether a peer that went so may have left a client that is still there.
bool is_loss(const Status& why) {
  return !why.ok() && why.code() != Code::kCancelled && why.code() != Code::kPermissionDenied;
}

Status no_resuming() { return {Code::kUnavailable, "it is ending, and nobody goes on with a session"}; }

}  // namespace

// ---- the peer has gone ---------------------------------------------------------------------------------------------

/// `served` is the latest, which is moved from.
void ServedPeers::lose(Served served, const Status& why) {
  sessions_.erase(latest_);
  latest_ = sessions_.end();
  std::unique_ptr<ServedPeer> session = std::move(served.second);
  if (!is_loss(why) || !session->is_kept()) return leave(std::move(session));
  if (draining_.load()) {
    lost_.remember(*session, std::string(kEnding));
    return leave(std::move(session));
  }
  if (const Status fine = tenants_.check(session->principal()); !fine.ok()) {
    lost_.remember(*session, fine.message());
    return leave(std::move(session));
  }
  if (auto first = lost_.keep(std::move(session), time_())) leave(std::move(first));
}

void ServedPeers::leave(std::unique_ptr<ServedPeer> session) {
  session->stop();
  leaving_.push_back(std::move(session));
}

void ServedPeers::end_lost() {
  if (lost_.size() == 0) return;
  auto gone = lost_.expire(time_(), [this](const ServedPeer& session) -> std::optional<std::string> {
    if (draining_.load()) return std::string(kEnding);
    const std::string& who = session.principal();
    if (knows_ && !who.empty() && !knows_(who)) return fmt::format("'{}' has no key any more", who);
    const Status fine = tenants_.check(session.principal());
    return fine.ok() ? std::nullopt : std::optional(fine.message());
  });
  if (gone.empty()) return;
  for (auto& session : gone) leave(std::move(session));
  count_sessions();
}

// ---- another peer has come -----------------------------------------------------------------------------------------

bool ServedPeers::hear_resuming(const Peer& peer, const Event& event) {
  Bytes body = event.data;
  const auto header = event.value == kMessageValue && event.traffic == TrafficClass::kCommands
                          ? take<MessageHeader>(body)
                          : std::nullopt;
  const auto at = std::ranges::find(resuming_, peer, &Resuming::peer);
  if (at != resuming_.end()) {
    Resuming resuming = std::move(*at);
    resuming_.erase(at);
    go_on(std::move(resuming), header.value_or(MessageHeader()), body);
    return true;
  }
  if (!header || !is_message(*header, MessageType::kResume)) return false;
  if (const auto asked = take<ResumeBody>(body)) {
    challenge(peer, *asked);
  } else {
    turn_away(peer, {Code::kDataLoss, "what is to name a session to go on with is cut short"});
  }
  return true;
}

/// Of another's it says what it says of one that there is not.
Status ServedPeers::no_session(const SessionId& id, const std::string& principal) const {
  const std::string fate = lost_.fate(id, principal);
  return {Code::kNotFound, fate.empty() ? "it has no such session of this client's: that has ended, or the service was "
                                          "started anew since; begin another"
                                        : fmt::format("the session was not kept: {}; begin another", fate)};
}

void ServedPeers::challenge(const Peer& peer, const ResumeBody& asked) {
  const std::string principal = peer.principal();
  if (draining_.load()) return turn_away(peer, no_resuming());
  if (const Status fine = tenants_.check(principal); !fine.ok()) return turn_away(peer, fine);
  if (kept_session(asked.id, principal) == nullptr) return turn_away(peer, no_session(asked.id, principal));
  // None is refused for others, nor turned away: who names a session that is not his, again and again, would keep its
  // client from it. An attempt takes little beside its peer, and of peers the engine has a limit (max_sessions).
  resuming_.push_back({peer, asked.id, {asked.nonce, make_nonce()}, time_()});
  std::vector<std::byte> message = make_message({.type = static_cast<std::uint8_t>(MessageType::kChallenge)});
  put(message, ChallengeBody{resuming_.back().attempt.service});
  Peer to = peer;
  (void)to.send(message, kMessageValue, {.traffic = TrafficClass::kCommands});
}

void ServedPeers::go_on(Resuming resuming, const MessageHeader& header, Bytes body) {
  // Either may have come to be since it was challenged.
  if (draining_.load()) return turn_away(resuming.peer, no_resuming());
  const std::string principal = resuming.peer.principal();
  ServedPeer* const session = kept_session(resuming.id, principal);
  if (session == nullptr) return turn_away(resuming.peer, no_session(resuming.id, principal));
  const bool is_proof = is_message(header, MessageType::kProof) && header.count <= session->channels();
  const auto said =
      is_proof ? read_points<HeardBody>(session->key(), resuming.attempt, header.count, body) : std::nullopt;
  if (!said) {
    return turn_away(resuming.peer,
                     {Code::kPermissionDenied, "it was not shown that the session to go on with is this client's"});
  }
  std::vector<std::byte> all;
  put(all, resuming.attempt);
  for (const HeardBody& point : *said) put(all, point);
  sessions_.emplace_back(resuming.peer, take_from_peer(resuming.id));
  latest_ = std::prev(sessions_.end());
  resumed_.fetch_add(1, std::memory_order_relaxed);
  count_sessions();
  latest_->second->attach(resuming.peer, std::move(all));
}

/// Without a word, which a client that was slow would take for its session's end: it tries again.
void ServedPeers::end_attempts() {
  while (!resuming_.empty() && time_() - resuming_.front().since >= kOneAttempt) {
    Peer peer = std::move(resuming_.front().peer);
    resuming_.pop_front();
    turned_away_.push_back(peer);
    peer.close(std::chrono::nanoseconds(0));
  }
}

/// Null: there is none of that principal's.
ServedPeer* ServedPeers::kept_session(const SessionId& id, const std::string& principal) {
  ServedPeer* found = lost_.find(id);
  for (auto each = sessions_.begin(); found == nullptr && each != sessions_.end(); ++each) {
    if (each->second->key().id == id && each->second->is_kept()) found = each->second.get();
  }
  return found != nullptr && found->principal() == principal ? found : nullptr;
}

/// The client knew that its peer was lost before this end did; or it shows itself twice, and the last counts.
std::unique_ptr<ServedPeer> ServedPeers::take_from_peer(const SessionId& id) {
  if (auto lost = lost_.take(id)) return lost;
  const auto at = std::ranges::find(sessions_, id, [](const Served& served) { return served.second->key().id; });
  std::unique_ptr<ServedPeer> session = std::move(at->second);
  Peer before = at->first;
  if (latest_ == at) latest_ = sessions_.end();
  sessions_.erase(at);
  turned_away_.push_back(before);
  (void)before.send(refused_message({Code::kUnavailable, "its client goes on with the session over another peer"}),
                    kMessageValue, {.traffic = TrafficClass::kCommands});
  before.close(std::chrono::seconds(1));
  return session;
}

}  // namespace fairlead::datapath::command
