#include "verbs/soft/rc/bundle_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/guarded.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"
#include "verbs/soft/rc/bundling.h"
#include "verbs/soft/rc/congestion.h"
#include "verbs/soft/rc/message_packets.h"
#include "verbs/soft/rc/referring.h"
#include "verbs/soft/rc/responder.h"
#include "verbs/soft/rc/retransmission.h"
#include "verbs/soft/wire/bundle.h"

namespace fairlead::soft::requester {
namespace {

/// What follows may be sent for the first time, and nothing but room holds it back.
bool flows(Qp& qp) noexcept {
  const SendState& s = qp.send;
  return qp.current_state() == IBV_QPS_RTS && s.cursor == s.started && s.bundles == SendState::Bundles::kTaken &&
         !s.probing && s.reads_outstanding == 0 && !qp.held.linked() && !qp.has_priority() && !qp.domain.hurries() &&
         !referring::possible(qp, TxBatch::kCopyBytes) && may_send_now(qp);
}

bool is_plain(const SendWqe& wqe) noexcept { return is_small(wqe) && (wqe.inlined || wqe.segments <= 1); }

class Row {
 public:
  Row(Qp& qp, TxPacket& bundle) noexcept
      : qp_(qp),
        most_(kMostBundled - bundle.messages),
        size_(bundle.size - Bth::kBytes - kIcrcBytes),
        to_(bundle.icrc),
        room_(qp.peer_window->room()) {}

  /// The next of the queue becomes part of it. False: it has no room, or is not plain.
  bool add(std::uint32_t index) noexcept {
    SendWqe& wqe = qp_.sq.at(index);
    if (count_ == most_ || !is_plain(wqe)) return false;
    const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(message_opcode(wqe, true, true)));
    const std::size_t adds = bundled_bytes(info, wqe.length);
    const std::uint32_t charge = packet_charge(wqe.length, qp_.port->least_charge);
    if (size_ + bytes_ + adds > qp_.mtu || charge_ + charge > room_ || !qp_.port->batch.may_grow(bytes_ + adds))
      return false;
    if (!take_payload(index, wqe, bundled_payload(info, to_))) return false;

    put_bundled(wqe, info, to_);
    wqe.packets = 1;
    wqe.refers = false;
    wqe.charge = charge;
    wqe.first = qp_.send.next_new + count_;
    wqe.messages_before = qp_.send.messages + count_;
    to_ += adds;
    bytes_ += adds;
    charge_ += charge;
    ++count_;
    return true;
  }

  /// False: some of the memory is gone.
  [[nodiscard]] bool copy() const noexcept {
    if (copies_ == 0) return true;
    return attempt(reinterpret_cast<const void*>(begin_), end_ - begin_, [this] {  // NOLINT(performance-no-int-to-ptr)
      for (const Copy& each : std::span(payload_).first(copies_)) std::memcpy(each.to, each.from, each.length);
    });
  }

  [[nodiscard]] unsigned count() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t charge() const noexcept { return charge_; }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t length;
  };

  /// False: the key does not grant it, what it grants is no memory, or it lies too far from the others for one guard.
  bool take_payload(std::uint32_t index, const SendWqe& wqe, std::byte* to) noexcept {
    if (wqe.length == 0) return true;
    if (wqe.inlined) {
      std::memcpy(to, qp_.sq.inline_bytes(index), wqe.length);
      return true;
    }
    const ibv_sge& segment = qp_.sq.segments(index).front();
    const MrTable& regions = qp_.domain.regions;
    const std::byte* const from = regions.find(&qp_.pd_ref, segment.lkey, segment.addr, wqe.length, kLocalRead, 0);
    if (from == nullptr || regions.is_nothing(from)) return false;
    const auto begin = reinterpret_cast<std::uintptr_t>(from);
    const auto least = copies_ == 0 ? begin : std::min(begin_, begin);
    const auto end = copies_ == 0 ? begin + wqe.length : std::max(end_, begin + wqe.length);
    if (end - least > kMostGuarded) return false;
    begin_ = least;
    end_ = end;
    payload_[copies_++] = {to, from, wqe.length};
    return true;
  }

  Qp& qp_;
  const unsigned most_;     // messages
  const std::size_t size_;  // of the bundle as it is
  std::byte* to_;
  const std::size_t room_;  // of the window
  unsigned count_ = 0;
  std::size_t bytes_ = 0, charge_ = 0;
  std::array<Copy, kMostBundled> payload_;
  std::size_t copies_ = 0;
  std::uintptr_t begin_ = 0, end_ = 0;  // what they lie between
};

/// They are started, and sent.
void count(Qp& qp, const Row& row) noexcept {
  SendState& s = qp.send;
  const Psn first = s.next_new;
  s.next_new = first + row.count();
  s.messages = s.messages + row.count();
  s.started += row.count();
  s.cursor = s.started;
  qp.peer_window->force(row.charge());
  s.in_flight += row.charge();
  s.unacknowledged_run = 0;  // the bundle asks
  count_joined(qp, row.bytes());
  responder::on_own_message(qp);
  retransmission::time_round_trip(qp, first, false);
  s.sent_end = s.next_new;
  retransmission::on_sent(qp);
}

}  // namespace

unsigned join_row(Qp& qp, unsigned most) noexcept {
  if (qp.port->batch.empty() || !flows(qp)) return 0;
  // That there is one means that peer and port take them, and that the window is not empty. One that holds only the
  // message that begins it is none yet.
  TxPacket* const bundle = open_bundle(qp, qp.send.next_new);
  if (bundle == nullptr || bundle->messages < 2) return 0;
  Row row(qp, *bundle);
  for (std::uint32_t index = qp.send.cursor, tail = qp.sq.tail(); index != tail && row.count() < most; ++index) {
    if (!row.add(index)) break;
  }
  if (row.count() == 0) return 0;
  if (!row.copy()) {
    std::memset(bundle->icrc, 0, kIcrcBytes);
    return 0;
  }
  TxBatch& batch = qp.port->batch;
  batch.grow_last(row.bytes());
  static_cast<std::byte*>(batch.iovs(*bundle)[0].iov_base)[8] |= std::byte{0x80};
  bundle->messages = static_cast<std::uint8_t>(bundle->messages + row.count());
  count(qp, row);
  return row.count();
}

}  // namespace fairlead::soft::requester
