// Posting work: a work request is copied into its queue, then the doorbell rings.
#include <algorithm>
#include <cerrno>

#include "verbs/soft/api.h"
#include "verbs/soft/objects.h"

namespace fairlead::soft::api {
namespace {

// Copies one work request into the slot `index`; 0 or an errno.
int fill(Qp& qp, std::uint32_t index, const ibv_send_wr& wr) noexcept {
  switch (wr.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      break;
    default:
      return EINVAL;
  }
  if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > qp.sq.max_segments()) return EINVAL;
  SendWqe& wqe = qp.sq.at(index);
  wqe = {};
  wqe.id = wr.wr_id;
  wqe.opcode = wr.opcode;
  wqe.signaled = qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  wqe.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  wqe.fence = (wr.send_flags & IBV_SEND_FENCE) != 0;
  wqe.inlined = (wr.send_flags & IBV_SEND_INLINE) != 0;
  wqe.immediate = wr.imm_data;
  wqe.remote_address = wr.wr.rdma.remote_addr;
  wqe.rkey = wr.wr.rdma.rkey;
  wqe.segments = static_cast<std::uint32_t>(wr.num_sge);
  std::uint64_t length = 0;
  for (int i = 0; i < wr.num_sge; ++i) length += wr.sg_list[i].length;
  if (length > kMaxMessage) return EINVAL;
  wqe.length = static_cast<std::uint32_t>(length);
  if (!wqe.inlined) {
    std::copy_n(wr.sg_list, wqe.segments, qp.sq.segments(index).data());
    return 0;
  }
  if (wqe.is_read() || length > qp.sq.max_inline()) return EINVAL;
  std::byte* to = qp.sq.inline_bytes(index);
  for (int i = 0; i < wr.num_sge; ++i) {
    // verbs hands addresses as numbers.
    const auto* from = reinterpret_cast<const std::byte*>(wr.sg_list[i].addr);  // NOLINT(performance-no-int-to-ptr)
    to = std::copy_n(from, wr.sg_list[i].length, to);
  }
  return 0;
}

}  // namespace

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  Qp& qp = impl(base);
  int error = 0;
  {
    const std::lock_guard lock(qp.sq.mutex);
    const ibv_qp_state state = qp.current_state();
    std::uint32_t tail = qp.sq.poster_tail();
    for (; wr != nullptr; wr = wr->next) {
      if (state != IBV_QPS_RTS && state != IBV_QPS_ERR) {
        error = EINVAL;
      } else {
        error = qp.sq.full(tail) ? ENOMEM : fill(qp, tail, *wr);
      }
      if (error != 0) break;
      ++tail;
    }
    qp.sq.publish(tail);
  }
  if (error != 0) *bad = wr;
  qp.domain.ring(qp);
  return error;
}

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Qp& qp = impl(base);
  int error = 0;
  {
    const std::lock_guard lock(qp.rq.mutex);
    std::uint32_t tail = qp.rq.poster_tail();
    for (; wr != nullptr; wr = wr->next) {
      if (qp.current_state() == IBV_QPS_RESET || wr->num_sge < 0 ||
          static_cast<std::uint32_t>(wr->num_sge) > qp.rq.max_segments()) {
        error = EINVAL;
      } else if (qp.rq.full(tail)) {
        error = ENOMEM;
      }
      if (error != 0) break;
      RecvWqe& wqe = qp.rq.at(tail);
      wqe = {wr->wr_id, 0, static_cast<std::uint32_t>(wr->num_sge)};
      for (int i = 0; i < wr->num_sge; ++i) wqe.length += wr->sg_list[i].length;
      std::copy_n(wr->sg_list, wqe.segments, qp.rq.segments(tail).data());
      ++tail;
    }
    qp.rq.publish(tail);
  }
  if (error != 0) *bad = wr;
  // Pairs with Qp::flush.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (qp.current_state() == IBV_QPS_ERR) qp.domain.ring(qp);
  return error;
}

}  // namespace fairlead::soft::api
