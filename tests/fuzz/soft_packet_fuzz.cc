// softroce's packet parser and ICRC arithmetic on any bytes.
#include <cstdlib>

#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/packet.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::soft;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  Packet packet;
  if (parse(bytes, packet) != ParseError::kNone) return 0;
  // What was parsed lies within the bytes, and encodes back to them.
  const auto* end = packet.payload.data() + packet.payload.size() + packet.bth.pad + kIcrcBytes;
  if (end != bytes.data() + size) std::abort();
  std::byte header[Bth::kBytes];
  packet.bth.encode(header);
  for (const std::size_t i : {0UL, 1UL, 2UL, 3UL, 5UL, 6UL, 7UL, 9UL, 10UL, 11UL}) {
    if (header[i] != bytes[i]) std::abort();
  }
  const UdpFrame frame{Gid::from_ipv4(1), Gid::from_ipv4(2), 3, 4, 5, size};
  const std::uint32_t computed = icrc(frame, bytes.first(size - kIcrcBytes));
  (void)explain_by_ipv4_id(computed ^ load_icrc(bytes.data() + size - kIcrcBytes), size);
  return 0;
}
