// What waits for the application in any of an engine's lanes. Threads: any.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "base/private_fd.h"
#include "datapath/lane/event_queues.h"

namespace fairlead::datapath {

class Sinks {
 public:
  /// Before the first lane starts.
  void add(EventQueues& lane) { lanes_.push_back(&lane); }

  /// Readable while something waits, and kept so from the first call on. -1: no descriptor was to be had.
  [[nodiscard]] int fd();
  [[nodiscard]] bool any_events() const noexcept;
  [[nodiscard]] bool any_accepted() const noexcept;
  /// An event of any session; null when there is none. Fair among lanes, and among the sessions of each.
  [[nodiscard]] std::shared_ptr<EventSource> take_any_event(Event& event, Taken& taken);
  [[nodiscard]] std::shared_ptr<EventSource> take_accepted();
  [[nodiscard]] Submission* take_completed();

 private:
  /// What the first lane that has something gives, beginning with another each time.
  template <typename Take>
  [[nodiscard]] std::invoke_result_t<Take, EventQueues&> first_of(Take take);

  std::vector<EventQueues*> lanes_;
  std::atomic<std::size_t> turn_{0};
  std::mutex making_;
  PrivateFd all_;  // an epoll over several lanes' descriptors
};

}  // namespace fairlead::datapath
