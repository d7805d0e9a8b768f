// The asynchronous events of a device, which come to its context, given to the endpoints that they are about.
//
// Whoever looks takes all that there is, and leaves what others' queue pairs met for them, whom it wakes; what is about
// the whole device everyone hears.
//
// Threads: each Reader is its endpoint's, used by who drives that; they share a lock, held for a few instructions.
#pragma once

#include <infiniband/verbs.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/private_fd.h"
#include "verbs/provider/verbs_api.h"

namespace fairlead::verbs {

class AsyncEvents {
 public:
  struct Event {
    ibv_event_type type;
    const ibv_qp* qp;  // null: the device's
  };
  class Reader;

  /// The context outlives it. `name` is for words.
  AsyncEvents(const VerbsApi& api, ibv_context* context, std::string name)
      : api_(api), context_(context), name_(std::move(name)) {}

 private:
  struct Box;
  void take_all(const Box& taker);
  static void put(Box& box, const Event& event, const Box& taker);

  const VerbsApi& api_;
  ibv_context* const context_;
  const std::string name_;
  struct Box {
    std::vector<Event> waiting;
    PrivateFd left;  // readable while another reader has put something there
  };

  std::mutex mutex_;  // guards what follows, and what is in boxes
  std::vector<Box*> boxes_;
  std::unordered_map<const ibv_qp*, Box*> of_qp_;
};

class AsyncEvents::Reader {
 public:
  /// `events` outlives it.
  explicit Reader(AsyncEvents& events);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// False if there was no descriptor to be had.
  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(box_.left); }
  /// Readable when another reader has left something.
  [[nodiscard]] int left_fd() const noexcept { return box_.left.get(); }

  /// Until it is forgotten, and before it is destroyed, the queue pair's events are this reader's.
  void watch(const ibv_qp* qp);
  void forget(const ibv_qp* qp) noexcept;
  /// What has come for this reader's queue pairs and for the device.
  [[nodiscard]] std::vector<Event> take();

 private:
  AsyncEvents& events_;
  Box box_;
};

}  // namespace fairlead::verbs
