// Any bytes as a control connection: split into frames, and regions in them decoded, or refused with a reason.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "datapath/region/region_codec.h"
#include "datapath/session/control_channel.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::datapath;
  FrameReader reader;
  const std::size_t cut = size == 0 ? 0 : data[0] % size;  // in two reads, as a socket may give them
  control::Frame frame;
  for (const auto& [begin, end] : {std::pair(std::size_t{0}, cut), std::pair(cut, size)}) {
    reader.append(reinterpret_cast<const char*>(data) + begin, end - begin);
    while (true) {
      const fairlead::Result<bool> next = reader.next(frame);
      if (!next) {
        if (next.error().message().empty()) std::abort();
        return 0;
      }
      if (!*next) break;
      const auto* regions = std::get_if<control::Regions>(&frame);
      if (regions == nullptr) continue;
      for (const control::Region& region : regions->regions) {
        const auto decoded = decode_region(region, 1);
        if (decoded != nullptr && decoded->tensor && !decoded->tensor->check(decoded->size).ok()) std::abort();
      }
    }
  }
  return 0;
}
