#include "verbs/soft/port/frame/neighbours.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fairlead::soft {
namespace {

constexpr std::size_t kMostAskers = 4096;  // more must be asked for: anybody may ask, under any address
constexpr Nanos kFresh = 30 * kSecond;
constexpr unsigned kPatientQuestions = 3;  // to the station itself
constexpr Nanos kPatientPause = 250 * kMillisecond;
constexpr Nanos kFirstPause = 20 * kMillisecond;  // between questions to everybody; then doubled
constexpr Nanos kLongestPause = 1 * kSecond;

}  // namespace

void Neighbours::schedule(Entry& entry, Nanos at) noexcept {
  entry.ask_at = at;
  timers_.wake(entry.timer, at);
}

// The entry that has gone unused the longest, roughly: each that was used since it was looked at last is spared once.
Neighbours::Entry& Neighbours::recycle() noexcept {
  while (true) {
    Entry& entry = *order_.pop_front();
    if (!std::exchange(entry.spared, false)) {
      timers_.remove(entry.timer);
      numbers_.erase(entry.address);
      return entry;
    }
    order_.push_back(entry.order);
  }
}

Neighbours::Entry& Neighbours::add(const Gid& address) {
  const bool full = entries_.size() == kMost;
  Entry& entry = full ? recycle() : entries_.emplace_back();
  if (!full) {
    entry.number = static_cast<int>(entries_.size() - 1);
    timers_.reserve(std::bit_ceil(entries_.size()));
  }
  entry.address = address;
  entry.known = entry.fixed = entry.used = false;
  entry.unanswered = 0;
  entry.ask_at = 0;
  numbers_.emplace(address, entry.number);
  order_.push_back(entry.order);
  return entry;
}

int Neighbours::find_or_add(const Gid& address, Nanos now) {
  if (const auto found = numbers_.find(address); found != numbers_.end()) return found->second;
  Entry& entry = add(address);
  schedule(entry, now);
  return entry.number;
}

int Neighbours::find_or_add(const Gid& address, const Mac& mac) {
  if (const auto found = numbers_.find(address); found != numbers_.end()) return found->second;
  Entry& entry = add(address);
  entry.mac = mac;
  entry.known = entry.fixed = true;
  return entry.number;
}

const Mac* Neighbours::lookup(int number, const Gid& address, Nanos now) {
  if (entries_[static_cast<std::size_t>(number)].address != address) {  // another has taken its place
    const auto station = address.is_ipv4() ? std::nullopt : station_of(address);
    number = station ? find_or_add(address, *station) : find_or_add(address, now);
  }
  Entry& entry = entries_[static_cast<std::size_t>(number)];
  entry.spared = true;
  if (!entry.used && !entry.fixed) {
    entry.used = true;
    if (entry.ask_at == 0) schedule(entry, now);  // it went unused for so long that it was not kept fresh
  }
  return entry.known ? &entry.mac : nullptr;
}

bool Neighbours::learn(const Gid& address, const Mac& mac, Nanos now) noexcept {
  const auto found = numbers_.find(address);
  if (found == numbers_.end() || !mac.is_station()) return false;
  Entry& entry = entries_[static_cast<std::size_t>(found->second)];
  if (entry.fixed) return false;
  const bool news = !entry.known || entry.mac != mac;
  entry.mac = mac;
  entry.known = true;
  entry.used = false;
  entry.unanswered = 0;
  schedule(entry, now + kFresh);
  return news;
}

bool Neighbours::learn_asker(const Gid& address, const Mac& mac, Nanos now) {
  const bool room = !address.is_null() && mac.is_station() && size() < kMostAskers;
  if (room && !numbers_.contains(address)) add(address);
  return learn(address, mac, now);
}

void Neighbours::forget(Nanos now) noexcept {
  for (Entry& entry : entries_) {
    if (entry.fixed) continue;
    entry.known = false;
    entry.unanswered = 0;
    schedule(entry, now);
  }
}

std::optional<Neighbours::Question> Neighbours::due(Nanos now) noexcept {
  while (Entry* const next = timers_.pop_due(now)) {
    Entry& entry = *next;
    if (entry.ask_at > now) {
      timers_.wake(entry.timer, entry.ask_at);
      continue;
    }
    if (entry.ask_at == 0) continue;
    if (entry.known && !entry.used) {
      entry.ask_at = 0;
      continue;
    }
    if (entry.unanswered == kPatientQuestions) entry.known = false;
    const Question question{entry.address, entry.known ? &entry.mac : nullptr, entry.unanswered > kPatientQuestions};
    // A peer that is not there yet is asked for ever, once a second, while somebody sends to it.
    const bool goes_on = entry.known || entry.used || entry.unanswered < kPatientQuestions;
    const Nanos pause = entry.known ? kPatientPause : std::min(kLongestPause, kFirstPause << entry.unanswered);
    entry.ask_at = 0;
    if (goes_on) schedule(entry, now + pause);
    entry.unanswered = std::min(entry.unanswered + 1, 10U);
    if (!entry.known) entry.used = false;
    return question;
  }
  return std::nullopt;
}

}  // namespace fairlead::soft
