#include "datapath/flow/rail.h"

#include <fmt/format.h>

#include <algorithm>

#include "datapath/protocol/path_messages.h"
#include "fairlead/log.h"

namespace fairlead::datapath {
namespace {

constexpr std::chrono::seconds kFirstPause{1};
constexpr unsigned kMostDoublings = 8;  // four minutes

PathSet::Rules of_rail(PathSet::Rules rules) {
  rules.spare = true;
  rules.measured = false;  // the first path measures for all
  return rules;
}

}  // namespace

Rail::Rail(PathHost& host, RailUser& user, bool active, const PathSet::Rules& rules, std::uint8_t number,
           std::uint64_t stripe)
    : host_(host), user_(user), number_(number), paths_(host, *this, active, of_rail(rules)), share_(stripe) {
  paths_.allow_beside();  // a peer that knows of rails knows of that
}

void Rail::begin(std::vector<Candidate> candidates) {
  candidates_ = std::move(candidates);
  paths_.begin(candidates_);
}

void Rail::hurry() noexcept {
  if (again_at_) again_at_ = host_.now();
}

void Rail::advance(Clock::time_point now) {
  if (again_at_ && now >= *again_at_) {
    again_at_.reset();
    paths_.begin(candidates_);
  }
  paths_.advance(now);
}

PathSlot* Rail::carrying() noexcept {
  PathSlot* slot = paths_.in_use();
  return slot != nullptr && !slot->down && !slot->write_failed ? slot : nullptr;
}

void Rail::path_in_use() {
  pauses_ = 0;
  share_.reset(host_.transports()[paths_.in_use()->transport].planned_weight);
  if (const std::optional<Figure>& figure = paths_.slot()->figure) share_.expect(figure->rate);
  user_.rail_in_use(*this, std::exchange(was_used_, true));
}

void Rail::path_gone(InFlight& held) {
  while (!held.empty()) {
    const PostedRequest request = held.end_oldest();
    if (request.use != PostedRequest::Use::kControl) user_.rail_ended(request, Code::kAborted);
  }
  user_.rail_moved(false);
}

/// Nothing is lost by that but speed: it is tried again, ever more seldom.
void Rail::no_path(Status why) {
  const auto pause = kFirstPause * (1 << std::min(pauses_++, kMostDoublings));
  again_at_ = host_.now() + pause;
  log(LogLevel::kWarning, fmt::format("{}; it is path {} of several, which go on; tried again in {} s", why.message(),
                                      number_ + 1, std::chrono::duration_cast<std::chrono::seconds>(pause).count()));
}

bool Rail::apply_received(std::uint64_t received, std::string& why) {
  if (received != 0) {
    why = fmt::format("says it received up to message {} over path {}, which has none", received, number_ + 1);
    return false;
  }
  user_.rail_fenced(*this);
  return true;
}

// ---- from the path -------------------------------------------------------------------------------------------------

void Rail::on_ready(Path& path) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  paths_.on_ready(*slot);
  user_.rail_moved(false);
}

void Rail::on_down(Path& path, Code code, std::string_view reason) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  paths_.on_down(*slot, code, reason);
  user_.rail_moved(false);
}

void Rail::on_completion(Path& path, const Ended& ended) noexcept {
  for (std::uint64_t i = 0; i < ended.count; ++i) {
    PathSlot* slot = paths_.find(path);
    if (slot == nullptr) return;
    user_.rail_moved(ended.code == Code::kOk);
    one_completed(*slot, ended.first + i, ended.code);
  }
}

void Rail::one_completed(PathSlot& slot, std::uint64_t id, Code code) {
  if (id == kProbeId) return slot.on_probe(code);
  slot.moved = true;
  const std::optional<PostedRequest> request = slot.in_flight.end(id);
  if (!request || request->use == PostedRequest::Use::kControl) return;
  slot.carried |= code == Code::kOk;
  share_.ended(request->bytes, host_.now());
  user_.rail_ended(*request, code);
}

void Rail::on_message(Path& path, std::span<const std::byte> bytes) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  user_.rail_moved(true);
  const std::optional<PathMessage> message = decode(bytes);
  if (!message || message->type != MessageType::kHello) return user_.rail_misused(*this);
  slot->on_hello(message->sequence);
}

void Rail::on_notification(Path& path, std::uint32_t) noexcept {
  if (paths_.find(path) != nullptr) user_.rail_misused(*this);
}

}  // namespace fairlead::datapath
