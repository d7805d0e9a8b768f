#include "verbs/soft/rc/selective.h"

#include <algorithm>

#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/congestion.h"
#include "verbs/soft/rc/message_packets.h"
#include "verbs/soft/rc/requester_limits.h"
#include "verbs/soft/rc/retransmission.h"

namespace fairlead::soft::requester {
namespace {

// The request that the packet is of; it is one of those from the oldest to the last that was started.
std::uint32_t index_of(Qp& qp, Psn psn) noexcept {
  std::uint32_t from = qp.sq.head();
  std::uint32_t count = qp.send.started - from;  // the last of them that begins at or before the packet
  while (count > 1) {
    const std::uint32_t half = count / 2;
    if (psn.before(qp.sq.at(from + half).first)) {
      count = half;
    } else {
      from += half;
      count -= half;
    }
  }
  return from;
}

// What finds no room among the repeats is reported again.
void note(Qp& qp, PsnRange range, Window& window) noexcept {
  SendState& s = qp.send;
  if (s.rnr_wait) return;  // it goes back to what was not taken
  const Psn cursor = s.cursor == s.started ? s.next_new : qp.sq.at(s.cursor).first + s.cursor_packet;
  if (range.first.before(s.una)) range.first = s.una;
  if (cursor.before(range.end)) range.end = cursor;
  if (!range.first.before(range.end) || !s.repeats.push(range)) return;
  const Nanos now = qp.domain.now();
  if (s.loss_at == 0 || now >= s.loss_at + s.srtt) {  // what one round trip brings is of one flight
    s.loss_at = now;
    window.on_loss();
  }
  retransmission::reported(qp);
  qp.domain.make_ready(qp);
}

}  // namespace

void on_missing(Qp& qp, PsnRange range) noexcept { note(qp, range, *qp.peer_window); }

void on_unanswered(Qp& qp, PsnRange range) noexcept {
  range.answers = true;
  // Acknowledgements stand for several packets: not all that lies between two of them is to be answered.
  for (std::uint32_t i = index_of(qp, range.first); i != qp.send.started; ++i) {
    const SendWqe& wqe = qp.sq.at(i);
    if (!wqe.first.before(range.end)) return;
    if (!wqe.is_answered()) continue;
    qp.domain.counters.lost_responses.add();
    return note(qp, range, *qp.reads);
  }
}

bool send_repeats(Qp& qp, unsigned& quota) noexcept {
  SendState& s = qp.send;
  while (!s.repeats.empty()) {
    PsnRange& range = s.repeats.front();
    if (range.first.before(s.una)) range.first = s.una;
    if (!range.first.before(range.end)) {
      s.repeats.pop();
      continue;
    }
    if (quota == 0 || !may_send_now(qp)) return false;
    const std::uint32_t index = index_of(qp, range.first);
    const SendWqe& wqe = qp.sq.at(index);
    const auto number = static_cast<std::uint32_t>(range.first.since(wqe.first));
    if (wqe.is_read()) {
      const auto end = static_cast<std::uint32_t>(range.end.since(wqe.first));
      const std::uint32_t upto = std::min(read_part_end(qp.mtu, wqe.packets, number), end);
      put_read(qp, wqe, number, upto);
      range.first = wqe.first + upto;
    } else if (wqe.is_atomic()) {
      put_atomic(qp, wqe);
      range.first = wqe.end();
    } else if (range.answers) {
      range.first = wqe.end();  // nothing answers those but what comes later
      continue;
    } else if (put_packet(qp, {index, number, range.first + 1 == range.end})) {
      ++range.first;
    } else {
      retransmission::rewind(qp);  // its error comes in order
      return true;
    }
    --quota;
    qp.domain.counters.sent_repeats.add();
  }
  return true;
}

}  // namespace fairlead::soft::requester
