// Making an RC queue pair and moving it through its states (IBTA 10.3.1, ibv_modify_qp(3)).
#pragma once

#include <cstdint>
#include <string_view>

#include "fairlead/config.h"
#include "fairlead/status.h"
#include "verbs/provider/objects.h"
#include "verbs/transport/path_description.h"
#include "verbs/transport/queue_limits.h"

namespace fairlead::verbs {

struct CreatedQp {
  QueuePair qp;
  std::uint32_t max_inline = 0;  // bytes that the device takes inline; 0: none
};

/// Inline data to ask for: enough for an 8-byte write and a small message; more would make every send slot larger.
inline constexpr std::uint32_t kInlineWish = 256;

/// An RC queue pair whose send and receive completions go to `cq`. No attribute of a device tells how much it takes
/// inline, so `inline_wish` is asked for, then less; what was accepted stands there for the next time.
/// Errors: kResourceExhausted.
Result<CreatedQp> create_rc_qp(const VerbsApi& api, ibv_pd* pd, ibv_cq* cq, std::string_view device,
                               const QueueLimits& limits, std::uint32_t& inline_wish);

/// RESET to INIT: receives may be posted.
Status move_to_init(const VerbsApi& api, ibv_qp* qp, std::string_view device, const VerbsConfig& config,
                    bool one_sided);

/// INIT to RTR to RTS. `mtu` in bytes, what both ends have.
struct Connect {
  const PathDescription& ours;
  const PathDescription& theirs;
  int gid_index = 0;
  std::uint32_t mtu = 0;
  bool priority = false;
};
Status move_to_rts(const VerbsApi& api, ibv_qp* qp, std::string_view device, const VerbsConfig& config,
                   const Connect& connect);

/// Any state to ERR: nothing more is sent or placed, everything posted is flushed. False: the device refused.
[[nodiscard]] bool move_to_error(const VerbsApi& api, ibv_qp* qp) noexcept;

/// READs that may be outstanding from `ours` to `theirs`.
[[nodiscard]] std::uint8_t read_depth(const PathDescription& ours, const PathDescription& theirs) noexcept;

}  // namespace fairlead::verbs
