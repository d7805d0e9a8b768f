#include "base/crc.h"

#include <isa-l/crc.h>

namespace fairlead {

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  // ISA-L inverts the value before and after, so that it chains as zlib's does.
  return crc32_gzip_refl(before, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace fairlead
