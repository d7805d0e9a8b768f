// What other threads ask of a session: room for a transfer, its posting, questions, events, the end.
#include <fmt/format.h>

#include <algorithm>

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
  const std::size_t events = std::max<std::size_t>(own.events / 4, 1);
  const std::size_t bytes = std::max<std::size_t>(own.bytes / 4, 1);
  const bool crossed = taken.bytes / bytes != (taken.bytes - event.data.size()) / bytes;
  if (taken.events % events == 0 || crossed) host_->lane().kick();
}

namespace {

/// Counts `more` as posted unless the limit is reached. What ended is looked at only then: it is another thread's.
/// A single one passes however large it is.
bool take_room(std::atomic<std::uint64_t>& posted, std::atomic<std::uint64_t>& seen, const Counter& ended,
               std::uint64_t more, std::uint64_t limit) {
  const std::uint64_t before = posted.fetch_add(more, std::memory_order_relaxed);
  const auto full = [&] {
    const std::uint64_t under_way = before - seen.load(std::memory_order_relaxed);
    return under_way != 0 && (under_way >= limit || more > limit - under_way);
  };
  if (!full()) return true;
  seen.store(ended.get(), std::memory_order_relaxed);
  if (!full()) return true;
  posted.fetch_sub(more, std::memory_order_relaxed);
  return false;
}

}  // namespace

Status SessionImpl::admit(const TransferImpl& transfer) {
  const EngineConfig& config = host_->config();
  Room& room = room_of(transfer);
  if (!take_room(room.posted, room.seen_ended, room.ended, 1, config.max_posted)) {
    return {Code::kResourceExhausted,
            fmt::format("{} transfers to {} are under way, the limit (max_posted); wait for some of them",
                        config.max_posted, who())};
  }
  const std::uint64_t bytes = transfer.message.size();
  if (bytes == 0 ||
      take_room(room.posted_bytes, room.seen_ended_bytes, room.ended_bytes, bytes, config.max_posted_bytes)) {
    return {};
  }
  room.posted.fetch_sub(1, std::memory_order_relaxed);
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
  const Clock::time_point deadline = grace < never - now ? now + grace : never;
  host_->lane().submit([self = self(), deadline] {
    self->saw(SessionEvent::kCloseAsked);
    if (self->phase_ == Phase::kClosing || self->phase_ == Phase::kDraining || self->finished()) return;
    self->close_deadline_ = deadline;
    self->begin_close({});
  });
}

}  // namespace fairlead::datapath
