// The stations of a link and their Ethernet addresses: who is known, who must be asked, and when again.
//
// No I/O: the owner sends the questions that due() names and tells what it hears. A station that is used is asked again
// now and then, itself first; when it does not answer, everybody is asked, and its frames go nowhere meanwhile.
// There are at most kMost; a new one then takes the place of one that was not used for long.
// Threads: none of its own; under its domain's lock.
// Source: RFC 1122, 2.3.2 and RFC 4861, 7.3 (unreachability); the times are those of Linux, roughly.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "base/intrusive_list.h"
#include "base/timer_queue.h"
#include "verbs/soft/wire/ethernet.h"
#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

class Neighbours {
 public:
  /// Sixteen times what Linux keeps: who answers forged sources names any number of them.
  static constexpr std::size_t kMost = 16384;

  /// Where the address is found until another takes its place; one that is new is asked for at once.
  [[nodiscard]] int find_or_add(const Gid& address, Nanos now);
  /// The same for one whose address tells its station: nobody is ever asked.
  [[nodiscard]] int find_or_add(const Gid& address, const Mac& mac);
  /// Where its frames go; null while nobody knows. A use: keeps the entry fresh. Valid until the next call. `number` is
  /// where the address was found once.
  [[nodiscard]] const Mac* lookup(int number, const Gid& address, Nanos now);
  /// Somebody said that the address is at that station. True if that is news of an address that somebody wants.
  bool learn(const Gid& address, const Mac& mac, Nanos now) noexcept;
  /// Who asked for us is about to be answered, and so to be known.
  bool learn_asker(const Gid& address, const Mac& mac, Nanos now);

  /// The link was cut: other stations may be behind it. Everybody is asked again.
  void forget(Nanos now) noexcept;

  struct Question {
    Gid address;
    const Mac* known;  // asks this station alone; null: everybody
    bool given_up;     // nobody has answered for a while: what waits for it should not
  };
  /// The next question that is to be asked by now, if there is one; it counts as asked.
  [[nodiscard]] std::optional<Question> due(Nanos now) noexcept;
  /// No later than when due() will have the next one; 0: never.
  [[nodiscard]] Nanos next_due() const noexcept { return timers_.next(); }
  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }

 private:
  struct Entry {
    Gid address;
    Mac mac;
    bool known = false;
    bool fixed = false;       // never asked for
    bool used = false;        // since it was confirmed
    bool spared = false;      // used since it was last considered for removal
    unsigned unanswered = 0;  // questions
    Nanos ask_at = 0;         // 0: no need
    TimerEntry<Entry> timer{this};
    Link<Entry> order{this};
    int number = 0;
  };

  Entry& add(const Gid& address);
  Entry& recycle() noexcept;
  void schedule(Entry& entry, Nanos at) noexcept;

  std::deque<Entry> entries_;  // never moved
  std::unordered_map<Gid, int, GidHash> numbers_;
  List<Entry> order_;  // the next to be considered for removal first
  TimerQueue<Entry> timers_;
};

}  // namespace fairlead::soft
