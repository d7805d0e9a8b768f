// What a stranger or a peer's control connection can say before a path exists: greetings and path descriptions.
#include <cstdint>

#include "tcp_fallback/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::tcp_fallback;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  if (size >= kGreetingBytes) {
    Greeting greeting;
    const auto reason = decode(std::span<const std::byte, kGreetingBytes>(bytes, kGreetingBytes), greeting);
    if (reason.empty() && (greeting.depth == 0 || greeting.depth > kMaxDepth)) __builtin_trap();
  }
  const auto description = decode_description({reinterpret_cast<const char*>(data), size});
  if (description && description->port == 0) __builtin_trap();
  return 0;
}
