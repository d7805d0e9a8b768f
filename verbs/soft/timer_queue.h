// When queue pairs want to be looked at: a binary heap by time, with at most one entry per queue pair.
//
// A queue pair's deadline moves later with every acknowledgement; its entry then stays where it is and is put back when
// it comes due, so that the common case costs nothing. No allocation after reserve(). Threads: under the domain's lock.
#pragma once

#include <cassert>
#include <cstddef>
#include <vector>

#include "verbs/soft/port/clock.h"

namespace fairlead::soft {

class Qp;

/// A queue pair's place in the heap.
struct TimerEntry {
  explicit TimerEntry(Qp* owner) noexcept : qp(owner) {}
  Qp* const qp;
  Nanos at = 0;
  std::size_t position = 0;  // plus one; 0: not in the heap
};

class TimerQueue {
 public:
  /// Room for so many queue pairs.
  void reserve(std::size_t queue_pairs) { heap_.reserve(queue_pairs); }

  /// The queue pair must be looked at by `at`.
  void wake(TimerEntry& entry, Nanos at) noexcept {
    if (entry.position == 0) {
      assert(heap_.size() < heap_.capacity());
      heap_.push_back(&entry);
      entry.position = heap_.size();
    } else if (entry.at <= at) {
      return;
    }
    entry.at = at;
    rise(entry.position - 1);
  }
  void remove(TimerEntry& entry) noexcept {
    if (entry.position == 0) return;
    const std::size_t hole = entry.position - 1;
    entry.position = 0;
    TimerEntry* last = heap_.back();
    heap_.pop_back();
    if (last == &entry) return;
    place(hole, last);
    rise(hole);
    sink(last->position - 1);
  }
  /// The queue pair whose time has come, taken out; null when there is none.
  [[nodiscard]] Qp* pop_due(Nanos now) noexcept {
    if (heap_.empty() || heap_.front()->at > now) return nullptr;
    TimerEntry* first = heap_.front();
    remove(*first);
    return first->qp;
  }
  /// 0: none waits.
  [[nodiscard]] Nanos next() const noexcept { return heap_.empty() ? 0 : heap_.front()->at; }

 private:
  void place(std::size_t index, TimerEntry* entry) noexcept {
    heap_[index] = entry;
    entry->position = index + 1;
  }
  void rise(std::size_t index) noexcept {
    TimerEntry* entry = heap_[index];
    for (; index > 0 && entry->at < heap_[(index - 1) / 2]->at; index = (index - 1) / 2) {
      place(index, heap_[(index - 1) / 2]);
    }
    place(index, entry);
  }
  void sink(std::size_t index) noexcept {
    TimerEntry* entry = heap_[index];
    for (std::size_t child; (child = 2 * index + 1) < heap_.size(); index = child) {
      if (child + 1 < heap_.size() && heap_[child + 1]->at < heap_[child]->at) ++child;
      if (heap_[child]->at >= entry->at) break;
      place(index, heap_[child]);
    }
    place(index, entry);
  }

  std::vector<TimerEntry*> heap_;
};

}  // namespace fairlead::soft
