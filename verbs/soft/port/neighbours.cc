#include "verbs/soft/port/neighbours.h"

#include <algorithm>

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
  if (next_due_ == 0 || at < next_due_) next_due_ = at;
}

int Neighbours::find_or_add(const Gid& address, Nanos now) {
  const auto [found, added] = numbers_.try_emplace(address, static_cast<int>(entries_.size()));
  if (added) {
    entries_.push_back({.address = address, .mac = {}});
    schedule(entries_.back(), now);
  }
  return found->second;
}

int Neighbours::find_or_add(const Gid& address, const Mac& mac) {
  const auto [found, added] = numbers_.try_emplace(address, static_cast<int>(entries_.size()));
  if (added) entries_.push_back({.address = address, .mac = mac, .known = true, .fixed = true});
  return found->second;
}

const Mac* Neighbours::lookup(int number, Nanos now) noexcept {
  Entry& entry = entries_[static_cast<std::size_t>(number)];
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
  if (!address.is_null() && mac.is_station() && entries_.size() < kMostAskers && !numbers_.contains(address)) {
    numbers_.emplace(address, static_cast<int>(entries_.size()));
    entries_.push_back({.address = address, .mac = {}});
  }
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
  if (next_due_ == 0 || now < next_due_) return std::nullopt;
  next_due_ = 0;
  std::optional<Question> question;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (!question && entry.ask_at != 0 && entry.ask_at <= now) {
      if (entry.known && !entry.used) {
        entry.ask_at = 0;
        continue;
      }
      if (entry.unanswered == kPatientQuestions) entry.known = false;
      question = Question{static_cast<int>(i), entry.address, entry.known ? &entry.mac : nullptr,
                          entry.unanswered > kPatientQuestions};
      // A peer that is not there yet is asked for ever, once a second, while somebody sends to it.
      const bool goes_on = entry.known || entry.used || entry.unanswered < kPatientQuestions;
      const Nanos pause = entry.known ? kPatientPause : std::min(kLongestPause, kFirstPause << entry.unanswered);
      entry.ask_at = goes_on ? now + pause : 0;
      entry.unanswered = std::min(entry.unanswered + 1, 10U);
      if (!entry.known) entry.used = false;
    }
    if (entry.ask_at != 0) schedule(entry, entry.ask_at);
  }
  return question;
}

}  // namespace fairlead::soft
