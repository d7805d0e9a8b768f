// Any bytes a peer may send as its path description: parsed to a value that serializes to the same bytes, or refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "verbs/transport/message_header.h"
#include "verbs/transport/path_description.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto parsed = fairlead::verbs::parse_path_description(bytes);
  if (parsed && fairlead::verbs::serialize(*parsed) != bytes) std::abort();
  if (!parsed && parsed.error().message().empty()) std::abort();

  const auto header = fairlead::verbs::read_header(std::as_bytes(std::span(data, size)));
  if (header) {
    std::byte again[fairlead::verbs::kMessageHeaderBytes];
    fairlead::verbs::write_header(again, *header);
    for (std::size_t i = 0; i < sizeof again; ++i) {
      if (again[i] != static_cast<std::byte>(data[i])) std::abort();
    }
  }
  return 0;
}
