#include "verbs/soft/qp/qp_ex.h"

#include <cerrno>

#include "verbs/soft/qp/qp_context.h"

namespace fairlead::soft {
namespace {

SendWqe* begin(ibv_qp_ex* qp, ibv_wr_opcode opcode) noexcept {
  return impl(qp).builder.begin(qp->wr_id, opcode, qp->wr_flags & ~unsigned{IBV_SEND_INLINE});
}

SendWqe* begin_remote(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address) noexcept {
  SendWqe* wqe = begin(qp, opcode);
  if (wqe == nullptr) return nullptr;
  wqe->rkey = rkey;
  wqe->remote_address = address;
  return wqe;
}

void wr_start(ibv_qp_ex* qp) {
  impl(qp).sq.mutex.lock();
  impl(qp).builder.start();
}

int wr_complete(ibv_qp_ex* base) {
  Qp& qp = impl(base);
  const int error = qp.builder.finish();
  if (error == 0) qp.builder.publish();  // all or nothing, unlike ibv_post_send
  qp.sq.mutex.unlock();
  if (error == 0) qp.domain.ring(qp);
  return error;
}

void wr_abort(ibv_qp_ex* qp) { impl(qp).sq.mutex.unlock(); }

void wr_send(ibv_qp_ex* qp) { begin(qp, IBV_WR_SEND); }

void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) {
  if (SendWqe* wqe = begin(qp, IBV_WR_SEND_WITH_IMM); wqe != nullptr) wqe->immediate = immediate;
}

void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  if (SendWqe* wqe = begin(qp, IBV_WR_SEND_WITH_INV); wqe != nullptr) wqe->invalidate = rkey;
}

void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(qp, IBV_WR_RDMA_WRITE, rkey, address);
}

void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
  SendWqe* wqe = begin_remote(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address);
  if (wqe != nullptr) wqe->immediate = immediate;
}

void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
  begin_remote(qp, IBV_WR_RDMA_READ, rkey, address);
}

void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                       std::uint64_t swap) {
  SendWqe* wqe = begin_remote(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
  if (wqe == nullptr) return;
  wqe->compare_add = compare;
  wqe->swap = swap;
}

void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
  SendWqe* wqe = begin_remote(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address);
  if (wqe != nullptr) wqe->compare_add = add;
}

void wr_atomic_write(ibv_qp_ex* qp, std::uint32_t, std::uint64_t, const void*) { impl(qp).builder.fail(EOPNOTSUPP); }

void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  if (SendWqe* wqe = begin(qp, IBV_WR_BIND_MW); wqe != nullptr) wqe->bind(window, rkey, *info);
}

void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  if (SendWqe* wqe = begin(qp, IBV_WR_LOCAL_INV); wqe != nullptr) wqe->invalidate = rkey;
}

void wr_send_tso(ibv_qp_ex* qp, void*, std::uint16_t, std::uint16_t) { impl(qp).builder.fail(EOPNOTSUPP); }

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) {
  impl(qp).builder.set_datagram(ah, remote_qpn, remote_qkey);
}

void wr_set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t) { impl(qp).builder.fail(EOPNOTSUPP); }

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* list) {
  impl(qp).builder.set_segments({list, count});
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge segment{address, length, lkey};
  wr_set_sge_list(qp, 1, &segment);
}

void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* list) {
  impl(qp).builder.set_inline({list, count});
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
  const ibv_data_buf buffer{address, length};
  wr_set_inline_data_list(qp, 1, &buffer);
}

}  // namespace

std::uint64_t supported_send_ops(ibv_qp_type type, Profile profile) noexcept {
  if (profile != Profile::kFull) return 0;
  constexpr std::uint64_t kDatagram = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t kUnreliable = kDatagram | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                        IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
  constexpr std::uint64_t kReliable = kUnreliable | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                      IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;
  switch (type) {
    case IBV_QPT_RC:
      return kReliable;
    case IBV_QPT_UC:
      return kUnreliable;
    case IBV_QPT_UD:
      return kDatagram;
    default:
      return 0;
  }
}

void set_send_ops(ibv_qp_ex& qp) noexcept {
  qp.wr_start = &wr_start;
  qp.wr_complete = &wr_complete;
  qp.wr_abort = &wr_abort;
  qp.wr_send = &wr_send;
  qp.wr_send_imm = &wr_send_imm;
  qp.wr_send_inv = &wr_send_inv;
  qp.wr_send_tso = &wr_send_tso;
  qp.wr_rdma_write = &wr_rdma_write;
  qp.wr_rdma_write_imm = &wr_rdma_write_imm;
  qp.wr_rdma_read = &wr_rdma_read;
  qp.wr_atomic_cmp_swp = &wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = &wr_atomic_fetch_add;
  qp.wr_atomic_write = &wr_atomic_write;
  qp.wr_bind_mw = &wr_bind_mw;
  qp.wr_local_inv = &wr_local_inv;
  qp.wr_set_ud_addr = &wr_set_ud_addr;
  qp.wr_set_xrc_srqn = &wr_set_xrc_srqn;
  qp.wr_set_sge = &wr_set_sge;
  qp.wr_set_sge_list = &wr_set_sge_list;
  qp.wr_set_inline_data = &wr_set_inline_data;
  qp.wr_set_inline_data_list = &wr_set_inline_data_list;
}

}  // namespace fairlead::soft
