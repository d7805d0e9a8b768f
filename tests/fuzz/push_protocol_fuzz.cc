// Any bytes as a message of the push protocol: what is accepted is written and read again to the same bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "cli/models/push_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = fairlead::cli::decode({reinterpret_cast<const std::byte*>(data), size});
  if (!message) {
    if (message.error().message().empty()) std::abort();
    return 0;
  }
  const auto bytes = fairlead::cli::encode(*message);
  const auto again = fairlead::cli::decode(bytes);
  // Escapes make a message longer; only then may the second reading refuse it.
  if (!again) return bytes.size() > fairlead::cli::kMaxPushMessage ? 0 : (std::abort(), 0);
  if (fairlead::cli::encode(*again) != bytes) std::abort();
  return 0;
}
