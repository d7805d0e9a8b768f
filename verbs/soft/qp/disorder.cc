#include "verbs/soft/qp/disorder.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fairlead::soft {
namespace {

constexpr std::uint64_t kLaterPackets = 3;
constexpr Nanos kLaterTime = 100 * kMicrosecond;
constexpr Nanos kMostTolerance = 10 * kMillisecond;
constexpr Nanos kMostRepairTime = 1 * kSecond;
constexpr unsigned kMostReports = 8;  // of a gap; then it is the requester's timer that remains

}  // namespace

Disorder::Fate Disorder::keep(PacketStore& store, Psn expected, const Packet& packet, std::uint32_t packets,
                              Nanos now) noexcept {
  const Psn psn = packet.bth.psn;
  // A peer may send what is here already, in a row and again and again: it costs a search for each row, not for each.
  if (!empty() && !psn.before(last_->end())) looked_ = last_;
  if (looked_ != nullptr && psn.before(looked_->end())) looked_ = nullptr;
  std::unique_ptr<EarlyPacket>* at = looked_ == nullptr ? &first_ : &looked_->next;
  for (; *at != nullptr && !psn.before((*at)->end()); at = &(*at)->next) looked_ = at->get();
  const EarlyPacket* const behind = at->get();
  const Psn before = empty() ? expected : last_->end();
  if (behind != nullptr && behind->psn.before(psn + packets)) {
    on_again(psn);
    return Fate::kThereAlready;
  }
  const std::size_t head = packet.info->header_bytes;
  const std::size_t rest = packet.payload.size() + packet.bth.pad;
  if (packet.source != nullptr) return Fate::kNoRoom;  // its payload is had in its turn, or comes again
  if (size_ == kMostKept || head + rest + kIcrcBytes > sizeof(EarlyPacket::bytes)) return Fate::kNoRoom;
  std::unique_ptr<EarlyPacket> kept = store.take();
  if (kept == nullptr) return Fate::kNoRoom;
  // The header as it was checked; its ICRC was, too, and is not looked at again.
  packet.bth.encode(kept->bytes.data());
  std::memcpy(kept->bytes.data() + Bth::kBytes, packet.head.data() + Bth::kBytes, head - Bth::kBytes);
  std::memcpy(kept->bytes.data() + head, packet.payload.data(), packet.payload.size());
  std::memset(kept->bytes.data() + head + packet.payload.size(), 0, packet.bth.pad + kIcrcBytes);
  kept->size = head + rest + kIcrcBytes;
  kept->psn = psn;
  kept->packets = packets;
  arrivals_ += packet.joined ? 0 : 1;
  if (behind != nullptr) {  // in a gap, the rest of which is as old
    filled(*behind, psn, now);
    kept->gap_since = behind->gap_since;
    kept->reported_at = behind->reported_at;
    kept->reports = behind->reports;
    kept->arrival = behind->arrival;
  } else {
    kept->gap_since = now;
    kept->reported_at = 0;
    kept->reports = 0;
    kept->arrival = arrivals_;
    last_ = kept.get();
    unreported_ = unreported_ || psn != before;
  }
  kept->next = std::move(*at);
  *at = std::move(kept);
  ++size_;
  return Fate::kKept;
}

std::unique_ptr<EarlyPacket> Disorder::take_front() noexcept {
  std::unique_ptr<EarlyPacket> taken = std::move(first_);
  if (looked_ == taken.get()) looked_ = nullptr;
  first_ = std::move(taken->next);
  if (first_ == nullptr) last_ = nullptr;
  --size_;
  return taken;
}

void Disorder::on_expected(Psn psn, Nanos now) noexcept {
  if (!empty() && psn.before(first_->psn)) filled(*first_, psn, now);
}

// A packet of the gap before `behind` has come.
void Disorder::filled(const EarlyPacket& behind, Psn psn, Nanos now) noexcept {
  if (behind.reports == 0) return;
  if (behind.reports == 1) {
    const Nanos took = now - behind.reported_at;
    repair_time_ = std::max(took, repair_time_ - repair_time_ / 8 + took / 8);
  }
  if (doubted_) tolerance_ -= tolerance_ / 4;  // the one before was lost indeed
  doubted_ = true;
  doubted_psn_ = psn;
  doubted_reports_ = behind.reports;
  lateness_ = now - behind.gap_since;
}

void Disorder::on_again(Psn psn) noexcept {
  if (!doubted_ || psn != doubted_psn_) return;
  doubted_ = false;
  if (doubted_reports_ > 1) {  // what it brings takes longer than that
    repair_time_ = std::min(2 * repair_time_, kMostRepairTime);
    return;
  }
  // In steps: it may have been a copy that the network made.
  tolerance_ = std::min({std::max(tolerance_, lateness_ * 5 / 4), 2 * tolerance_ + kLaterTime, kMostTolerance});
}

Nanos Disorder::due(const EarlyPacket& behind) const noexcept {
  if (behind.reports == 0) {
    return behind.gap_since + tolerance_ + (arrivals_ - behind.arrival >= kLaterPackets - 1 ? 0 : kLaterTime);
  }
  return repair_time_ == 0 || behind.reports == kMostReports ? 0 : behind.reported_at + 2 * repair_time_ + kLaterTime;
}

bool Disorder::is_due(EarlyPacket& behind, Nanos now) noexcept {
  Nanos at = due(behind);
  const bool reports = at != 0 && now >= at;
  if (reports) {
    behind.reported_at = now;
    ++behind.reports;
    at = due(behind);
  }
  if (at == 0) return reports;
  if (behind.reports == 0) unreported_ = true;
  deadline_ = deadline_ == 0 ? at : std::min(deadline_, at);
  return reports;
}

void Disorder::clear(PacketStore& store) noexcept {
  while (!empty()) store.give_back(take_front());
  unreported_ = doubted_ = false;
  deadline_ = 0;
}

}  // namespace fairlead::soft
