// What other threads ask of a session: room for a transfer, its posting, questions, events, the end.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/clock.h"
#include "datapath/session/session.h"

namespace fairlead::datapath {

bool SessionImpl::take_event(Event& event) {
  Taken taken;
  if (!host_->queues().take_event(inbox, event, taken)) return false;
  event_taken(event, taken);
  return true;
}

void SessionImpl::event_taken(const Event& event, const Taken& taken) {
  const CreditWindow::Limits own = window();
  // Powers of two, since a division takes as long as the rest of this.
  const std::size_t events = std::bit_floor(std::max<std::size_t>(own.events / 4, 1));
  const std::size_t bytes = std::bit_floor(std::max<std::size_t>(own.bytes / 4, 1));
  const bool crossed = ((taken.bytes ^ (taken.bytes - event.data.size())) & ~(bytes - 1)) != 0;
  if ((taken.events & (events - 1)) == 0 || crossed) host_->lane().kick();
}

Status SessionImpl::admit(const TransferImpl& transfer) {
  const EngineConfig& config = host_->config();
  const std::uint64_t bytes = transfer.message_bytes();
  switch (room_of(transfer).take(bytes, {config.max_posted, config.max_posted_bytes})) {
    case Room::Full::kNo:
      return {};
    case Room::Full::kTransfers:
      return {Code::kResourceExhausted,
              fmt::format("{} transfers to {} are under way, the limit (max_posted); wait for some of them",
                          config.max_posted, who())};
    case Room::Full::kBytes:
      break;
  }
  return {Code::kResourceExhausted,
          fmt::format("a message of {} bytes would be more than the {} bytes that may be under way to {} "
                      "(max_posted_bytes); wait for some of them",
                      bytes, config.max_posted_bytes, who())};
}

void SessionImpl::submit(TransferImpl& transfer) {
  transfer.session = this;
  transfer.sink = this;
  if (transfer.prepared == nullptr) transfer.session_owner = self();
  transfer.references.store(2, std::memory_order_relaxed);  // the poster's and the driver's; nobody else has it yet
  host_->lane().submit(transfer);
}

void SessionImpl::request_cancel(TransferImpl& transfer) {
  add_reference(transfer);
  host_->lane().submit([self = self(), &transfer] {
    if (transfer.active) self->flow_of(transfer.traffic).outbox().end_early(transfer, self->now());
    drop_reference(transfer);
  });
}

std::shared_ptr<LookupRequest> SessionImpl::start_lookup(std::string_view name, bool prefix,
                                                         std::string_view capability) {
  auto request = std::make_shared<LookupRequest>();
  request->name = name;
  request->prefix = prefix;
  request->capability = capability;
  host_->lane().submit([self = self(), request] {
    if (self->finished() || self->phase_ == Phase::kDraining || self->phase_ == Phase::kClosing) {
      request->status = {Code::kUnavailable, fmt::format("the session with {} is closed", self->who())};
      request->finished.store(true, std::memory_order_release);
    } else {
      self->lookups_.add(request);
    }
  });
  return request;
}

void SessionImpl::request_close(std::chrono::nanoseconds grace) {
  const Clock::time_point now = host_->now(), never = Clock::time_point::max();
  const Clock::time_point last = never - Clock::duration(1);  // never itself says that nobody asked
  const Clock::time_point deadline = std::min(later(now, grace), last);
  host_->lane().submit([self = self(), deadline] {
    self->saw(SessionEvent::kCloseAsked);
    if (self->phase_ == Phase::kClosing || self->phase_ == Phase::kDraining || self->finished()) return;
    self->close_deadline_ = deadline;
    self->begin_close({});
  });
}

}  // namespace fairlead::datapath
