// A queue pair: its queues, its attributes and the state of its roles.
//
// Threads: the queues' posting side as work_queue.h says; state() may be read by anyone; the rest is under the domain's
// lock. The roles' code is in requester.h, completer.h, responder.h.
// Source: IBTA volume 1, 9.7 (reliable service), 10.3.1 (states).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/intrusive_list.h"
#include "base/timer_queue.h"
#include "verbs/soft/flow_control/control.h"
#include "verbs/soft/memory/mr_table.h"
#include "verbs/soft/port/tx_batch.h"
#include "verbs/soft/qp/disorder.h"
#include "verbs/soft/qp/path.h"
#include "verbs/soft/qp/repeats.h"
#include "verbs/soft/qp/send_builder.h"
#include "verbs/soft/qp/work_watch.h"
#include "verbs/soft/queues/work_queue.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {

class Cq;
class DeviceBase;
class QpContext;
struct Sender;
class Srq;

/// What the requester sends and the completer takes back.
struct SendState {
  std::uint32_t cursor = 0;         // index of the WQE being sent
  std::uint32_t cursor_packet = 0;  // its next packet
  std::uint32_t started = 0;        // WQEs below have PSNs
  Psn next_new;                     // of the next WQE to start
  Psn una;                          // the oldest not acknowledged
  Psn sent_end;                     // one past the highest ever sent
  std::size_t in_flight = 0;        // bytes charged to the peer's window
  std::size_t reads_in_flight = 0;  // bytes charged to our own port's
  std::size_t probe_bytes = 0;      // that left while it probes: charged once it is answered, as others need the room
  std::size_t probe_reads = 0;      // the same of what was asked for
  std::uint64_t peer_heard = 0;     // Window::acknowledged() of the two when the timer was started
  std::uint64_t reads_heard = 0;
  Psn messages;  // that were started, as a responder counts them
  std::uint32_t reads_outstanding = 0;
  std::uint32_t unacknowledged_run = 0;        // packets since one asked for an acknowledgement
  ibv_wc_status local_error = IBV_WC_SUCCESS;  // of the WQE at cursor: it fails when its turn to complete comes

  enum class Bundles : std::uint8_t {
    kUntried,
    kTried,
    kTaken,
    kRefused
  } bundles = Bundles::kUntried;  // rc/bundling.h
  Psn bundle_end;                 // one past the bundle that is tried

  Repeats repeats;    // what the peer lacks of what it was sent
  Nanos loss_at = 0;  // when such a report last shrank the window; 0: never
  Disorder early;     // answers that came before others

  // Retransmission. A probe resends early; a retry is a probe that the ack timeout's expiry counts.
  bool rnr_wait = false;
  bool timed_out = false;    // what is sent again is so only because nothing was heard
  bool implied_nak = false;  // answered already for implied_nak_at
  Psn implied_nak_at;
  Psn implied_nak_by;         // the last answer that lay past the gap
  Nanos repaired_at = 0;      // when a NAK or a gap among answers last sent it back; 0: never
  bool repair_waits = false;  // another one did, too early: at `deadline`, if nothing has come of repair_una by then
  Psn repair_una;
  std::uint8_t retries = 0;
  Nanos retried_at = 0;  // the last of them
  std::uint8_t rnr_retries = 0;
  bool probing = false;  // nothing was heard since the last timeout
  unsigned backoff = 0;
  Nanos progress_at = 0;  // of the peer, less the time in which nothing was on its way to it
  Nanos idle_since = 0;   // what was sent is to be sent again, and waits for its turn; 0: it does not
  Nanos deadline = 0;     // 0: no timer
  Nanos srtt = 0;
  Nanos rttvar = 0;
  // The longest time between two answers that was no loss: a slow link that hands over 64 KiB at a time, a peer that
  // has other things to do. After a probe longer ones are waited for, for a while, to see whether it was one.
  Nanos lull = 0;
  Nanos lull_at = 0;  // seen last
  Nanos grace = 0;
  Nanos grace_until = 0;
  Nanos asked_since = 0;  // a probe took for lost what was sent before the last progress then; 0: none did
  Nanos silence = 0;      // from then until the next answer; 0: none has come
  bool timing = false;
  Psn timed_psn;
  Nanos timed_at = 0;
  bool timed_answer = false;  // it is a READ or an atomic, whose answer may be long
};

/// What a READ or an atomic asks.
struct Question {
  std::uint64_t position = 0;  // of its first packet, as ReceiveState::position
  std::uint32_t packets = 0;   // of its answer
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  bool atomic = false;         // executed already
  std::uint64_t original = 0;  // what it found
  [[nodiscard]] std::uint64_t end() const noexcept { return position + packets; }
};

/// A question, or the part of it that was repeated, that is being answered.
struct Reply : Question {
  Psn first;
  std::uint32_t next = 0;
  bool again = false;
};

struct ReceiveState {
  Psn expected;
  std::uint64_t position = 0;  // of what is expected, in packets: its PSN's distance to another's, without the wrapping
  std::uint32_t msn = 0;
  PacketKind message = PacketKind::kNone;  // the kind being received, between first and last
  std::uint64_t write_address = 0;         // next byte of a WRITE
  std::uint32_t write_rkey = 0;
  std::uint32_t write_left = 0;
  std::uint64_t received = 0;  // bytes of the current message
  bool gap_reported = false;   // a NAK for `expected` was sent
  Psn last_ahead;              // the last PSN received past the gap

  Psn answerable;  // the last packet that asked for an acknowledgement, by its bit or as the end of a message
  bool ack_due = false;
  bool unanswered = false;          // a message was received since the last one of our own began
  std::uint8_t turns_answered = 0;  // messages in a row that were each answered by one of our own
  Nanos held_since = 0;             // the acknowledgement, in QpContext::hold
  bool peer_is_kin = false;         // takes acknowledgements that a message carries; its answers say so
  bool asked_by_kin = false;        // and who asks knows that we are; its requests say so
  Psn ack_psn;
  std::uint8_t ack_syndrome = 0;
  bool dying = false;          // ack_syndrome is fatal: sent once the READs before it are answered, then ERR
  bool dead = false;           // sent; repeated when asked again
  bool referred = false;       // answers to READs did, to memory that may be gone before they are taken
  std::vector<Reply> replies;  // ring of max_dest_rd_atomic, in the order of their positions, which do not overlap
  std::uint32_t reply_head = 0;
  std::uint32_t reply_count = 0;
  std::uint64_t answered = 0;       // one past the last position that an answer was sent for
  std::vector<Question> questions;  // ring of as many: the last ones, answered or not
  std::uint32_t oldest_question = 0;

  Disorder early;     // requests that came before others
  Nanos look_at = 0;  // when what is missing before early ones is to be looked at, here and in SendState; 0: never

  std::uint8_t exact_icrcs = 0;  // packets whose ICRC needed no inferred IPv4 id
};

class Qp : public ibv_qp_ex {
 public:
  /// Its number is the domain's to give.
  Qp(DeviceBase& device, QpContext& domain, Pd& pd, const ibv_qp_init_attr& init);
  ~Qp();

  [[nodiscard]] std::uint32_t number() const noexcept { return qp_base.qp_num; }
  [[nodiscard]] ibv_qp_type type() const noexcept { return qp_base.qp_type; }
  [[nodiscard]] ibv_qp_state current_state() const noexcept { return state_.load(std::memory_order_acquire); }
  void set_state(ibv_qp_state next) noexcept {
    state_.store(next, std::memory_order_release);
    work_watch.look();  // what is then in the queue must not be left there
  }
  /// Goes before others: its service level is not 0 (IBTA volume 1, 7.6.5: service levels, which arbitration maps).
  [[nodiscard]] bool has_priority() const noexcept { return attr.ah_attr.sl != 0; }
  /// What has priority does not wait behind what it sends: its port sets that apart.
  [[nodiscard]] bool passed_by_urgent() const noexcept;
  /// Has one peer.
  [[nodiscard]] bool connected() const noexcept { return type() != IBV_QPT_UD; }
  [[nodiscard]] bool responds() const noexcept {
    const ibv_qp_state now = current_state();
    return now >= IBV_QPS_RTR && now <= IBV_QPS_SQE;
  }
  /// Sends, though perhaps (SQD) only what it has begun.
  [[nodiscard]] bool requests() const noexcept {
    const ibv_qp_state now = current_state();
    return now == IBV_QPS_RTS || now == IBV_QPS_SQD;
  }
  /// The WQE at the cursor is there and may be begun or continued.
  [[nodiscard]] bool has_work() noexcept {
    return send.cursor != sq.tail() && (current_state() != IBV_QPS_SQD || send.cursor != send.started);
  }

  /// ibv_modify_qp and ibv_query_qp. 0 or an errno; a refusal is logged. Takes the domain's lock.
  int modify(const ibv_qp_attr& attr, int mask);
  void query(ibv_qp_attr& attr, ibv_qp_init_attr& init);

  /// Takes the next receive request into `current`, unless one is taken already. False when there is none.
  [[nodiscard]] bool take_receive() noexcept;

  /// Where the datagram goes that is posted at an index of the send queue. For UD.
  [[nodiscard]] Path& datagram_path(std::uint32_t index) noexcept { return paths_[index & (paths_.size() - 1)]; }

  /// The first packet has come: raises IBV_EVENT_COMM_EST, once per connection.
  void establish() noexcept;
  /// In SQD: if nothing that was begun is left, the queue is drained. IBV_EVENT_SQ_DRAINED if it was asked for.
  void check_drained() noexcept;
  /// To SQE: the send queue's requests complete as flushed; the queue pair still receives. For UC and UD.
  void enter_send_error() noexcept;
  /// To ERR: every accepted work request completes, those that did not run as flushed.
  void enter_error() noexcept;
  /// Completes what the queues hold as flushed; for a queue pair in ERR.
  void flush() noexcept;
  void flush_sends() noexcept;
  /// Adds the queue pair's number and pushes it. An overflow is the end of the queue pair.
  void complete(Cq& cq, ibv_wc& completion, bool solicited) noexcept;
  /// Of the send queue: once no device looks at its requests' memory any more.
  void complete_send(ibv_wc& completion) noexcept;
  /// Queues an asynchronous event about this queue pair.
  void raise(ibv_event_type type) noexcept;
  /// Back to nothing: windows, route, roles.
  void detach() noexcept;
  /// Gives the windows what is in flight.
  void release_windows() noexcept;

  DeviceBase& device;
  QpContext& domain;
  Pd& pd_ref;  // whose memory its keys name
  Cq& send_completions;
  Cq& recv_completions;
  Srq* const srq;  // where receive requests come from instead of rq, or null
  const bool signal_all;
  WorkQueue<SendWqe> sq;
  WorkQueue<RecvWqe> rq;
  SendBuilder builder{*this};  // of the extended interface, under sq.mutex

  ibv_qp_attr attr{};  // as last set
  std::uint32_t mtu = 0;
  PortSlot* port = nullptr;
  PeerHold peer;
  Window* peer_window = nullptr;
  Window* reads = nullptr;   // the port's that READs of this peer are charged to
  Sender* sender = nullptr;  // the peer as one of those at other hosts who share our receive buffer; null: it is not
  Route route;
  bool refers = false;  // requests that left by the route may refer to its program's memory
  SendState send;
  ReceiveState receive;
  CurrentReceive current;

  Link<Qp> ready{this};                           // has something to send
  Link<Qp> waiting{this};                         // for room in a window
  WorkWatch work_watch;                           // which new work need not ring for meanwhile
  Link<Qp> departing{this};                       // has packets of UC or UD in a batch
  TimerEntry<Qp> timer{this};                     // for the earliest of send.deadline and paced_until
  Nanos paced_until = 0;                          // its rate lets nothing leave before; 0: it does
  std::unique_ptr<CongestionControl> congestion;  // null: none
  Link<Qp> held{this};                            // owes an acknowledgement that waits for a message to go with
  std::atomic<bool> rung{false};                  // in the doorbell stack
  Qp* next_rung = nullptr;
  std::uint32_t kept_completions = 0;  // in Lender
  std::uint32_t async_delivered = 0;   // under ibv_qp::mutex

 private:
  int check_modify(const ibv_qp_attr& next, int mask) const;
  int prepare_modify(const ibv_qp_attr& next, int mask);
  int set_path(const ibv_ah_attr& vector, std::uint32_t peer_qpn, std::uint32_t path_mtu);
  void assign(const ibv_qp_attr& next, int mask) noexcept;
  void count_connection(int change) noexcept;
  void enter(ibv_qp_state to) noexcept;

  Pd& owner_;                // the domain, or parent domain, that it was created with
  std::vector<Path> paths_;  // of UD, one for each slot of the send queue
  bool established_ = false;
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
};

// ibv_qp_ex begins with an ibv_qp.
[[nodiscard]] inline Qp& impl(ibv_qp* qp) noexcept { return static_cast<Qp&>(*reinterpret_cast<ibv_qp_ex*>(qp)); }
[[nodiscard]] inline Qp& impl(ibv_qp_ex* qp) noexcept { return static_cast<Qp&>(*qp); }

}  // namespace fairlead::soft
