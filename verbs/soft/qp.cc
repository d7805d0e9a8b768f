#include "verbs/soft/qp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "fairlead/log.h"
#include "verbs/soft/objects.h"

namespace fairlead::soft {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr std::uint8_t kEcnCapable = 2;  // ECT(0), RFC 3168

int refuse(const Qp& qp, int error, std::string_view why) {
  log(LogLevel::kError, fmt::format("softroce: ibv_modify_qp of qp {:#x}: {}", qp.number(), why));
  return error;
}

const char* name(ibv_qp_state state) noexcept {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state <= IBV_QPS_ERR ? kNames[state] : "an unknown state";
}

}  // namespace

Qp::Qp(Device& owner, Pd& protection, const ibv_qp_init_attr& init)
    : ibv_qp_ex{},
      device(owner),
      domain(owner.domain()),
      pd_ref(protection.root()),
      send_completions(impl(init.send_cq)),
      recv_completions(impl(init.recv_cq)),
      srq(init.srq != nullptr ? &impl(init.srq) : nullptr),
      signal_all(init.sq_sig_all != 0),
      sq(init.cap.max_send_wr, std::max(1U, init.cap.max_send_sge), init.cap.max_inline_data),
      rq(srq != nullptr ? 0 : init.cap.max_recv_wr, std::max(1U, init.cap.max_recv_sge), 0),
      owner_(protection) {
  qp_base.context = &owner.context;
  qp_base.qp_context = init.qp_context;
  qp_base.pd = &protection;
  qp_base.send_cq = init.send_cq;
  qp_base.recv_cq = init.recv_cq;
  qp_base.state = IBV_QPS_RESET;
  qp_base.qp_type = init.qp_type;
  ::pthread_mutex_init(&(qp_base.mutex), nullptr);
  ::pthread_cond_init(&(qp_base.cond), nullptr);
  qp_base.srq = init.srq;
  current.segments.resize(srq != nullptr ? srq->queue.max_segments() : rq.max_segments());
  if (srq != nullptr) ++srq->users;
  ++owner_.users;
  ++send_completions.users;
  ++recv_completions.users;
}

Qp::~Qp() {
  if (srq != nullptr) --srq->users;
  --recv_completions.users;
  --send_completions.users;
  --owner_.users;
  ::pthread_cond_destroy(&(qp_base.cond));
  ::pthread_mutex_destroy(&(qp_base.mutex));
}

// IBTA 10.3.1: which attributes each transition of an RC queue pair must bring.
int Qp::check_transition(const ibv_qp_attr& next, int mask) const {
  const ibv_qp_state from = current_state();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? next.qp_state : from;
  if ((mask & IBV_QP_CUR_STATE) != 0 && next.cur_qp_state != from) {
    return refuse(*this, EINVAL, fmt::format("it is in {}, not in {}", name(from), name(next.cur_qp_state)));
  }
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return 0;
  int required = -1;
  if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) required = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
    required = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
               IBV_QP_MIN_RNR_TIMER;
  }
  if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
    required = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  if (from == to && (from == IBV_QPS_INIT || from == IBV_QPS_RTS)) required = 0;
  if (required < 0) return refuse(*this, EINVAL, fmt::format("no transition from {} to {}", name(from), name(to)));
  if ((mask & required) != required) {
    return refuse(*this, EINVAL,
                  fmt::format("{} to {} lacks attributes (ibv_qp_attr_mask {:#x})", name(from), name(to),
                              static_cast<unsigned>(required & ~mask)));
  }
  const auto check = [&](int bit, bool good, std::string_view what) {
    return (mask & bit) == 0 || good ? 0 : refuse(*this, EINVAL, what);
  };
  for (const int error :
       {check(IBV_QP_PORT, next.port_num == 1, "port_num must be 1"),
        check(IBV_QP_PKEY_INDEX, next.pkey_index == 0, "pkey_index must be 0"),
        check(IBV_QP_PATH_MTU, next.path_mtu >= IBV_MTU_256 && next.path_mtu <= IBV_MTU_4096, "path_mtu is no ibv_mtu"),
        check(IBV_QP_MAX_DEST_RD_ATOMIC, next.max_dest_rd_atomic <= kMaxReads,
              "max_dest_rd_atomic exceeds the device's"),
        check(IBV_QP_MAX_QP_RD_ATOMIC, next.max_rd_atomic <= kMaxReads, "max_rd_atomic exceeds the device's"),
        check(IBV_QP_MIN_RNR_TIMER, next.min_rnr_timer <= 31, "min_rnr_timer exceeds 31"),
        check(IBV_QP_TIMEOUT, next.timeout <= 31, "timeout exceeds 31"),
        check(IBV_QP_RETRY_CNT, next.retry_cnt <= 7, "retry_cnt exceeds 7"),
        check(IBV_QP_RNR_RETRY, next.rnr_retry <= 7, "rnr_retry exceeds 7"),
        check(IBV_QP_DEST_QPN, next.dest_qp_num <= Psn::kMask, "dest_qp_num exceeds 24 bits")}) {
    if (error != 0) return error;
  }
  return 0;
}

// Binds the queue pair to its port and its peer.
int Qp::connect(const ibv_qp_attr& next) {
  const ibv_ah_attr& path = next.ah_attr;
  if (path.is_global == 0) return refuse(*this, EINVAL, "ah_attr.is_global must be 1: RoCE addresses peers by GID");
  const Gid peer = Gid::from_verbs(path.grh.dgid);
  if (!peer.is_ipv4()) {
    return refuse(*this, EAFNOSUPPORT,
                  fmt::format("dgid {} is no IPv4-mapped address; softroce's UDP port speaks IPv4", to_string(peer)));
  }
  auto slot = device.port_of_gid(path.grh.sgid_index);
  if (!slot)
    return refuse(*this, slot.error().code() == Code::kAlreadyExists ? EADDRINUSE : EINVAL, slot.error().message());
  const std::uint32_t bytes = 128U << next.path_mtu;
  if (bytes > (*slot)->port->max_mtu()) {
    return refuse(*this, EINVAL,
                  fmt::format("path_mtu {} exceeds {}, what the interface of {} carries", bytes,
                              (*slot)->port->max_mtu(), to_string((*slot)->port->address())));
  }
  port = *slot;
  mtu = bytes;
  const std::uint32_t label = path.grh.flow_label;
  const std::uint64_t mixed = (std::uint64_t{number()} << 24 | next.dest_qp_num) * kGolden;
  const std::uint32_t flow = label != 0 ? ibv_flow_label_to_udp_sport(label) : static_cast<std::uint32_t>(mixed >> 40);
  route = port->port->make_route(peer, flow, path.grh.traffic_class, path.grh.hop_limit);
  if (port->congestion) {
    congestion = std::make_unique<CongestionControl>(*port->congestion);
    route.traffic_class = static_cast<std::uint8_t>((route.traffic_class & ~3) | kEcnCapable);
  }
  peer_window = &domain.peer_window(*port, peer);
  receive.replies.assign(next.max_dest_rd_atomic, ReadReply{});
  receive.results.clear();
  receive.results.reserve(next.max_dest_rd_atomic);
  return 0;
}

int Qp::modify(const ibv_qp_attr& next, int mask) {
  const std::scoped_lock posters(sq.mutex, rq.mutex);
  const DomainLock lock(domain);
  if (const int error = check_transition(next, mask); error != 0) return error;
  const ibv_qp_state from = current_state();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? next.qp_state : from;
  if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) {
    if (const int error = connect(next); error != 0) return error;
  }
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) attr.qp_access_flags = next.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) attr.pkey_index = next.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) attr.port_num = next.port_num;
  if ((mask & IBV_QP_AV) != 0) attr.ah_attr = next.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) attr.path_mtu = next.path_mtu;
  if ((mask & IBV_QP_DEST_QPN) != 0) attr.dest_qp_num = next.dest_qp_num;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) attr.max_dest_rd_atomic = next.max_dest_rd_atomic;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) attr.max_rd_atomic = next.max_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) attr.min_rnr_timer = next.min_rnr_timer;
  if ((mask & IBV_QP_TIMEOUT) != 0) attr.timeout = next.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) attr.retry_cnt = next.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) attr.rnr_retry = next.rnr_retry;
  if ((mask & IBV_QP_RQ_PSN) != 0) {
    attr.rq_psn = next.rq_psn & Psn::kMask;
    receive.expected = Psn(next.rq_psn);
  }
  if ((mask & IBV_QP_SQ_PSN) != 0) {
    attr.sq_psn = next.sq_psn & Psn::kMask;
    send.next_new = send.una = send.sent_end = Psn(next.sq_psn);
  }
  if (to == IBV_QPS_ERR) {
    enter_error();
  } else if (to == IBV_QPS_RESET) {
    set_state(to);
    detach();
  } else {
    set_state(to);
    if (to == IBV_QPS_RTS) domain.make_ready(*this);
  }
  qp_base.state = to;
  return 0;
}

void Qp::query(ibv_qp_attr& out, ibv_qp_init_attr& init) {
  const DomainLock lock(domain);
  out = attr;
  out.qp_state = out.cur_qp_state = current_state();
  qp_base.state = out.qp_state;
  out.cap = {sq.capacity(), rq.capacity(), sq.max_segments(), rq.max_segments(), sq.max_inline()};
  init = {};
  init.qp_context = qp_base.qp_context;
  init.send_cq = qp_base.send_cq;
  init.recv_cq = qp_base.recv_cq;
  init.srq = qp_base.srq;
  init.cap = out.cap;
  init.qp_type = qp_base.qp_type;
  init.sq_sig_all = signal_all ? 1 : 0;
}

bool Qp::take_receive() noexcept {
  if (current.taken) return true;
  if (srq != nullptr) return srq->take(current);
  if (rq.empty()) return false;
  current.take(rq, pd_ref);
  return true;
}

void Qp::release_windows() noexcept {
  if (send.in_flight > 0) domain.give_back(*peer_window, std::exchange(send.in_flight, 0));
  if (send.reads_in_flight > 0) domain.give_back(port->reads, std::exchange(send.reads_in_flight, 0));
}

void Qp::enter_error() noexcept {
  const bool entered = current_state() != IBV_QPS_ERR;
  if (entered) {
    domain.answer_held(*this);
    set_state(IBV_QPS_ERR);
    release_windows();
    waiting.unlink();
    send.deadline = 0;
    send.rnr_wait = false;
    receive.reply_count = 0;
    receive.ack_due = false;
    receive.dying = false;
  }
  flush();
  // From here on it takes nothing from the shared queue (IBTA 10.3.1, 11.5.2).
  if (entered && srq != nullptr) raise(IBV_EVENT_QP_LAST_WQE_REACHED);
}

void Qp::flush() noexcept {
  // Pairs with the fence of post_recv: either this sees the tail it published or it sees ERR.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  ibv_wc completion{};
  completion.status = IBV_WC_WR_FLUSH_ERR;
  while (!sq.empty()) {
    const SendWqe& wqe = sq.at(sq.head());
    completion.wr_id = wqe.id;
    completion.opcode = wqe.completion_opcode();
    sq.pop();
    complete(send_completions, completion, false);
  }
  send.cursor = send.started = sq.head();
  send.cursor_packet = 0;
  completion.opcode = IBV_WC_RECV;
  // What waits in a shared queue is for the others.
  while (current.taken || (srq == nullptr && take_receive())) {
    completion.wr_id = current.wqe.id;
    current.taken = false;
    complete(recv_completions, completion, false);
  }
}

void Qp::complete(Cq& cq, ibv_wc& completion, bool solicited) noexcept {
  completion.qp_num = number();
  if (cq.push(completion, solicited)) return;
  domain.counters.cq_overflows.add();
  if (cq.report_overflow()) {
    log(LogLevel::kError,
        fmt::format("softroce: the completion queue of qp {:#x} overflowed its {} entries; completions are lost; make "
                    "it as long as the queues that complete to it",
                    number(), cq.cqe));
    device.async_events().push({.element = {.cq = ibv_cq_ex_to_cq(&cq)}, .event_type = IBV_EVENT_CQ_ERR});
  }
  if (current_state() != IBV_QPS_ERR) enter_error();
}

void Qp::raise(ibv_event_type type) noexcept {
  device.async_events().push({.element = {.qp = &qp_base}, .event_type = type});
}

void Qp::detach() noexcept {
  domain.answer_held(*this);
  release_windows();
  ready.unlink();
  waiting.unlink();
  sq.reset();
  rq.reset();
  send = {};
  send.cursor = send.started = sq.head();
  receive = {};
  congestion.reset();
  paced_until = 0;
  current.taken = false;
  port = nullptr;
  peer_window = nullptr;
}

}  // namespace fairlead::soft
