#include "verbs/soft/queues/cq_ex.h"

#include <cerrno>

#include "verbs/soft/progress/context.h"
#include "verbs/soft/queues/cq.h"
#include "verbs/soft/queues/device_base.h"

namespace fairlead::soft {
namespace {

int start_poll(ibv_cq_ex* base, ibv_poll_cq_attr* attr) {
  if (attr->comp_mask != 0) return EINVAL;
  Cq& cq = impl(base);
  const int error = cq.begin();
  if (error != ENOENT) return error;
  cq.device().progress().poll();
  return cq.begin();
}

int next_poll(ibv_cq_ex* cq) { return impl(cq).next(); }
void end_poll(ibv_cq_ex* cq) { impl(cq).end(); }

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return impl(cq).shown().opcode; }
std::uint32_t read_vendor_err(ibv_cq_ex* cq) { return impl(cq).shown().vendor_err; }
std::uint32_t read_byte_len(ibv_cq_ex* cq) { return impl(cq).shown().byte_len; }
__be32 read_imm_data(ibv_cq_ex* cq) { return impl(cq).shown().imm_data; }
std::uint32_t read_qp_num(ibv_cq_ex* cq) { return impl(cq).shown().qp_num; }
std::uint32_t read_src_qp(ibv_cq_ex* cq) { return impl(cq).shown().src_qp; }
unsigned int read_wc_flags(ibv_cq_ex* cq) { return impl(cq).shown().wc_flags; }
std::uint32_t read_slid(ibv_cq_ex* cq) { return impl(cq).shown().slid; }
std::uint8_t read_sl(ibv_cq_ex* cq) { return impl(cq).shown().sl; }
std::uint8_t read_dlid_path_bits(ibv_cq_ex* cq) { return impl(cq).shown().dlid_path_bits; }
std::uint64_t read_timestamp(ibv_cq_ex* cq) { return impl(cq).shown_timestamp(); }
std::uint64_t read_wallclock(ibv_cq_ex* cq) { return impl(cq).shown_wallclock(); }

}  // namespace

void set_poll_ops(ibv_cq_ex& cq, std::uint64_t wc_flags) noexcept {
  cq.start_poll = &start_poll;
  cq.next_poll = &next_poll;
  cq.end_poll = &end_poll;
  cq.read_opcode = &read_opcode;
  cq.read_vendor_err = &read_vendor_err;
  cq.read_wc_flags = &read_wc_flags;
  const auto wanted = [wc_flags](std::uint64_t flag) { return (wc_flags & flag) != 0; };
  cq.read_imm_data = &read_imm_data;  // of an invalidated rkey too, which is read without a flag
  if (wanted(IBV_WC_EX_WITH_BYTE_LEN)) cq.read_byte_len = &read_byte_len;
  if (wanted(IBV_WC_EX_WITH_QP_NUM)) cq.read_qp_num = &read_qp_num;
  if (wanted(IBV_WC_EX_WITH_SRC_QP)) cq.read_src_qp = &read_src_qp;
  if (wanted(IBV_WC_EX_WITH_SLID)) cq.read_slid = &read_slid;
  if (wanted(IBV_WC_EX_WITH_SL)) cq.read_sl = &read_sl;
  if (wanted(IBV_WC_EX_WITH_DLID_PATH_BITS)) cq.read_dlid_path_bits = &read_dlid_path_bits;
  if (wanted(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) cq.read_completion_ts = &read_timestamp;
  if (wanted(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) cq.read_completion_wallclock_ns = &read_wallclock;
}

}  // namespace fairlead::soft
