#include "datapath/lane/event_queues.h"

#include <sys/eventfd.h>

#include <utility>

#include "datapath/lane/lane.h"

namespace fairlead::datapath {

EventQueues::EventQueues(Waiters* waiters)
    : waiters_(waiters), fd_(UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {}

// Sessions with events keep themselves.
EventQueues::~EventQueues() {
  clear([](Submission&) {});
}

int EventQueues::fd() noexcept {
  const std::lock_guard lock(lock_);
  watched_ = true;
  changed();
  return fd_.get();
}

// After a queue became empty or ceased to be. Under lock_.
void EventQueues::changed() noexcept {
  any_accepted_.store(!accepted_.empty(), std::memory_order_release);
  any_with_events_.store(!with_events_.empty(), std::memory_order_release);
  any_completed_.store(!completed_.empty(), std::memory_order_release);
  if (!watched_) return;
  const bool waits = !accepted_.empty() || !with_events_.empty() || !completed_.empty();
  if (waits == std::exchange(readable_, waits)) return;
  if (waits) {
    ::eventfd_write(fd_.get(), 1);
  } else {
    eventfd_t value;
    ::eventfd_read(fd_.get(), &value);
  }
}

namespace {

/// Most have no text and tell of nothing bad: strings that are empty at both ends are left as they are.
void move_event(Event& from, Event& to) {
  const auto is_plain = [](const Event& each) {
    return each.text.empty() && each.status.ok() && each.status.message().empty();
  };
  if (!is_plain(from) || !is_plain(to)) {
    to = std::move(from);
    return;
  }
  to.kind = from.kind;
  to.traffic = from.traffic;
  to.value = from.value;
  to.data = std::move(from.data);
}

}  // namespace

/// Under EventQueues::lock_, so nobody else writes.
void Inbox::count(const Event& event, std::size_t by) noexcept {
  pending_.store(pending_.load(std::memory_order_relaxed) + by, std::memory_order_release);
  if (event.kind == Event::Kind::kPathChanged) changes_ += by;
  if (event.kind != Event::Kind::kNotification && event.kind != Event::Kind::kMessage) return;
  std::atomic<std::size_t>& waiting = waiting_[static_cast<std::size_t>(event.traffic)];
  waiting.store(waiting.load(std::memory_order_relaxed) + by, std::memory_order_release);
}

bool Inbox::add(Event&& event) {
  const auto is_change = [](const Event& each) { return each.kind == Event::Kind::kPathChanged; };
  Ring<Event>& to = event.traffic == TrafficClass::kCommands ? commands_ : events_;
  if (changes_ >= kMostChanges && is_change(event) && !to.empty() && is_change(to.back())) {
    to.back() = std::move(event);
    return false;
  }
  count(event, 1);
  move_event(event, to.add_back());
  return true;
}

void EventQueues::push_event(EventSource& source, Event&& event) {
  Inbox& inbox = source.inbox;
  const bool last = event.kind == Event::Kind::kClosed;
  std::shared_ptr<EventSource> gone;  // outside the lock, as it may be the last reference
  {
    const std::lock_guard lock(lock_);
    const bool is_first = inbox.add(std::move(event)) && !inbox.listed_.linked();
    inbox.is_last_ |= last;
    if (is_first && !over_) {
      if (inbox.keep_ == nullptr) inbox.keep_ = source.shared_from_this();
      inbox.idle_.unlink();
      with_events_.push_back(inbox.listed_);
      changed();
    }
    if (last) gone = note_ended(inbox);
    if (!is_first) return;
  }
  wake();
}

void EventQueues::forget(EventSource& source) {
  Inbox& inbox = source.inbox;
  std::shared_ptr<EventSource> kept;  // outside the lock, like what the events hold
  Ring<Event> events, commands;
  const std::lock_guard lock(lock_);
  events.swap(inbox.events_);
  commands.swap(inbox.commands_);
  inbox.changes_ = 0;
  inbox.pending_.store(0, std::memory_order_release);
  for (std::atomic<std::size_t>& waiting : inbox.waiting_) waiting.store(0, std::memory_order_release);
  kept = unlist(inbox);
  changed();
}

/// What kept it, to be let go of outside of the lock. Under lock_.
std::shared_ptr<EventSource> EventQueues::unlist(Inbox& inbox) noexcept {
  inbox.listed_.unlink();
  inbox.idle_.unlink();
  if (inbox.ended_.linked()) --ended_count_;
  inbox.ended_.unlink();
  return std::move(inbox.keep_);
}

/// Its last event is there. Returns who gives way to it; null: nobody. Under lock_.
std::shared_ptr<EventSource> EventQueues::note_ended(Inbox& inbox) noexcept {
  if (!inbox.listed_.linked() || inbox.ended_.linked()) return nullptr;
  ended_.push_back(inbox.ended_);
  if (++ended_count_ <= kMostEnded || asked_.load(std::memory_order_relaxed)) return nullptr;
  return unlist(ended_.front()->inbox);
}

/// The next event: a command, unless the application has yet to hear that the session is connected. The session goes to
/// the end of the list, or, with the only event, leaves it. What is returned is to outlive the lock: with the last that
/// there will ever be, it may be the last reference.
std::shared_ptr<EventSource> EventQueues::pop(Inbox& inbox, Event& event, Taken& taken) {
  const bool begins = !inbox.events_.empty() && inbox.events_.front().kind == Event::Kind::kConnected;
  Ring<Event>& from = inbox.commands_.empty() || begins ? inbox.events_ : inbox.commands_;
  move_event(from.front(), event);
  from.drop_front();
  inbox.count(event, static_cast<std::size_t>(-1));
  ++inbox.taken_.events;
  inbox.taken_.bytes += event.data.size();
  taken = inbox.taken_;
  if (!inbox.listed_.linked()) return nullptr;
  if (inbox.empty() && inbox.is_last_) {
    std::shared_ptr<EventSource> owner = unlist(inbox);
    changed();
    return owner;
  }
  inbox.listed_.unlink();
  if (inbox.empty()) {
    idle_.push_back(inbox.idle_);
    changed();
  } else {
    with_events_.push_back(inbox.listed_);
  }
  return nullptr;
}

bool EventQueues::take_event(Inbox& inbox, Event& event, Taken& taken) {
  if (inbox.pending() == 0) return false;
  std::shared_ptr<EventSource> owner;
  const std::lock_guard lock(lock_);
  if (inbox.empty()) return false;
  owner = pop(inbox, event, taken);
  return true;
}

std::shared_ptr<EventSource> EventQueues::take_any_event(Event& event, Taken& taken) {
  if (!asked_.load(std::memory_order_relaxed)) asked_.store(true, std::memory_order_relaxed);
  if (!any_events()) return nullptr;
  const std::lock_guard lock(lock_);
  if (with_events_.empty()) return nullptr;
  Inbox& inbox = with_events_.front()->inbox;
  std::shared_ptr<EventSource> owner = inbox.keep_;
  std::shared_ptr<EventSource> gone = pop(inbox, event, taken);
  return owner;
}

/// The oldest that ended, no longer accepted; null: none has. Under lock_.
std::shared_ptr<EventSource> EventQueues::drop_ended() {
  std::size_t at = 0;
  while (at < accepted_.size() && !accepted_[at]->events_over()) ++at;
  if (at == accepted_.size()) return nullptr;
  std::shared_ptr<EventSource> oldest = std::move(accepted_[at]);
  for (; at > 0; --at) accepted_[at] = std::move(accepted_[at - 1]);  // those before it move up
  accepted_.drop_front();
  return oldest;
}

void EventQueues::push_accepted(std::shared_ptr<EventSource> session) {
  std::shared_ptr<EventSource> gone, kept;  // outside the lock, as these may be the last references
  {
    const std::lock_guard lock(lock_);
    if (over_) return;
    if (accepted_.size() >= kMostAccepted) gone = drop_ended();
    if (gone != nullptr && !asked_.load(std::memory_order_relaxed)) kept = unlist(gone->inbox);
    accepted_.push_back(std::move(session));
    changed();
  }
  wake();
}

std::shared_ptr<EventSource> EventQueues::take_accepted() {
  if (!any_accepted_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(lock_);
  if (accepted_.empty()) return nullptr;
  std::shared_ptr<EventSource> session = accepted_.pop_front();
  changed();
  return session;
}

bool EventQueues::push_completed(Submission& transfer) {
  {
    const std::lock_guard lock(lock_);
    if (over_) return false;
    completed_.push_back(&transfer);
    changed();
  }
  wake();
  return true;
}

Submission* EventQueues::take_completed() {
  if (!any_completed_.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(lock_);
  if (completed_.empty()) return nullptr;
  Submission* transfer = completed_.pop_front();
  changed();
  return transfer;
}

void EventQueues::end(const std::function<void(Submission&)>& drop) {
  {
    const std::lock_guard lock(lock_);
    over_ = true;
  }
  clear(drop);
}

void EventQueues::clear(const std::function<void(Submission&)>& drop) {
  Ring<std::shared_ptr<EventSource>> sessions;
  Ring<Submission*> completed;
  {
    const std::lock_guard lock(lock_);
    sessions.swap(accepted_);
    while (EventSource* source = with_events_.front()) sessions.push_back(unlist(source->inbox));
    while (EventSource* source = idle_.front()) sessions.push_back(unlist(source->inbox));
    completed.swap(completed_);
    changed();
  }
  // Outside the lock, as the last reference to a session may be among them.
  while (!completed.empty()) drop(*completed.pop_front());
}

}  // namespace fairlead::datapath
