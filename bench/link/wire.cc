#include "bench/link/wire.h"

#include <algorithm>
#include <cstring>

namespace fairlead::bench {

Wire::Wire(const WireOptions& options) : options_(options), random_(options.seed) {}

// Not std::bernoulli_distribution, of which each C++ library has its own.
bool Wire::chance(double of) { return static_cast<double>(random_() >> 11) * 0x1p-53 < of; }

bool Wire::later(const Held& a, const Held& b) noexcept {
  return a.leaves != b.leaves ? a.leaves > b.leaves : a.number > b.number;
}

void Wire::count_leaving(std::uint64_t number) {
  ++counts_.left;
  counts_.overtaken += number < last_left_;
  last_left_ = std::max(last_left_, number);
}

bool Wire::offer(Time now, std::span<const std::byte> frame, std::uint64_t line_bytes) {
  const std::uint64_t number = ++counts_.offered;
  counts_.offered_bytes += line_bytes;
  // Both are drawn for each frame, whatever becomes of it, so that the fate of one does not depend on another's.
  const bool lost = chance(options_.loss), held_back = chance(options_.reorder);

  Time leaves = now;
  if (options_.rate != 0) {
    const double rate = static_cast<double>(options_.rate);
    const Time busy = std::max(line_free_ - now, Time{0});
    const double waiting = static_cast<double>(busy.count()) * rate / 8e9;
    if (waiting + static_cast<double>(line_bytes) > static_cast<double>(options_.queue_bytes)) {
      ++counts_.queue_full;
      return false;
    }
    line_free_ = now + busy + Time(static_cast<Time::rep>(static_cast<double>(line_bytes) * 8e9 / rate));
    leaves = line_free_;
  }
  if (lost) {
    ++counts_.lost;
    return false;
  }
  leaves += options_.delay;
  if (held_back) {
    ++counts_.held_back;
    leaves += options_.reorder_by;
  }
  if (leaves <= now && (held_.empty() || held_.front().leaves > now)) {
    count_leaving(number);
    return true;
  }
  if (held_bytes_ + frame.size() > options_.held_bytes) {
    ++counts_.no_room;
    return false;
  }
  Held held{leaves, number, std::make_unique_for_overwrite<std::byte[]>(frame.size()), frame.size()};
  std::memcpy(held.bytes.get(), frame.data(), frame.size());
  held_bytes_ += frame.size();
  held_.push_back(std::move(held));
  std::push_heap(held_.begin(), held_.end(), later);
  return false;
}

std::optional<std::span<const std::byte>> Wire::take(Time now) {
  if (held_.empty() || held_.front().leaves > now) return std::nullopt;
  std::pop_heap(held_.begin(), held_.end(), later);
  Held held = std::move(held_.back());
  held_.pop_back();
  held_bytes_ -= held.size;
  count_leaving(held.number);
  taken_ = std::move(held.bytes);
  return std::span<const std::byte>(taken_.get(), held.size);
}

std::optional<Wire::Time> Wire::next() const {
  if (held_.empty()) return std::nullopt;
  return held_.front().leaves;
}

}  // namespace fairlead::bench
