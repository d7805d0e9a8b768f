// A client's session whose peer is lost: another is sought, and what the service may not have is said again over it.
#include <utility>

#include "datapath/command/client_session.h"

namespace fairlead::datapath::command {

void ClientSession::seek_by(Seeker::Dial dial, Seeker::Now now) {
  seeker_.emplace(std::move(dial), options_.resume_within, now);
}

Peer ClientSession::peer() const {
  const std::lock_guard lock(opening_);
  return peer_;
}

/// Under mutex_, as all of this.
void ClientSession::lose(Status why) {
  const bool is_seen = has_ended() || choked_.load(std::memory_order_acquire);
  if (is_seen || !seeker_ || !seeker_->is_loss(why)) return end(std::move(why));
  seeker_->lose(std::move(why));
  seek({});
}

void ClientSession::seek(const Event& event) {
  const Status fine = seeker_->step(event, [this] {
    std::vector<HeardBody> heard;
    for (std::size_t i = 0; i < channel_count_.load(std::memory_order_acquire); ++i) {
      heard.push_back(channels_[i]->heard());
    }
    return heard;
  });
  if (!fine.ok()) return end(fine);
  std::optional<Seeker::Back> back = seeker_->take_back();
  if (!back) return;
  const std::vector<Event> early = std::exchange(back->early, {});
  if (!resume(*std::move(back))) {
    peer_.close();
    return end({Code::kDataLoss, "the service says to have of the session what cannot be"});
  }
  for (const Event& result : early) handle(result);
}

/// False: what the service has cannot be.
bool ClientSession::resume(Seeker::Back back) {
  const std::lock_guard lock(opening_);  // a channel that is opened from here on has the new peer
  peer_ = std::move(back.peer);
  resumptions_.fetch_add(1, std::memory_order_relaxed);
  std::vector<KeptBody> has(channel_count_.load(std::memory_order_acquire));
  for (const KeptBody& each : back.has) {
    if (each.channel >= has.size()) return false;
    has[each.channel] = each;
  }
  for (std::size_t i = 0; i < has.size(); ++i) {
    if (!channels_[i]->resume(peer_, has[i])) return false;
  }
  return true;
}

void ClientSession::say_heard() {
  unsaid_ = 0;
  for (std::size_t i = 0; i < channel_count_.load(std::memory_order_acquire); ++i) {
    const HeardBody heard = channels_[i]->heard();
    send(peer_, TrafficClass::kCommands,
         make_message({.type = static_cast<std::uint8_t>(MessageType::kHeard),
                       .channel = static_cast<std::uint16_t>(heard.channel),
                       .sequence = heard.heard}));
  }
}

// ---- of a channel --------------------------------------------------------------------------------------------------

HeardBody ClientChannel::heard() const {
  const std::lock_guard lock(lock_);
  return {number_, heard_, told_of_.sequence, static_cast<std::uint64_t>(told_of_.scope)};
}

bool ClientChannel::resume(const Peer& peer, const KeptBody& has) {
  const std::lock_guard in_order(posting_);
  std::vector<std::shared_ptr<const std::vector<std::byte>>> payloads;
  {
    const std::lock_guard lock(lock_);
    const std::uint64_t last = last_.load(std::memory_order_relaxed);
    if (has.accepted < accepted_.load(std::memory_order_relaxed) || has.accepted > last - buffered_ ||
        has.payload > last) {
      return false;
    }
    kept_.accepted(has.accepted);
    if (!kept_.all().empty() && kept_.all().front().first != has.accepted + 1) return false;
    to_ = peer;
    told_ = has.accepted != 0;
    said_again_ = true;
    if (!kept_.all().empty()) tell();
    for (const KeptBatches::Batch& batch : kept_.all()) {
      session_.send(to_, TrafficClass::kCommands, batch.message);
    }
    posted_ = has.payload;
    for (const Input& input : inputs_) {
      if (input.sequence <= has.payload) continue;
      payloads.push_back(input.message);
      posted_ = input.sequence;
    }
  }
  for (const auto& payload : payloads) session_.send(to_, TrafficClass::kBulk, *payload);
  return true;
}

}  // namespace fairlead::datapath::command
