#include "verbs/soft/qp/qp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "verbs/soft/observe/refuse.h"
#include "verbs/soft/port/urgent_way.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/qp/qp_states.h"
#include "verbs/soft/queues/cq.h"
#include "verbs/soft/queues/device_base.h"
#include "verbs/soft/queues/srq.h"

namespace fairlead::soft {
namespace {

constexpr std::uint8_t kEcnCapable = 2;  // ECT(0), RFC 3168

int refuse(const Qp& qp, int error, std::string_view why) {
  note_refusal(LogLevel::kError, fmt::format("ibv_modify_qp of qp {:#x}: {}", qp.number(), why));
  return error;
}

// What came before its turn, and what was to be sent once more.
void drop_early(Qp& qp) noexcept {
  qp.send.early.clear(qp.domain.packet_store);
  qp.receive.early.clear(qp.domain.packet_store);
  qp.receive.look_at = 0;
  qp.send.repeats.clear();
}

}  // namespace

Qp::Qp(DeviceBase& owner, QpContext& context, Pd& protection, const ibv_qp_init_attr& init)
    : ibv_qp_ex{},
      device(owner),
      domain(context),
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
  if (!connected()) paths_.resize(sq.slots());
  ++owner_.users;
  ++send_completions.users;
  ++recv_completions.users;
}

bool Qp::passed_by_urgent() const noexcept { return route.apart != nullptr && route.apart->open(); }

Qp::~Qp() {
  if (srq != nullptr) --srq->users;
  --recv_completions.users;
  --send_completions.users;
  --owner_.users;
  ::pthread_cond_destroy(&(qp_base.cond));
  ::pthread_mutex_destroy(&(qp_base.mutex));
}

int Qp::check_modify(const ibv_qp_attr& next, int mask) const {
  const ibv_qp_state from = current_state();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? next.qp_state : from;
  std::string why;
  if ((mask & IBV_QP_CUR_STATE) != 0 && next.cur_qp_state != from) {
    return refuse(*this, EINVAL, fmt::format("it is in {}, not in {}", to_string(from), to_string(next.cur_qp_state)));
  }
  if (!legal_transition(type(), from, to, mask, why) || !legal_values(next, mask, why)) {
    return refuse(*this, EINVAL, why);
  }
  const bool moves =
      (mask & IBV_QP_ALT_PATH) != 0 || ((mask & IBV_QP_PATH_MIG_STATE) != 0 && next.path_mig_state != IBV_MIG_MIGRATED);
  if (moves)
    return refuse(*this, EOPNOTSUPP, "automatic path migration is not supported; connect a queue pair per path");
  if (from == IBV_QPS_SQD && (mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && receive.reply_count != 0) {
    return refuse(*this, EBUSY, "max_dest_rd_atomic cannot change while READs are being answered; try again");
  }
  return 0;
}

// What may wait for other processes, which no lock may.
int Qp::prepare_modify(const ibv_qp_attr& next, int mask) {
  if ((mask & IBV_QP_AV) == 0) return 0;
  {
    const DomainLock lock(domain);
    if (const int error = check_modify(next, mask); error != 0) return error;
  }
  std::string why;
  const int error = prepare_path(device, next.ah_attr, why);
  return error == 0 ? 0 : refuse(*this, error, why);
}

// Binds the queue pair to its port and its peer.
int Qp::set_path(const ibv_ah_attr& vector, std::uint32_t peer_qpn, std::uint32_t path_mtu) {
  Path path;
  std::string why;
  const std::uint64_t spread = std::uint64_t{number()} << 24 | peer_qpn;
  if (const int error = resolve_path(device, vector, spread, peer_qpn, path, why); error != 0)
    return refuse(*this, error, why);
  if (path_mtu > path.max_mtu) {
    return refuse(*this, EINVAL,
                  fmt::format("path_mtu {} exceeds {}, what the interface of {} carries", path_mtu, path.max_mtu,
                              to_string(path.port->port->address())));
  }
  if (path.port->shared && !domain.in_partition(number())) {
    return refuse(
        *this, ENOSPC,
        fmt::format("other processes have a share of {}, where a device has room for 8192 queue pairs, and it "
                    "had as many when this one was made; use another of its addresses, or destroy some",
                    to_string(path.port->port->address())));
  }
  // What is not acknowledged goes the new way; else nobody would miss it, as nothing of it is counted any more.
  if (send.una.before(send.sent_end)) domain.send_again(*this);
  domain.take_back(*this);
  if (waiting.linked()) {  // for room on the way that it had
    waiting.unlink();
    domain.make_ready(*this);
  }
  port = path.port;
  count_connection(-1);
  peer = path.peer;
  count_connection(1);
  peer_window = &peer->window;
  route = path.route;
  if (route.references != nullptr) port->references = route.references;
  const bool to_host = route.peer_port != 0;
  sender = to_host || port->far_window == 0 ? nullptr : &peer->sender(peer_qpn);
  reads = sender != nullptr ? &port->far_reads : &port->reads;
  mtu = path_mtu;
  if (port->congestion && route.version == RoceVersion::kV2) {  // version 1 has no marks
    if (!congestion) congestion = std::make_unique<CongestionControl>(*port->congestion);
    route.traffic_class = static_cast<std::uint8_t>((route.traffic_class & ~3) | kEcnCapable);
  }
  return 0;
}

void Qp::assign(const ibv_qp_attr& next, int mask) noexcept {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) attr.qp_access_flags = next.qp_access_flags;
  if ((mask & IBV_QP_PKEY_INDEX) != 0) attr.pkey_index = next.pkey_index;
  if ((mask & IBV_QP_PORT) != 0) attr.port_num = next.port_num;
  if ((mask & IBV_QP_QKEY) != 0) attr.qkey = next.qkey;
  if ((mask & IBV_QP_AV) != 0) attr.ah_attr = next.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) attr.path_mtu = next.path_mtu;
  if ((mask & IBV_QP_DEST_QPN) != 0) attr.dest_qp_num = next.dest_qp_num;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) attr.max_rd_atomic = next.max_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) attr.min_rnr_timer = next.min_rnr_timer;
  if ((mask & IBV_QP_TIMEOUT) != 0) attr.timeout = next.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) attr.retry_cnt = next.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) attr.rnr_retry = next.rnr_retry;
  if ((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0) attr.en_sqd_async_notify = next.en_sqd_async_notify;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) {
    attr.max_dest_rd_atomic = next.max_dest_rd_atomic;
    receive.replies.assign(next.max_dest_rd_atomic, Reply{});
    receive.reply_head = 0;
    receive.questions.assign(next.max_dest_rd_atomic, Question{});
    receive.oldest_question = 0;
  }
  if ((mask & IBV_QP_RQ_PSN) != 0) {
    attr.rq_psn = next.rq_psn & Psn::kMask;
    receive.expected = Psn(next.rq_psn);
    receive.answerable = receive.expected - 1;
  }
  if ((mask & IBV_QP_SQ_PSN) != 0) {
    attr.sq_psn = next.sq_psn & Psn::kMask;
    send.next_new = send.una = send.sent_end = Psn(next.sq_psn);
  }
}

void Qp::enter(ibv_qp_state to) noexcept {
  switch (to) {
    case IBV_QPS_ERR:
      return enter_error();
    case IBV_QPS_RESET:
      set_state(to);
      detach();
      attr = {};
      return;
    case IBV_QPS_SQD:
      // A second time (to change attributes) it does not drain again.
      if (current_state() == IBV_QPS_RTS) attr.sq_draining = 1;
      set_state(to);
      return check_drained();
    default:
      set_state(to);
      attr.sq_draining = 0;
      if (to == IBV_QPS_RTS) domain.make_ready(*this);
  }
}

int Qp::modify(const ibv_qp_attr& next, int mask) {
  if (const int error = prepare_modify(next, mask); error != 0) return error;
  const std::scoped_lock posters(sq.mutex, rq.mutex);
  const DomainLock lock(domain);
  if (const int error = check_modify(next, mask); error != 0) return error;
  if ((mask & IBV_QP_AV) != 0) {
    const std::uint32_t peer_qpn = (mask & IBV_QP_DEST_QPN) != 0 ? next.dest_qp_num : attr.dest_qp_num;
    const std::uint32_t path_mtu = (mask & IBV_QP_PATH_MTU) != 0 ? 128U << next.path_mtu : mtu;
    if (const int error = set_path(next.ah_attr, peer_qpn, path_mtu); error != 0) return error;
  }
  assign(next, mask);
  if ((mask & IBV_QP_STATE) != 0) enter(next.qp_state);
  qp_base.state = current_state();
  return 0;
}

void Qp::query(ibv_qp_attr& out, ibv_qp_init_attr& init) {
  const DomainLock lock(domain);
  out = attr;
  out.qp_state = out.cur_qp_state = current_state();
  qp_base.state = out.qp_state;
  if (!connected()) out.path_mtu = device.active_mtu();
  out.path_mig_state = IBV_MIG_MIGRATED;
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

/// In the peer's flow, as one with which datagrams share the window.
void Qp::count_connection(int change) noexcept {
  if (peer && qp_base.qp_type == IBV_QPT_RC) peer->flow.connections += static_cast<std::size_t>(change);
}

void Qp::release_windows() noexcept {
  if (send.in_flight > 0) domain.give_back(*peer_window, std::exchange(send.in_flight, 0));
  if (send.reads_in_flight > 0) domain.give_back(*reads, std::exchange(send.reads_in_flight, 0));
}

void Qp::establish() noexcept {
  if (std::exchange(established_, true)) return;
  raise(IBV_EVENT_COMM_EST);
}

void Qp::check_drained() noexcept {
  if (current_state() != IBV_QPS_SQD || attr.sq_draining == 0 || sq.head() != send.started || kept_completions != 0)
    return;
  attr.sq_draining = 0;
  if (std::exchange(attr.en_sqd_async_notify, 0) != 0) raise(IBV_EVENT_SQ_DRAINED);
}

void Qp::enter_send_error() noexcept {
  set_state(IBV_QPS_SQE);
  waiting.unlink();
  flush_sends();
}

void Qp::enter_error() noexcept {
  const bool entered = current_state() != IBV_QPS_ERR;
  if (entered) {
    domain.answer_held(*this);
    domain.send_batches();  // packets refer to what is completed now
    domain.take_back(*this);
    set_state(IBV_QPS_ERR);
    release_windows();
    drop_early(*this);
    waiting.unlink();
    attr.sq_draining = 0;
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

void Qp::flush_sends() noexcept {
  ibv_wc completion{};
  completion.status = IBV_WC_WR_FLUSH_ERR;
  while (!sq.empty()) {
    const SendWqe& wqe = sq.at(sq.head());
    completion.wr_id = wqe.id;
    completion.opcode = wqe.completion_opcode();
    sq.pop();
    complete_send(completion);
  }
  send.cursor = send.started = sq.head();
  send.cursor_packet = 0;
}

void Qp::flush() noexcept {
  // Pairs with the fence of post_recv: either this sees the tail it published or it sees ERR.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  flush_sends();
  ibv_wc completion{};
  completion.status = IBV_WC_WR_FLUSH_ERR;
  completion.opcode = IBV_WC_RECV;
  // What waits in a shared queue is for the others.
  while (current.taken || (srq == nullptr && take_receive())) {
    completion.wr_id = current.wqe.id;
    current.taken = false;
    complete(recv_completions, completion, false);
  }
}

void Qp::complete_send(ibv_wc& completion) noexcept {
  if (!domain.lender.keep(*this, completion)) complete(send_completions, completion, false);
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
  domain.lender.forget(*this);
  domain.take_back(*this);
  kept_completions = 0;
  release_windows();
  drop_early(*this);
  ready.unlink();
  waiting.unlink();
  departing.unlink();
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
  sender = nullptr;
  reads = nullptr;
  count_connection(-1);
  peer = {};
  established_ = false;
}

}  // namespace fairlead::soft
