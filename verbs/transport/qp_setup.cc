#include "verbs/transport/qp_setup.h"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace fairlead::verbs {
namespace {

constexpr std::uint32_t kLeastInlineWish = 64;

ibv_mtu mtu_enum(std::uint32_t bytes) noexcept {
  return static_cast<ibv_mtu>(std::countr_zero(bytes) - std::countr_zero(256U) + IBV_MTU_256);
}

// " (why)", if the device says more than an errno.
std::string refusal(const VerbsApi& api) {
  const std::string why = api.take_refusal != nullptr ? api.take_refusal() : std::string();
  return why.empty() ? why : fmt::format(" ({})", why);
}

int modify(const VerbsApi& api, ibv_qp* qp, ibv_qp_attr& attr, int mask) {
  static_cast<void>(refusal(api));  // of an earlier call
  return api.modify_qp(qp, &attr, mask);
}

Status failed(const VerbsApi& api, std::string_view device, const ibv_qp* qp, std::string_view step, int error) {
  const int number = error > 0 ? error : errno;
  return {Code::kUnavailable, fmt::format("{}: queue pair {:#x} cannot go to {}: {}{}", device, qp->qp_num, step,
                                          std::strerror(number), refusal(api))};
}

}  // namespace

Result<CreatedQp> create_rc_qp(const VerbsApi& api, ibv_pd* pd, ibv_cq* cq, std::string_view device,
                               const QueueLimits& limits, std::uint32_t& inline_wish) {
  CreatedQp created;
  for (std::uint32_t wish = inline_wish;; wish = wish > kLeastInlineWish ? wish / 2 : 0) {
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = cq;
    attr.recv_cq = cq;
    attr.cap.max_send_wr = limits.send_slots();
    attr.cap.max_recv_wr = limits.receive_slots();
    attr.cap.max_send_sge = limits.max_segments;
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = wish;
    ibv_qp* qp = api.create_qp(pd, &attr);
    if (qp != nullptr) {
      created.qp = QueuePair(api, qp);
      inline_wish = wish;
    }
    if (qp != nullptr || wish == 0) break;
  }
  if (!created.qp) {
    return Status(
        Code::kResourceExhausted,
        fmt::format("{}: cannot create a queue pair with {} sends, {} receives and {} segments: {}; lower "
                    "send_depth or receive_depth",
                    device, limits.send_slots(), limits.receive_slots(), limits.max_segments, std::strerror(errno)));
  }
  ibv_qp_attr state{};
  ibv_qp_init_attr granted{};
  if (api.query_qp(created.qp.get(), &state, IBV_QP_CAP, &granted) == 0) {
    created.max_inline = granted.cap.max_inline_data;
  }
  return created;
}

Status move_to_init(const VerbsApi& api, ibv_qp* qp, std::string_view device, const VerbsConfig& config,
                    bool one_sided) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = 0;
  attr.port_num = static_cast<std::uint8_t>(config.port);
  attr.qp_access_flags = one_sided ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE : 0;
  const int error = modify(api, qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error == 0 ? Status() : failed(api, device, qp, "INIT", error);
}

Status move_to_rts(const VerbsApi& api, ibv_qp* qp, std::string_view device, const VerbsConfig& config,
                   const Connect& connect) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu_enum(connect.mtu);
  attr.dest_qp_num = connect.theirs.qpn;
  attr.rq_psn = connect.theirs.psn;
  attr.max_dest_rd_atomic = connect.ours.max_dest_rd_atomic;
  attr.min_rnr_timer = config.min_rnr_timer;
  attr.ah_attr.is_global = 1;  // RoCE v2 always has a global route: the IP header
  attr.ah_attr.port_num = static_cast<std::uint8_t>(config.port);
  attr.ah_attr.grh.dgid = gid_of(connect.theirs.gid);
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(connect.gid_index);
  attr.ah_attr.grh.hop_limit = config.hop_limit;
  attr.ah_attr.grh.traffic_class = config.traffic_class;
  attr.ah_attr.sl = connect.priority ? 1 : 0;
  int error = modify(api, qp, attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return failed(api, device, qp, "RTR", error);

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = connect.ours.psn;
  attr.timeout = config.ack_timeout;
  attr.retry_cnt = config.retry_count;
  attr.rnr_retry = config.rnr_retry;
  attr.max_rd_atomic = read_depth(connect.ours, connect.theirs);
  error = modify(
      api, qp, attr,
      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? Status() : failed(api, device, qp, "RTS", error);
}

bool move_to_error(const VerbsApi& api, ibv_qp* qp) noexcept {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  return api.modify_qp(qp, &attr, IBV_QP_STATE) == 0;
}

std::uint8_t read_depth(const PathDescription& ours, const PathDescription& theirs) noexcept {
  return std::min(ours.max_rd_atomic, theirs.max_dest_rd_atomic);
}

}  // namespace fairlead::verbs
