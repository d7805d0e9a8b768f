// What waits for the application: sessions that were accepted, sessions' events, completed transfers; and a descriptor
// that is readable while something does.
//
// One short lock guards it all, so that an event costs one acquisition to push and one to take. Polling empty queues
// takes none. Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include "base/intrusive_list.h"
#include "base/private_fd.h"
#include "base/spin_lock.h"
#include "datapath/lane/ring.h"
#include "datapath/lane/waiters.h"
#include "fairlead/peer.h"

namespace fairlead::datapath {

class Submission;

class EventSource;

/// What the application has ever taken of one session.
struct Taken {
  std::size_t events = 0;
  std::size_t bytes = 0;  // of messages
};

/// A session's events: commands first, each class in its order. All but pending() and waiting() is EventQueues' to
/// touch.
class Inbox {
 public:
  /// Of changes of its paths that follow each other beyond that, the last stands for all: no window bounds them.
  static constexpr std::size_t kMostChanges = 64;

  explicit Inbox(EventSource& owner) noexcept : listed_(&owner), idle_(&owner), ended_(&owner) {}
  [[nodiscard]] std::size_t pending() const noexcept { return pending_.load(std::memory_order_acquire); }
  /// Those of them that a peer sent with this class.
  [[nodiscard]] std::size_t waiting(TrafficClass traffic) const noexcept {
    return waiting_[static_cast<std::size_t>(traffic)].load(std::memory_order_acquire);
  }

 private:
  friend class EventQueues;
  [[nodiscard]] bool empty() const noexcept { return events_.empty() && commands_.empty(); }
  void count(const Event& event, std::size_t by) noexcept;
  /// False: it took the place of another.
  bool add(Event&& event);

  Ring<Event> events_, commands_;
  std::size_t changes_ = 0;  // of paths, in both
  Taken taken_;
  Link<EventSource> listed_;             // in EventQueues::with_events_, while there are any
  Link<EventSource> idle_;               // in EventQueues::idle_, while there are none, and more may come
  Link<EventSource> ended_;              // in EventQueues::ended_, while it is listed and none will come any more
  std::shared_ptr<EventSource> keep_;    // the owner, from its first event until its last one was taken or dropped
  bool is_last_ = false;                 // that one is there
  std::atomic<std::size_t> pending_{0};  // the size of both
  std::array<std::atomic<std::size_t>, kTrafficClasses> waiting_{};
};

/// What events come from: a session.
class EventSource : public std::enable_shared_from_this<EventSource> {
 public:
  Inbox inbox{*this};
  /// No event will come after those that are there. Threads: any.
  [[nodiscard]] virtual bool events_over() const noexcept = 0;

 protected:
  ~EventSource() = default;
};

class EventQueues {
 public:
  /// `waiters`: null, or whom to wake whose condition something new fulfils, besides the lane's own.
  explicit EventQueues(Waiters* waiters = nullptr);
  EventQueues(const EventQueues&) = delete;
  EventQueues& operator=(const EventQueues&) = delete;
  ~EventQueues();

  /// False if there was no descriptor to be had.
  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(fd_); }
  /// Kept readable from the first call on; an engine that nobody watches saves the system calls.
  [[nodiscard]] int fd() noexcept;

  /// Beyond so many sessions that ended and whose events wait, the oldest are not kept for their events any more, if
  /// nobody has ever asked for any session's: who has one still finds them.
  static constexpr std::size_t kMostEnded = 1024;
  /// The last of a session is kClosed.
  void push_event(EventSource& source, Event&& event);
  /// Drops a session's events: nobody is told of it.
  void forget(EventSource& source);
  /// The session's oldest event. `taken` counts what was ever taken from it, this one included.
  [[nodiscard]] bool take_event(Inbox& inbox, Event& event, Taken& taken);
  /// An event of any session; null when there is none. Fair among sessions.
  [[nodiscard]] std::shared_ptr<EventSource> take_any_event(Event& event, Taken& taken);
  [[nodiscard]] bool any_events() const noexcept { return any_with_events_.load(std::memory_order_acquire); }

  [[nodiscard]] bool any_accepted() const noexcept { return any_accepted_.load(std::memory_order_acquire); }

  /// Beyond so many that wait, those give way that ended, the oldest first; with their events, if nobody has ever asked
  /// for any session's: whoever comes and goes does not make an application grow that never looks.
  static constexpr std::size_t kMostAccepted = 1024;
  void push_accepted(std::shared_ptr<EventSource> session);
  [[nodiscard]] std::shared_ptr<EventSource> take_accepted();
  /// False: it is over, and whoever asks keeps the transfer.
  [[nodiscard]] bool push_completed(Submission& transfer);
  [[nodiscard]] Submission* take_completed();
  /// Drops what waits, all but sessions' own events; completed transfers by `drop`.
  void clear(const std::function<void(Submission&)>& drop);
  /// The same for ever: what the queues held from now on would keep the engine, whose they are, and nobody would take.
  void end(const std::function<void(Submission&)>& drop);

 private:
  [[nodiscard]] std::shared_ptr<EventSource> pop(Inbox& inbox, Event& event, Taken& taken);
  void changed() noexcept;
  [[nodiscard]] std::shared_ptr<EventSource> drop_ended();
  [[nodiscard]] std::shared_ptr<EventSource> unlist(Inbox& inbox) noexcept;
  [[nodiscard]] std::shared_ptr<EventSource> note_ended(Inbox& inbox) noexcept;

  void wake() const noexcept {
    if (waiters_ != nullptr) waiters_->wake_done();
  }

  Waiters* const waiters_;
  PrivateFd fd_;
  SpinLock lock_;  // guards what follows, and the inboxes
  Ring<std::shared_ptr<EventSource>> accepted_;
  List<EventSource> with_events_;
  List<EventSource> idle_;   // that had some
  List<EventSource> ended_;  // of those, in the order of ending
  std::size_t ended_count_ = 0;
  Ring<Submission*> completed_;
  bool over_ = false;
  bool watched_ = false;            // fd_ was given out
  bool readable_ = false;           // fd_ is; never while nobody watches it
  std::atomic<bool> asked_{false};  // somebody takes events of whatever session has some
  // Whether the queues hold anything. Written under lock_.
  std::atomic<bool> any_accepted_{false};
  std::atomic<bool> any_with_events_{false};
  std::atomic<bool> any_completed_{false};
};

}  // namespace fairlead::datapath
