// The extended posting interface of a queue pair: ibv_wr_start, ibv_wr_send and their like, ibv_wr_complete.
//
// Between start and complete or abort the caller holds the send queue, so other posters wait.
// Source: man ibv_wr_post.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "verbs/soft/queues/profile.h"

namespace fairlead::soft {

/// The operations (ibv_qp_create_send_ops_flags) that a queue pair of this type can be asked for.
[[nodiscard]] std::uint64_t supported_send_ops(ibv_qp_type type, Profile profile) noexcept;

/// Fills in the functions, whichever operations were asked for: those that are illegal fail at ibv_wr_complete.
void set_send_ops(ibv_qp_ex& qp) noexcept;

/// Whether set_send_ops was called.
[[nodiscard]] inline bool has_send_ops(const ibv_qp_ex& qp) noexcept { return qp.wr_start != nullptr; }

}  // namespace fairlead::soft
