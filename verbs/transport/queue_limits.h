// The sizes that every queue pair of one device has: the configuration, cut to what the device can do.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string_view>

#include "fairlead/config.h"
#include "fairlead/status.h"
#include "verbs/discovery/gid_choice.h"

namespace fairlead::verbs {

/// Buffers (and send slots) for credit messages, beside those for messages. See verbs/transport/credits.h.
inline constexpr std::uint32_t kControlDepth = 8;

struct QueueLimits {
  std::uint32_t send_depth = 0;     // requests accepted per path, and work requests on the send queue
  std::uint32_t receive_depth = 0;  // message buffers
  std::uint32_t message_bytes = 0;  // of one buffer, header included
  std::uint32_t max_segments = 1;   // of one work request
  std::uint64_t max_wr_bytes = 0;   // of one work request (max_msg_sz)
  bool one_sided = true;

  [[nodiscard]] std::uint32_t send_slots() const noexcept { return send_depth + kControlDepth; }
  [[nodiscard]] std::uint32_t receive_slots() const noexcept { return receive_depth + kControlDepth; }
  /// How many work requests may pass before one is signalled: often enough that the queue never fills unseen.
  [[nodiscard]] std::uint32_t signal_every() const noexcept {
    return send_depth < 4 ? 1 : (send_depth / 4 < 32 ? send_depth / 4 : 32);
  }
};

/// Depths are cut to the device's limits (and that is logged); what cannot be cut is an error: kInvalidArgument (a bad
/// setting, with its legal range), kUnavailable (a device too small for any path).
Result<QueueLimits> queue_limits_for(std::string_view device, const VerbsConfig& config, const ibv_device_attr& attr,
                                     const PortFacts& port);

}  // namespace fairlead::verbs
