// When objects want to be looked at: a binary heap by time, with at most one entry for each.
//
// A deadline moves later with every acknowledgement; its entry then stays where it is and is put back when it comes
// due, so that the common case costs nothing. No allocation after reserve(). Threads: none of its own; the owner's
// lock.
#pragma once

#include <cassert>
#include <cstddef>
#include <new>
#include <vector>

#include "base/clock.h"

namespace fairlead {

template <typename T>
class TimerQueue;

/// An object's place in the heap, which it leaves when it ends. Heap and object may end in either order.
template <typename T>
struct TimerEntry {
  explicit TimerEntry(T* object) noexcept : owner(object) {}
  TimerEntry(const TimerEntry&) = delete;
  TimerEntry& operator=(const TimerEntry&) = delete;
  ~TimerEntry() {
    if (position != 0) queue->remove(*this);
  }

  T* const owner;
  TimerQueue<T>* queue = nullptr;  // that it is or was in
  Nanos at = 0;
  std::size_t position = 0;  // plus one; 0: not in the heap
};

template <typename T>
class TimerQueue {
 public:
  using Entry = TimerEntry<T>;

  TimerQueue() = default;
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;
  ~TimerQueue() {
    for (Entry* entry : heap_) entry->position = 0;
  }

  /// Room for so many.
  void reserve(std::size_t entries) { heap_.reserve(entries); }
  /// The same. False: there is no memory for it.
  [[nodiscard]] bool try_reserve(std::size_t entries) noexcept {
    try {
      reserve(entries);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  /// The entry's owner must be looked at by `at`.
  void wake(Entry& entry, Nanos at) noexcept {
    if (entry.position == 0) {
      assert(heap_.size() < heap_.capacity());
      heap_.push_back(&entry);
      entry.queue = this;
      entry.position = heap_.size();
    } else if (entry.at <= at) {
      return;
    }
    entry.at = at;
    rise(entry.position - 1);
  }
  void remove(Entry& entry) noexcept {
    if (entry.position == 0) return;
    const std::size_t hole = entry.position - 1;
    entry.position = 0;
    Entry* last = heap_.back();
    heap_.pop_back();
    if (last == &entry) return;
    place(hole, last);
    rise(hole);
    sink(last->position - 1);
  }
  /// Whose time has come, taken out; null when there is none.
  [[nodiscard]] T* pop_due(Nanos now) noexcept {
    if (heap_.empty() || heap_.front()->at > now) return nullptr;
    Entry* first = heap_.front();
    remove(*first);
    return first->owner;
  }
  /// 0: none waits.
  [[nodiscard]] Nanos next() const noexcept { return heap_.empty() ? 0 : heap_.front()->at; }

 private:
  void place(std::size_t index, Entry* entry) noexcept {
    heap_[index] = entry;
    entry->position = index + 1;
  }
  void rise(std::size_t index) noexcept {
    Entry* entry = heap_[index];
    for (; index > 0 && entry->at < heap_[(index - 1) / 2]->at; index = (index - 1) / 2) {
      place(index, heap_[(index - 1) / 2]);
    }
    place(index, entry);
  }
  void sink(std::size_t index) noexcept {
    Entry* entry = heap_[index];
    for (std::size_t child; (child = 2 * index + 1) < heap_.size(); index = child) {
      if (child + 1 < heap_.size() && heap_[child + 1]->at < heap_[child]->at) ++child;
      if (heap_[child]->at >= entry->at) break;
      place(index, heap_[child]);
    }
    place(index, entry);
  }

  std::vector<Entry*> heap_;
};

}  // namespace fairlead
