// What a flow hears of its paths: transports' reports, and the set's word that one is in use, lost, gone.
#include <fmt/format.h>

#include "base/tally.h"
#include "datapath/flow/flow.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

void Flow::on_ready(Path& path) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  paths_.on_ready(*slot);
  dirty_ = true;
}

void Flow::on_down(Path& path, Code code, std::string_view reason) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  paths_.on_down(*slot, code, reason);
  dirty_ = true;
}

void Flow::send_frame(const control::Frame& frame) {
  control::Frame named = frame;
  if (std::uint32_t* flow = control::flow_of(named)) *flow = static_cast<std::uint32_t>(traffic_);
  user_.send_frame(named);
}

void Flow::path_in_use() {
  const PathSlot& slot = *paths_.in_use();
  const std::string to(user_.transports()[slot.transport].offer.name);
  explanation_ = paths_.explain();
  const bool first = !was_usable();
  const std::string_view what = traffic_ == TrafficClass::kCommands ? "commands: " : "";
  Event event;
  event.traffic = traffic_;
  event.kind = first ? Event::Kind::kConnected : Event::Kind::kPathChanged;
  const auto [code, why] = paths_.left_because();
  event.text = first ? explanation_ : fmt::format("{}{} -> {}: {}", what, carried_by_, to, why);
  if (!first) {
    const bool back = paths_.left_for_better();
    (back ? counters_.failbacks : counters_.recoveries).add();
    counters_.failovers.add(back || carried_by_ == to ? 0 : 1);
    if (!back) (carried_by_ == to ? tally().recoveries : tally().failovers).add(code);
    log(back ? LogLevel::kInfo : LogLevel::kWarning, fmt::format("path to {} changed: {}", user_.who(), event.text));
  } else {
    log(LogLevel::kInfo, fmt::format("{}connected to {} over {}", what, user_.who(), explanation_));
  }
  carried_by_ = to;
  first_share_.reset(user_.transports()[slot.transport].planned_weight);
  if (slot.figure) first_share_.expect(slot.figure->rate);
  rails_due_ = dirty_ = true;
  user_.flow_usable(std::move(event));
  pump();
}

void Flow::path_measured() {
  counters_.paths_measured.add();
  dirty_ = true;
  if (paths_.slot() != nullptr) explanation_ = paths_.explain();
  user_.flow_described();
}

void Flow::path_lost() {
  dirty_ = true;
  if (was_usable() && !paths_.left_for_better()) user_.flow_lost();
}

/// What the path will not report any more: requests that had no transfer (hello, credits), or that it had no time for.
void Flow::path_gone(InFlight& held) {
  while (!held.empty()) request_ended(held.end_oldest(), Code::kAborted);
  outbox_.abort_staged();
  staged_target_.reset();
  dirty_ = true;
}

}  // namespace fairlead::datapath
