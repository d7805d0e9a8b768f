#include "verbs/soft/wire/ethernet.h"

#include <fmt/format.h>

#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft {

std::string to_string(const Mac& mac) { return fmt::format("{:02x}", fmt::join(mac.bytes, ":")); }

void EthernetHeader::encode(std::byte* to) const noexcept {
  std::memcpy(to, destination.bytes.data(), Mac::kBytes);
  std::memcpy(to + Mac::kBytes, source.bytes.data(), Mac::kBytes);
  store16(to + 2 * Mac::kBytes, static_cast<std::uint16_t>(type));
}

EthernetHeader EthernetHeader::decode(const std::byte* from) noexcept {
  EthernetHeader header;
  std::memcpy(header.destination.bytes.data(), from, Mac::kBytes);
  std::memcpy(header.source.bytes.data(), from + Mac::kBytes, Mac::kBytes);
  header.type = static_cast<EtherType>(load16(from + 2 * Mac::kBytes));
  return header;
}

}  // namespace fairlead::soft
