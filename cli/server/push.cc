#include "cli/server/push.h"

#include <algorithm>
#include <span>

#include "base/crc.h"

namespace fairlead::cli {
namespace {

constexpr std::size_t kCheckPiece = std::size_t{16} << 20;  // bytes of a checksum between looks at the stop

}  // namespace

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
