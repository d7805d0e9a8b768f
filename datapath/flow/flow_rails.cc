// A flow's rails: paths beside its first, for data of large transfers.
#include <fmt/format.h>

#include <algorithm>

#include "datapath/flow/flow.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

void Flow::allow(bool beside, bool rails) noexcept {
  if (beside) paths_.allow_beside();
  rails_allowed_ = rails && traffic_ == TrafficClass::kBulk;
  if (active_ && wanted_ > 1 && !rails) {
    log(LogLevel::kWarning,
        fmt::format("one path to {} and not {}: its release knows of no more", user_.who(), wanted_));
  }
}

void Flow::begin(std::vector<Candidate> candidates) { candidates_ = paths_.begin(std::move(candidates)); }

void Flow::expect(std::vector<Offer> peer_offers) {
  peer_offers_ = std::move(peer_offers);
  paths_.expect(peer_offers_);
}

bool Flow::handle(const control::Frame& frame) {
  const std::uint32_t* const number = control::rail_of(frame);
  if (number == nullptr || *number == 0) return paths_.handle(frame);
  Rail* const named = rail(*number, !active_ && std::holds_alternative<control::PathOffer>(frame));
  return named != nullptr && named->paths().handle(frame);
}

bool Flow::drained() noexcept {
  bool all = !bounce_.copies() && !staged_target_.copies();
  for_paths([&all](PathSet& paths) { all &= paths.drained(); });
  return all;
}

/// The one of that number, from 1 on; null: there is none, and none may be opened.
Rail* Flow::rail(std::size_t number, bool may_open) {
  if (!rails_allowed_ || number == 0 || number > Rail::kMost) return nullptr;
  if (number > rails_.size()) {
    if (!may_open) return nullptr;
    rails_.resize(number);
  }
  std::unique_ptr<Rail>& found = rails_[number - 1];
  if (found == nullptr && may_open) {
    RailUser& self = *this;
    found = std::make_unique<Rail>(user_, self, active_, rules_, static_cast<std::uint8_t>(number), stripe_);
    if (!active_) found->paths().expect(peer_offers_);
  }
  return found.get();
}

/// Active, and the first path is in use.
void Flow::open_rails() {
  if (!active_ || !rails_allowed_) return;
  if (!rails_.empty()) {  // something has changed, perhaps for the better
    for (const std::unique_ptr<Rail>& rail : rails_) rail->hurry();
    return;
  }
  std::vector<std::vector<Candidate>> over = spread(candidates_, paths_.slot()->candidate, wanted_);
  for (std::size_t i = 0; i < over.size(); ++i) rail(i + 1, true)->begin(std::move(over[i]));
}

std::string Flow::explanation() {
  std::string text = explanation_;
  for (const std::unique_ptr<Rail>& rail : rails_) {
    const PathSlot* slot = rail != nullptr ? rail->paths().in_use() : nullptr;
    if (slot == nullptr) continue;
    text += fmt::format("; path {}: {} ({})", rail->number() + 1, user_.transports()[slot->transport].offer.name,
                        slot->path->describe());
  }
  return text;
}

bool Flow::has_rails() noexcept {
  return std::ranges::any_of(rails_,
                             [this](const auto& rail) { return rail != nullptr && way_over(*rail) != nullptr; });
}

/// What data may be posted to. Not where we did not ask for several paths, and what we write has an order; nor over
/// what is slower by its kind than the first path is.
PathSlot* Flow::way_over(Rail& rail) noexcept {
  PathSlot* slot = rail.carrying();
  if (wanted_ == 1 || slot == nullptr) return nullptr;
  const PathSlot* first = paths_.in_use();
  return active_ && first != nullptr && rail.rank() > candidates_[first->candidate].rank ? nullptr : slot;
}

void Flow::pump_rail(Rail& rail) {
  while (PathSlot* slot = way_over(rail)) {
    Outbox::Way way = way_of(*slot);
    way.rail = rail.number();
    way.stripe = stripe_;
    way.share = std::min(rail.share().room(), stripe_);
    if (way.share == 0) return;
    const std::size_t room = slot->in_flight.room(slot->can.max_outstanding);
    const std::span<const WorkRequest> requests = outbox_.build(way, room, slot->in_flight.next_id());
    if (requests.empty()) return;
    const std::size_t accepted = slot->path->post(requests);
    rail.share().given(outbox_.commit(accepted, slot->in_flight), user_.now());
    if (accepted < requests.size()) return;
  }
}

// ---- what they say -------------------------------------------------------------------------------------------------

void Flow::rail_says(const Rail& rail, const control::Frame& frame) {
  control::Frame named = frame;
  if (std::uint32_t* number = control::rail_of(named)) *number = rail.number();
  send_frame(named);
}

void Flow::rail_moved(bool alive) noexcept {
  dirty_ = true;
  alive_ |= alive;
}

void Flow::rail_lost() {
  dirty_ = true;
  user_.flow_described();
}

void Flow::rail_in_use(const Rail& rail, bool again) {
  if (again) counters_.recoveries.add();
  log(LogLevel::kInfo,
      fmt::format("path {} to {} is {}", rail.number() + 1, user_.who(), again ? "there again" : "in use"));
  dirty_ = true;
  user_.flow_described();
}

void Flow::rail_ended(const PostedRequest& request, Code code) {
  if (code == Code::kOk) counters_.rail_bytes.add(request.bytes);
  outbox_.completed(request, code);
}

void Flow::rail_misused(const Rail& rail) {
  user_.fail({Code::kDataLoss,
              fmt::format("{} sent a message over path {}, which is for data alone", user_.who(), rail.number() + 1)});
}

}  // namespace fairlead::datapath
