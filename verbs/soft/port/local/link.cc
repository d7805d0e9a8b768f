#include "verbs/soft/port/local/link.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system/own_user.h"
#include "base/system/random64.h"
#include "base/system/unix_packets.h"
#include "fairlead/log.h"
#include "verbs/soft/memory/scatter.h"

namespace fairlead::soft::local {
namespace {

constexpr const char* kName = "fairlead-roce";
constexpr std::size_t kWakesAtOnce = 64;
constexpr Nanos kNoReferences = 1 * kSecond;  // after a copy that failed

/// The bytes of the slot that it takes.
std::size_t size_in_slot(const TxPacket& packet, const iovec* iovs) noexcept {
  return packet.refers ? sizeof(Reference) + packet.size - iovs[1].iov_len : packet.size;
}

Standing standing_of(const TxPacket& packet, const iovec* iovs) noexcept {
  if (!packet.refers) return {};
  return {packet.route,
          {reinterpret_cast<std::uintptr_t>(iovs[1].iov_base), static_cast<std::uint32_t>(iovs[1].iov_len), 0}};
}

/// False when payload is gone.
bool put(const TxPacket& packet, const iovec* iovs, std::byte* to) noexcept {
  if (!packet.refers) return gather(packet, iovs, to);
  const Standing standing = standing_of(packet, iovs);
  std::memcpy(to, &standing.reference, sizeof(Reference));
  to += sizeof(Reference);
  for (const iovec& own : {iovs[0], iovs[2]})
    to = std::copy_n(static_cast<const std::byte*>(own.iov_base), own.iov_len, to);
  return true;
}

}  // namespace

Link::Link(PrivateFd socket, const Party& party, SharedMapping memory, unsigned side, const LinkTerms& terms) noexcept
    : socket_(std::move(socket)),
      party_(party),
      memory_(std::move(memory)),
      side_(side),
      wish_(&other().wish),
      ways_{RingPair(own().ring, other().ring), RingPair(own().urgent, other().urgent)},
      terms_(terms),
      word_(random64()) {
  for (Fetch& each : fetches_) each.link = this;
  own().witness = {reinterpret_cast<std::uintptr_t>(&word_), word_};
  own().wish.store(terms.checks ? Segment::kIcrc : Segment::kNoIcrc, std::memory_order_release);
}

Result<std::unique_ptr<Link>> Link::dial(const std::string& name, const Party& party, const Party& self,
                                         const LinkTerms& terms) {
  PrivateFd socket = local::dial(name);
  if (!socket) return {Code::kUnavailable, fmt::format("nobody is at {}", name)};
  const auto memory = make_shared_memory(kName, sizeof(Segment));
  if (!memory) return memory.error();
  auto mapping = SharedMapping::map(memory->get(), sizeof(Segment));
  if (!mapping) return mapping.error();
  std::unique_ptr<Link> link(new Link(std::move(socket), party, std::move(*mapping), 0, terms));
  link->sleep();  // who waits now did so before there was this link
  if (!send_packet(link->socket(), encode(self), memory->get())) {
    return {Code::kUnavailable, fmt::format("{} does not take a greeting", name)};
  }
  return link;
}

Result<std::unique_ptr<Link>> Link::accept(PrivateFd socket, const Party& party, const UniqueFd& memory,
                                           const LinkTerms& terms) {
  const auto bytes = size_of_shared_memory(memory.get(), F_SEAL_SHRINK);
  if (!bytes) return bytes.error();
  if (*bytes != sizeof(Segment)) {
    return {Code::kInvalidArgument, fmt::format("its memory has {} bytes instead of {}", *bytes, sizeof(Segment))};
  }
  auto mapping = SharedMapping::map(memory.get(), sizeof(Segment));
  if (!mapping) return mapping.error();
  return std::unique_ptr<Link>(new Link(std::move(socket), party, std::move(*mapping), 1, terms));
}

void Link::give_up() noexcept {
  up_ = false;
  withdraw([](const Standing&) { return true; });  // what is sent again goes another way
}

void Link::look_at_peer(Nanos now) noexcept {
  if (std::exchange(failed_, false)) next_meeting_ = now + kNoReferences;
  if (!terms_.refers || !up_ || now < next_meeting_) return;
  if (wish_->load(std::memory_order_acquire) != Segment::kNoIcrc) return;
  next_meeting_ = ~Nanos{0};
  const bool met = peer_.meet(peer_of(socket_.get()).pid, other().witness);
  own().fetches.store(met ? 1 : 0, std::memory_order_release);
  if (!met && terms_.counters != nullptr) terms_.counters->references_denied.add();
  log(LogLevel::kDebug,
      fmt::format("softroce: payload from {} {}", to_string(party_.gid),
                  met ? "is copied from where it lies" : "comes in packets: the system does not let it be copied"));
}

// What was withdrawn before the copy was at its end is worth nothing, whatever there was; what was before, nobody
// reads.
bool Link::fetch(const Consumer::Referred& referred, std::span<const iovec> to) noexcept {
  if (!referred.slot->still_stands()) return false;
  std::byte last{};
  const bool copied = peer_.copy(referred.reference, to, last);
  if (!referred.slot->take_reference()) return false;
  Counters* const counters = terms_.counters;
  if (!copied) {
    failed_ = true;
    own().fetches.store(0, std::memory_order_release);
    if (counters != nullptr) counters->references_failed.add();
    return false;
  }
  if (counters != nullptr) {
    counters->rcvd_by_reference.add();
    counters->rcvd_reference_bytes.add(referred.reference.bytes);
  }
  return place(static_cast<std::byte*>(to.back().iov_base) + to.back().iov_len - 1, &last, 1);
}

// The ICRC is left out where the other end needs none: nothing but the two processes touches the bytes.
std::uint8_t Link::prepare(const TxPacket& packet, const iovec* iovs) noexcept {
  if (wish_->load(std::memory_order_acquire) == Segment::kNoIcrc) return Slot::kUnchecked;
  store_icrc(packet.icrc, icrc_of(packet, iovs, 0).value_or(0));
  return 0;
}

bool Link::send(const TxPacket& packet, const iovec* iovs) noexcept {
  const std::size_t size = size_in_slot(packet, iovs);
  if (size > Slot::kMostPacket || (packet.refers && !refers())) return false;
  const std::uint8_t flags = packet.refers ? Slot::kUnchecked | Slot::kRefers : prepare(packet, iovs);
  RingPair& way = ways_[packet.route->urgent ? kUrgent : kOthers];
  if (!way.backlog.empty()) send_backlog(way);
  if (!way.backlog.empty() || !way.producer.has_room()) return keep(way, packet, iovs, flags);
  if (!put(packet, iovs, way.producer.place())) return false;
  way.producer.push(static_cast<std::uint16_t>(size), *packet.route, flags, standing_of(packet, iovs));
  pushed_ = true;
  return true;
}

bool Link::keep(RingPair& way, const TxPacket& packet, const iovec* iovs, std::uint8_t flags) noexcept {
  if (way.producer.lied()) give_up();
  if (!up_ || way.backlog.size() == kMostBacklog) return false;
  Waiting& kept = way.backlog.emplace_back(
      Waiting{*packet.route, flags, standing_of(packet, iovs), std::vector<std::byte>(size_in_slot(packet, iovs))});
  if (put(packet, iovs, kept.bytes.data())) return true;
  way.backlog.pop_back();
  return false;
}

void Link::send_backlog(RingPair& way) noexcept {
  look_again_in_ = way.producer.has_room() ? kLookAgain : std::min(2 * look_again_in_, kLookLatest);
  while (!way.backlog.empty() && way.producer.has_room()) {
    const Waiting& first = way.backlog.front();
    std::memcpy(way.producer.place(), first.bytes.data(), first.bytes.size());
    way.producer.push(static_cast<std::uint16_t>(first.bytes.size()), first.route, first.flags, first.refers);
    way.backlog.pop_front();
    pushed_ = true;
  }
}

void Link::flush() noexcept {
  for (RingPair& way : ways_) {
    if (!way.backlog.empty()) send_backlog(way);
  }
  owes_wake_ = false;
  if (!std::exchange(pushed_, false) || !ways_[kOthers].producer.must_wake()) return;
  const std::byte wake{1};
  if (send_packet(socket_.get(), {&wake, 1}) || !is_not_woken(errno)) return;
  ways_[kOthers].producer.owe_wake();
  pushed_ = owes_wake_ = true;
}

std::size_t Link::receive(std::span<RxPacket> packets) noexcept {
  const std::size_t urgent = receive_by(ways_[kUrgent], packets);
  return urgent + receive_by(ways_[kOthers], packets.subspan(urgent));
}

std::size_t Link::receive_by(RingPair& way, std::span<RxPacket> packets) noexcept {
  std::size_t count = 0, fetched = 0;
  // Bounded also where a peer fills in slots that hold no packet.
  for (std::uint32_t looks = 0; looks < kSlots && count < packets.size() && way.consumer.ready(); ++looks) {
    if (fetches_used_ == kMostFetches || fetched >= kFetchedAtOnce) break;
    RxPacket& packet = packets[count];
    packet = RxPacket{.bytes = {}, .source = party_.gid, .ipv4_id_known = true};
    Consumer::Referred referred;
    if (!way.consumer.take(packet, referred)) continue;
    packet.unchecked = packet.unchecked && !terms_.checks;
    if (referred.slot != nullptr) {
      if (own().fetches.load(std::memory_order_relaxed) == 0) continue;  // it was told so
      Fetch& fetch = fetches_[fetches_used_++];
      fetch.referred = referred;
      packet.payload_source = &fetch;
      packet.payload_bytes = referred.reference.bytes;
      fetched += packet.payload_bytes;
    }
    ++count;
  }
  return count;
}

bool Link::listen() noexcept {
  for (std::size_t i = 0; i < kWakesAtOnce; ++i) {
    std::array<std::byte, 8> wake;
    UniqueFd unwanted;
    const auto got = receive_packet(socket_.get(), wake, unwanted);
    if (!got && errno == EAGAIN) return true;
    if (!got || *got == 0) {
      give_up();
      return false;
    }
  }
  return true;
}

}  // namespace fairlead::soft::local
