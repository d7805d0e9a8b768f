// The extended polling interface of a completion queue: ibv_start_poll to ibv_end_poll and the readers between.
//
// Source: man ibv_create_cq_ex.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace fairlead::soft {

/// What of a completion can be read (ibv_create_cq_wc_flags).
inline constexpr std::uint64_t kSupportedWcFlags =
    IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID |
    IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// Fills in the functions; those of what was not asked for stay null.
void set_poll_ops(ibv_cq_ex& cq, std::uint64_t wc_flags) noexcept;

}  // namespace fairlead::soft
