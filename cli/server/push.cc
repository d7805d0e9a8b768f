#include "cli/server/push.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/crc.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kCheckPiece = std::size_t{4} << 20;  // bytes of a checksum between looks at the stop

constexpr std::size_t kPopulatePiece = std::size_t{64} << 20;

constexpr std::uint64_t kMostLooks = 65'536;  // at words of a model's memory

/// While a peer writes it: that race is what is looked for.
__attribute__((no_sanitize("thread"))) std::uint64_t look_at(const std::byte* word) noexcept {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(word), __ATOMIC_RELAXED);
}

}  // namespace

bool Push::moves() {
  constexpr std::uint64_t kWord = sizeof(std::uint64_t);
  const std::uint64_t apart = (model->size / kMostLooks / kWord + 1) * kWord;
  seen.resize(model->size / apart + 1);
  bool moved = false;
  for (std::size_t i = 0; i < arrived.size(); ++i) {
    if (arrived[i]) continue;
    const std::uint64_t begin = model->offsets[i], end = begin + model->entries[i].tensor.bytes;
    for (std::uint64_t at = (begin + apart - 1) / apart * apart; at + kWord <= end; at += apart) {
      const std::uint64_t now = look_at(model->memory.data() + at);
      moved = std::exchange(seen[at / apart], now) != now || moved;
    }
  }
  return moved;
}

void Push::populate(Populate by, const std::stop_token& stop) {
  const std::span<std::byte> all = model->arena.bytes();
  while (model->populated < all.size()) {
    const std::size_t piece = std::min(all.size() - model->populated, kPopulatePiece);
    by(all.subspan(model->populated, piece), stop);
    if (stop.stop_requested()) return;
    model->populated += piece;
  }
}

std::uint32_t Push::crc_of(std::size_t index, const std::stop_token& stop) const {
  std::uint32_t crc = 0;
  const Memory tensor = model->tensor(index);
  for (std::span<std::byte> left = tensor.bytes(); !left.empty() && !stop.stop_requested();) {
    const std::size_t piece = std::min(left.size(), kCheckPiece);
    crc = crc32(left.first(piece), crc);
    left = left.subspan(piece);
  }
  return crc;
}

void Push::arrive(std::size_t index) {
  {
    const std::scoped_lock lock(arrivals_mutex);
    arrivals.push_back(index);
  }
  arrivals_changed.notify_one();
}

// Its notification is delivered once and its data was placed before it, so nothing that the client may still do needs
// that access: a path that dies now is replaced by one that does not repeat it.
void Push::sum_arrivals(const std::stop_token& stop) {
  sums_arrivals.store(true, std::memory_order_release);
  while (!stop.stop_requested()) {
    std::vector<std::size_t> some;
    {
      std::unique_lock lock(arrivals_mutex);
      if (!arrivals_changed.wait(lock, stop, [this] { return !arrivals.empty(); })) return;
      some.swap(arrivals);
    }
    for (const std::size_t index : some) {
      if (stop.stop_requested()) return;
      names.withdraw(index);
      const std::uint32_t sum = crc_of(index, stop);
      if (!stop.stop_requested()) sums[index] = sum;
    }
  }
}

void Push::check(std::size_t index, const std::stop_token& stop) {
  const std::optional<std::uint32_t> announced = model->entries[index].crc;
  if (!arrived[index]) {
    wrong[index] = "its notification did not come";
  } else if (announced && wrong[index].empty() && (sums[index] ? *sums[index] : crc_of(index, stop)) != announced) {
    wrong[index] = "its bytes do not have the CRC-32 that was announced";
  } else if (announced && wrong[index].empty() && !crc_on_arrival.empty() && crc_on_arrival[index] != announced) {
    wrong[index] = "its notification came before its bytes: they had another CRC-32 then";
  }
}

}  // namespace fairlead::cli
