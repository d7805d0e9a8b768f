#include "verbs/soft/rc/retransmission.h"

#include <algorithm>
#include <utility>

#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/bundling.h"
#include "verbs/soft/rc/completer.h"

namespace fairlead::soft::retransmission {
namespace {

// Probes resend early, where the ack timeout that users set (67 ms and more) would stall. They never fail a WQE.
constexpr Nanos kFirstProbe = 4 * kMillisecond;  // before a round trip was timed
constexpr Nanos kLeastProbe = 1 * kMillisecond;
constexpr Nanos kMostProbe = 1 * kSecond;
constexpr unsigned kMostBackoff = 8;
constexpr Nanos kMostLull = 50 * kMillisecond;
constexpr Nanos kLullHalves = 100 * kMillisecond;
constexpr unsigned kGraceTimes = 3;

Nanos ack_timeout(const Qp& qp) noexcept { return qp.attr.timeout == 0 ? 0 : 4096ULL << qp.attr.timeout; }

// When the next retry is due, or the last has failed. Who was away itself asked no more often for that: each retry has
// its time to be answered.
Nanos expiry_of(const SendState& s, Nanos timeout) noexcept {
  return std::max(s.progress_at + timeout * s.retries, s.retried_at) + timeout;
}

bool outstanding(const SendState& s) noexcept { return s.una.before(s.sent_end); }

/// It has gone back, and nothing has left since.
bool waits_to_resend(Qp& qp) noexcept {
  const SendState& s = qp.send;
  return s.cursor != s.started && qp.sq.at(s.cursor).first + s.cursor_packet == s.una;
}

// Half of it every while, unless it is seen again.
Nanos lull_of(const SendState& s, Nanos now) noexcept {
  return s.lull >> std::min<Nanos>((now - s.lull_at) / kLullHalves, 63);
}

// How long nothing may be heard.
Nanos patience_of(const SendState& s, Nanos now) noexcept {
  const Nanos least = std::max(kLeastProbe, lull_of(s, now) * 3 / 2);
  return std::clamp(s.srtt == 0 ? kFirstProbe : s.srtt + 4 * s.rttvar, least, kMostProbe);  // RFC 6298
}

// The earlier of the next probe and the next counted expiry.
void start_timer(Qp& qp) noexcept {
  SendState& s = qp.send;
  const Nanos now = qp.domain.now();
  const Nanos patience = std::max(patience_of(s, now), now < s.grace_until ? s.grace : 0);
  const Nanos probe = patience << s.backoff;
  s.deadline = now + std::min(probe, kMostProbe);
  if (const Nanos timeout = ack_timeout(qp); timeout != 0) {
    s.deadline = std::min(s.deadline, std::max(expiry_of(s, timeout), now + 1));
  }
  s.peer_heard = qp.peer_window->acknowledged();
  s.reads_heard = qp.reads->acknowledged();
  qp.domain.wake(qp, s.deadline);
}

// Requests and answers go the same way there and back, and each kind has a window of its own.
void follow(Qp& qp, Nanos round_trip) noexcept {
  DelayTarget& delay = qp.peer_window->delay;
  (qp.send.timed_answer ? qp.reads : qp.peer_window)->follow(delay, delay.on_round_trip(round_trip));
}

// A timeout's share of a window that others use too. Where they were acknowledged since, packets were lost, or it is
// this queue pair's peer alone that is gone. Of those in a row only the first had anything there.
void shrink(Window& window, std::uint64_t heard) noexcept {
  window.acknowledged() == heard ? window.on_timeout() : window.on_loss();
}

}  // namespace

void progressed(Qp& qp) noexcept {
  SendState& s = qp.send;
  const Nanos now = qp.domain.now();
  // What ended before any probe was none of a loss. It is a lull if such a one is looked for, or as those that were
  // seen.
  if (const Nanos silence = now - s.progress_at, seen = lull_of(s, now);
      !s.probing && 2 * silence >= patience_of(s, now) && (s.progress_at < s.grace_until || seen != 0)) {
    s.lull = std::min(std::max(silence, seen), kMostLull);
    s.lull_at = now;
  }
  s.progress_at = now;
  requester::on_acknowledged(s);
  if (s.idle_since != 0) s.idle_since = s.progress_at;
  s.retries = s.rnr_retries = 0;
  s.probing = s.implied_nak = s.repair_waits = false;
  s.rnr_wait = false;  // a copy of the refused packet was taken after all
  if (s.timing && s.timed_psn.before(s.una)) {
    const Nanos sample = s.progress_at - s.timed_at;
    const Nanos difference = sample > s.srtt ? sample - s.srtt : s.srtt - sample;
    s.rttvar = s.srtt == 0 ? sample / 2 : s.rttvar - s.rttvar / 4 + difference / 4;
    s.srtt = s.srtt == 0 ? sample : s.srtt - s.srtt / 8 + sample / 8;
    s.timing = false;
    if (qp.sender != nullptr) follow(qp, sample);
  }
  if (s.srtt != 0) s.backoff = 0;  // else a peer that is far away would be asked everything twice, and nothing be timed
  if (outstanding(s)) {
    start_timer(qp);
  } else {
    s.deadline = 0;
  }
  if (qp.has_work()) qp.domain.make_ready(qp);
}

// An acknowledgement may have been lost, so that it proves nothing yet: the next silence is waited for longer.
void heard(Qp& qp, bool in_vain) noexcept {
  SendState& s = qp.send;
  if (s.asked_since == 0) return;
  const Nanos now = qp.domain.now();
  if (s.silence == 0) s.silence = now - s.asked_since;
  if (!in_vain) return;
  s.grace = std::min(s.silence, 4 * patience_of(s, now)) * 3 / 2;
  s.grace_until = now + kGraceTimes * s.grace;
  s.asked_since = 0;
}

void reported(Qp& qp) noexcept {
  qp.send.timing = false;  // what it was to time waits for what is missing
  start_timer(qp);
}

void charge_probes(Qp& qp) noexcept {
  SendState& s = qp.send;
  if (s.probe_bytes > 0) qp.peer_window->force(s.probe_bytes);
  if (s.probe_reads > 0) qp.reads->force(s.probe_reads);
  s.in_flight += std::exchange(s.probe_bytes, 0);
  s.reads_in_flight += std::exchange(s.probe_reads, 0);
}

void rewind(Qp& qp) noexcept {
  SendState& s = qp.send;
  s.asked_since = s.silence = 0;
  qp.release_windows();
  s.cursor = qp.sq.head();
  s.cursor_packet = 0;
  if (s.cursor != s.started) s.cursor_packet = static_cast<std::uint32_t>(s.una.since(qp.sq.at(s.cursor).first));
  s.reads_outstanding = 0;
  s.probe_bytes = s.probe_reads = 0;
  s.local_error = IBV_WC_SUCCESS;  // found again when its turn comes
  s.timing = false;
  s.timed_out = false;
  s.unacknowledged_run = 0;
  s.repeats.clear();
  s.idle_since = qp.domain.now();
  qp.domain.counters.completer_retry_err.add();
  qp.domain.make_ready(qp);
}

// What one round trip brings is of one flight: reports that reordered packets, or somebody else's, make of it must not
// each send another.
bool may_repair(Qp& qp) noexcept {
  SendState& s = qp.send;
  if (s.rnr_wait) return false;  // it has gone back, and the peer has said when it wants more
  const Nanos now = qp.domain.now();
  const Nanos earliest = s.repaired_at + s.srtt;
  if (s.repaired_at == 0 || now >= earliest) {
    s.repaired_at = now;
    return true;
  }
  s.repair_waits = true;
  s.repair_una = s.una;
  if (s.deadline == 0 || earliest < s.deadline) {
    s.deadline = earliest;
    qp.domain.wake(qp, earliest);
  }
  return false;
}

void on_sent(Qp& qp) noexcept {
  SendState& s = qp.send;
  const Nanos waited = s.idle_since == 0 ? 0 : qp.domain.now() - s.idle_since;
  s.idle_since = 0;
  if (s.deadline != 0 && waited == 0) return;
  s.progress_at = s.deadline == 0 ? qp.domain.now() : s.progress_at + waited;
  start_timer(qp);
}

void time_round_trip(Qp& qp, Psn psn, bool reads) noexcept {
  SendState& s = qp.send;
  // Of what is sent again it would not be known which copy is answered (Karn).
  if (s.timing || psn.before(s.sent_end)) return;
  s.timing = true;
  s.timed_psn = psn;
  s.timed_at = qp.domain.now();
  s.timed_answer = reads;
}

void on_timer(Qp& qp) noexcept {
  SendState& s = qp.send;
  const Nanos now = qp.domain.now();
  s.deadline = 0;
  if (!qp.requests()) return;
  if (s.rnr_wait) {
    s.rnr_wait = false;
    s.progress_at = now;
    return qp.domain.make_ready(qp);
  }
  if (!outstanding(s)) return;
  if (waits_to_resend(qp)) {
    // Others fill the window: nothing of ours is on its way, so its absence proves nothing.
    s.progress_at = s.idle_since = now;
    qp.domain.make_ready(qp);
    return start_timer(qp);
  }
  const Nanos timeout = ack_timeout(qp);
  const bool expired = timeout != 0 && now >= expiry_of(s, timeout);
  if (std::exchange(s.repair_waits, false) && !expired) {
    if (s.una == s.repair_una) {
      s.repaired_at = now;
      rewind(qp);
    }
    return start_timer(qp);
  }
  if (expired) {
    if (s.retries >= qp.attr.retry_cnt) {
      qp.domain.counters.retry_exceeded_err.add();
      return completer::fail(qp, IBV_WC_RETRY_EXC_ERR);
    }
    ++s.retries;
    s.retried_at = now;
  }
  if (s.in_flight > 0) shrink(*qp.peer_window, s.peer_heard);
  if (s.reads_in_flight > 0) shrink(*qp.reads, s.reads_heard);
  s.backoff = std::min(s.backoff + 1, kMostBackoff);
  s.probing = true;
  s.implied_nak = false;
  qp.waiting.unlink();  // a probe needs no room
  rewind(qp);
  s.asked_since = s.progress_at;
  s.timed_out = true;
  start_timer(qp);
}

}  // namespace fairlead::soft::retransmission
