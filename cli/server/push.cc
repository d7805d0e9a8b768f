#include "cli/server/push.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/crc.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kCheckPiece = std::size_t{16} << 20;  // bytes of a checksum between looks at the stop

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

void Push::check(std::size_t index, const std::stop_token& stop) {
  const std::optional<std::uint32_t> announced = model->entries[index].crc;
  if (!arrived[index]) {
    wrong[index] = "its notification did not come";
  } else if (announced && wrong[index].empty() && crc_of(index, stop) != announced) {
    wrong[index] = "its bytes do not have the CRC-32 that was announced";
  } else if (announced && wrong[index].empty() && !crc_on_arrival.empty() && crc_on_arrival[index] != announced) {
    wrong[index] = "its notification came before its bytes: they had another CRC-32 then";
  }
}

}  // namespace fairlead::cli
