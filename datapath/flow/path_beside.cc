// Paths: a better one, set up beside the one in use.
//
// Nothing but what proves it goes over it until the path in use is fenced, at both ends. So whatever becomes of it
// before costs nothing: who gives it up says PathDown, and the path in use goes on.
#include <fmt/format.h>

#include "datapath/flow/path_set.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

/// Active, with a path in use.
void PathSet::look_for_better(Clock::time_point now) {
  if (measures() && active_) return look_by_figures(now);
  if (candidate_ == 0 || !active_ || !beside_allowed_ || stays_ || !rules_.failover || beside_ != nullptr) return;
  if (!host_.linked()) return;
  const std::optional<std::size_t> better = trials_.better(candidate_, now);
  if (better) set_up_beside(*better);
}

void PathSet::set_up_beside(std::size_t candidate) {
  Result<std::unique_ptr<PathSlot>> slot = offer_path(candidate);
  if (slot) {
    beside_ = std::move(*slot);
  } else {
    trials_.failed_beside(candidate, slot.error().message(), host_.now());
  }
}

void PathSet::give_up_beside(const std::string& reason) {
  if (active_) {
    log(LogLevel::kInfo,
        fmt::format("{} to {} does not work yet: {}", name_of(beside_->candidate), host_.who(), reason));
    trials_.failed_beside(beside_->candidate, reason, host_.now());
  }
  retire(std::move(beside_));
}

void PathSet::advance_beside(Clock::time_point now) {
  // The peer may have heard of the fence, and use it: what became of it meanwhile shows once it is ours, too.
  const bool may_be_used = state() == PathState::kFenced && beside_->state == PathState::kProved;
  if (!may_be_used) advance_setup(*beside_, now);
}

/// Both ends have proved it.
void PathSet::take_over(const std::string& reason) {
  if (!active_ || stays_ || state() != PathState::kInUse) return;
  saw(PathEvent::kBetter);
  log(LogLevel::kInfo, fmt::format("{} to {}: {}; fencing the path in use",
                                   host_.transports()[slot_->transport].offer.name, host_.who(), reason));
  leave(Code::kAborted, reason, true);  // a code that speaks against nothing
}

/// The path before it is gone.
void PathSet::promote() {
  use(std::move(beside_));
  slot_->opened_at = host_.now();
  check_proved(*slot_);
}

}  // namespace fairlead::datapath
