// Any bytes as a message over a path: what decodes encodes to the same header.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "datapath/protocol/path_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::datapath;
  const auto message = decode({reinterpret_cast<const std::byte*>(data), size});
  if (!message) return 0;
  PathHeader header;
  encode(*message, header);
  if (std::memcmp(header, data, kPathHeaderBytes) != 0) std::abort();
  if (message->data.size() != size - kPathHeaderBytes) std::abort();
  return 0;
}
