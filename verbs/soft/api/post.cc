// Posting work: a work request is copied into its queue, then the doorbell rings.
#include <algorithm>
#include <cerrno>
#include <mutex>

#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/qp/send_builder.h"

namespace fairlead::soft::api {
namespace {

void describe(SendBuilder& builder, SendWqe& wqe, const ibv_send_wr& wr, ibv_qp_type type) noexcept {
  switch (wr.opcode) {
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      wqe.remote_address = wr.wr.atomic.remote_addr;
      wqe.rkey = wr.wr.atomic.rkey;
      wqe.compare_add = wr.wr.atomic.compare_add;
      wqe.swap = wr.wr.atomic.swap;
      break;
    case IBV_WR_LOCAL_INV:
    case IBV_WR_SEND_WITH_INV:
      wqe.invalidate = wr.invalidate_rkey;
      break;
    case IBV_WR_BIND_MW:
      wqe.bind(wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
      break;
    default:
      wqe.immediate = wr.imm_data;
      if (type == IBV_QPT_UD) {
        builder.set_datagram(wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
      } else {
        wqe.remote_address = wr.wr.rdma.remote_addr;
        wqe.rkey = wr.wr.rdma.rkey;
      }
  }
}

void build(SendBuilder& builder, const ibv_send_wr& wr, ibv_qp_type type) noexcept {
  if (builder.add_plain(wr)) return;
  const bool inlined = (wr.send_flags & IBV_SEND_INLINE) != 0;
  SendWqe* wqe = builder.begin(wr.wr_id, wr.opcode, wr.send_flags);
  if (wqe == nullptr) return;
  describe(builder, *wqe, wr, type);
  if (wr.opcode == IBV_WR_LOCAL_INV || wr.opcode == IBV_WR_BIND_MW) return;
  if (wr.num_sge < 0) return builder.fail(EINVAL);
  const std::span list{wr.sg_list, static_cast<std::size_t>(wr.num_sge)};
  if (inlined) {
    builder.set_inline_segments(list);
  } else {
    builder.set_segments(list);
  }
}

int post_receives(WorkQueue<RecvWqe>& queue, bool legal, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const std::lock_guard lock(queue.mutex);
  int error = 0;
  std::uint32_t tail = queue.poster_tail();
  for (; wr != nullptr; wr = wr->next) {
    if (!legal || wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > queue.max_segments()) {
      error = EINVAL;
    } else if (queue.full(tail)) {
      error = ENOMEM;
    }
    if (error != 0) break;
    RecvWqe& wqe = queue.at(tail);
    wqe = {wr->wr_id, 0, static_cast<std::uint32_t>(wr->num_sge)};
    for (int i = 0; i < wr->num_sge; ++i) wqe.length += wr->sg_list[i].length;
    std::copy_n(wr->sg_list, wqe.segments, queue.segments(tail).data());
    ++tail;
  }
  queue.publish(tail);
  if (error != 0) *bad = wr;
  return error;
}

}  // namespace

int post_send(ibv_qp* base, ibv_send_wr* wr, ibv_send_wr** bad) {
  Qp& qp = impl(base);
  SendBuilder builder(qp);
  {
    const std::lock_guard lock(qp.sq.mutex);
    builder.start();
    for (; wr != nullptr; wr = wr->next) {
      build(builder, *wr, qp.type());
      if (builder.finish() != 0) break;
    }
    builder.publish();
  }
  if (builder.error() != 0) *bad = wr;
  qp.domain.ring(qp);
  return builder.error();
}

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  Qp& qp = impl(base);
  const bool legal = qp.current_state() != IBV_QPS_RESET && qp.srq == nullptr;
  const int error = post_receives(qp.rq, legal, wr, bad);
  // Pairs with Qp::flush.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (qp.current_state() == IBV_QPS_ERR) qp.domain.ring(qp);
  return error;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post_receives(impl(srq).queue, true, wr, bad);
}

}  // namespace fairlead::soft::api
