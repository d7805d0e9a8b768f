// Hears of every change of which pages lie in a range of this process's memory, before anybody can be misled by it.
//
// By userfaultfd(2) in write-protect mode, which protects nothing here: no page is ever write-protected and no fault
// comes. It is registered for its events alone, which the kernel sends when a watched range is unmapped, moved, mapped
// over (MAP_FIXED) or emptied (MADV_DONTNEED, MADV_FREE). UFFD_USER_MODE_ONLY needs no privilege.
//
// A change and its event: the thread that unmaps waits, when the pages are gone, until its event is read; meanwhile
// others run, and may have mapped the same addresses again. So who wants to know asks (catch_up): the kernel refuses
// UFFDIO_WRITEPROTECT with EAGAIN as long as any change is pending, from before its pages go until the thread that
// made it goes on. And the reader of an event says so before it reads (closed_), since from the read on that thread
// goes on, while what it changed is not told yet.
//
// A mapping has one userfaultfd at most, so all caches of a process share a watcher (shared()).
//
// Threads: one of its own reads; watch, unwatch and catch_up from any. What reads must neither allocate nor free nor
// take a lock under which somebody does, or maps or unmaps: memory that is given back may be watched, and then waits
// for the reader. That holds for on_gone as well. Source: Linux, fs/userfaultfd.c; ioctl_userfaultfd(2).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/intrusive_list.h"
#include "base/private_fd.h"
#include "base/unique_fd.h"
#include "fairlead/status.h"
#include "memreg/cache/pages.h"

namespace fairlead::memreg::cache {

/// What tests look at; each may be empty.
struct WatcherProbes {
  std::function<void()> before_read = {};          // on the watcher's own thread, each time it is about to read
  std::function<void(Range)> before_unwatch = {};  // of what is to be watched no more
};

class Watcher {
 public:
  class Listener {
   public:
    Listener() noexcept : link(this) {}
    /// What lay there is gone, or is about to go. `unmapped`: and nothing there is watched any more. One call at a
    /// time, on whichever thread reads.
    virtual void on_gone(Range range, bool unmapped) noexcept = 0;
    /// What was watched lies elsewhere, and is watched there: another thread is to call unwatch_moved().
    virtual void on_moved() noexcept = 0;
    /// The first part of [from, range.end) whose watching it does not need; empty: it needs all.
    [[nodiscard]] virtual Range not_needed(Range range, std::uintptr_t from) noexcept = 0;

    Link<Listener> link;  // the watcher's

   protected:
    ~Listener() = default;
  };

  /// Errors: kUnimplemented (the kernel or a filter does not allow it: says what was refused), kResourceExhausted.
  static Result<std::shared_ptr<Watcher>> open(WatcherProbes probes = {});
  /// The one of this process, made where there is none; lives as long as somebody has it.
  static Result<std::shared_ptr<Watcher>> shared();
  /// Nobody listens any more. In a forked child it must not be destroyed.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  void add(Listener& listener) noexcept;
  /// When it returns, it is in no call, and none follows.
  void remove(Listener& listener) noexcept;

  /// When it returns ok, the whole range is mapped, and each change of it from then on is told. What changes meanwhile
  /// is told as well. Errors: check_watchable()'s; kUnavailable (it changes all the time, or another userfaultfd of
  /// this process has it), kResourceExhausted (no more mappings: MappingBudget).
  Status watch(Range pages);
  /// Of a range that was watched, whatever is still there of it and no listener needs. What another userfaultfd of the
  /// process watches is left alone.
  void unwatch(Range pages) noexcept;
  /// The same of all that was moved (mremap) since the last call, where it lies now.
  void unwatch_moved() noexcept;
  /// When it returns true, every change that any thread made before the call has been told. False: cannot say.
  [[nodiscard]] bool catch_up() noexcept;

 private:
  Watcher() = default;
  Status begin(WatcherProbes probes);
  void read_until_stopped() noexcept;
  /// Reads and tells what is pending now, if anything is.
  void drain() noexcept;
  void note_moved(Range to) noexcept;
  [[nodiscard]] Range sentinel() const noexcept {
    return range_of({static_cast<const std::byte*>(sentinel_), page_bytes()});
  }
  [[nodiscard]] int protect_nothing(Range pages) const noexcept;
  [[nodiscard]] int ask(Range pages) noexcept;
  Status watch_alone(Range pages);
  void unwatch_alone(Range pages) noexcept;
  void stop_watching(Range pages) noexcept;
  [[nodiscard]] bool stop_watching_own(Range pages) noexcept;
  [[nodiscard]] bool each_is_watched(const std::vector<Range>& parts) noexcept;

  static constexpr std::size_t kMostMoved = 64;  // that are remembered one by one

  WatcherProbes probes_;
  PrivateFd fd_;
  UniqueFd null_;  // what takes the place of fd_ at the end
  UniqueFd stop_;  // written once, at the end, and never read: whoever polls it sees it
  std::atomic<bool> stopping_{false};
  void* sentinel_ = nullptr;  // a page that is watched and never changes
  std::mutex watching_;       // held while ranges are added and taken away; not by who reads
  List<Listener> listeners_;  // changes under both mutexes
  std::mutex reading_;        // held from before a read until what was read has been told
  std::atomic<bool> closed_{false};
  std::array<Range, kMostMoved> moved_{};       // where it lies now: under reading_
  std::atomic<std::size_t> count_of_moved_{0};  // changes under reading_; beyond kMostMoved: there were more
  std::thread reader_;
};

}  // namespace fairlead::memreg::cache
