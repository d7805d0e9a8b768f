#include "verbs/soft/rc/congestion.h"

#include <cstring>

#include "verbs/soft/qp/qp_context.h"

namespace fairlead::soft {
namespace {

constexpr std::size_t kFrameBytes = 46;  // Ethernet with its checksum, IPv4 and UDP
constexpr Nanos kFullPause = 50 * kMicrosecond;

}  // namespace

void on_congestion_mark(Qp& qp) noexcept {
  qp.domain.counters.np_ecn_marked_roce_packets.add();
  if (!qp.congestion->notification.on_mark(qp.congestion->config, qp.domain.now())) return;
  // IBTA annex A17.9.3: BECN set, PSN 0, 16 bytes of zeros.
  constexpr std::size_t kHeaderBytes = Bth::kBytes + kCnpReservedBytes;
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(Opcode::kCongestionNotification);
  bth.becn = true;
  bth.dest_qpn = qp.attr.dest_qp_num;
  TxBatch& batch = qp.domain.batch(*qp.port, 0);
  std::byte* header = batch.begin(qp.route, kHeaderBytes, 0);
  std::memset(header, 0, kHeaderBytes);
  bth.encode(header);
  batch.finish(0);
  qp.domain.counters.np_cnp_sent.add();
}

void on_congestion_notification(Qp& qp) noexcept {
  if (!qp.congestion) return qp.domain.counters.rp_cnp_ignored.add();
  qp.domain.counters.rp_cnp_handled.add();
  qp.congestion->reaction.on_notification(qp.domain.now());
}

bool may_send_now(Qp& qp) noexcept {
  if (!qp.congestion || qp.congestion->reaction.may_send(qp.domain.now())) return true;
  qp.paced_until = qp.congestion->reaction.next_send();
  qp.domain.wake(qp, qp.paced_until);
  return false;
}

bool port_has_room(Qp& qp) noexcept {
  if (!qp.port->batch.take_full()) return true;
  qp.paced_until = qp.domain.now() + kFullPause;
  qp.domain.wake(qp, qp.paced_until);
  return false;
}

void count_sent(Qp& qp, std::size_t bytes) noexcept {
  if (qp.congestion) qp.congestion->reaction.on_sent(bytes + kFrameBytes, qp.domain.now());
}

void count_joined(Qp& qp, std::size_t bytes) noexcept {
  if (qp.congestion) qp.congestion->reaction.on_sent(bytes, qp.domain.now());
}

}  // namespace fairlead::soft
