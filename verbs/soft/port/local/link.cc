#include "verbs/soft/port/local/link.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system/unix_packets.h"

namespace fairlead::soft::local {
namespace {

constexpr const char* kName = "fairlead-roce";
constexpr std::size_t kWakesAtOnce = 64;

}  // namespace

Link::Link(PrivateFd socket, const Party& party, SharedMapping memory, unsigned side, bool checks) noexcept
    : socket_(std::move(socket)),
      party_(party),
      memory_(std::move(memory)),
      wish_(&segment().sides[1 - side].wish),
      producer_(segment().sides[side].ring),
      consumer_(segment().sides[1 - side].ring),
      checks_(checks) {
  segment().sides[side].wish.store(checks ? Segment::kIcrc : Segment::kNoIcrc, std::memory_order_release);
}

Result<std::unique_ptr<Link>> Link::dial(const std::string& name, const Party& party, const Party& self, bool checks) {
  PrivateFd socket = local::dial(name);
  if (!socket) return {Code::kUnavailable, fmt::format("nobody is at {}", name)};
  const auto memory = make_shared_memory(kName, sizeof(Segment));
  if (!memory) return memory.error();
  auto mapping = SharedMapping::map(memory->get(), sizeof(Segment));
  if (!mapping) return mapping.error();
  std::unique_ptr<Link> link(new Link(std::move(socket), party, std::move(*mapping), 0, checks));
  link->sleep();  // who waits now did so before there was this link
  if (!send_packet(link->socket(), encode(self), memory->get())) {
    return {Code::kUnavailable, fmt::format("{} does not take a greeting", name)};
  }
  return link;
}

Result<std::unique_ptr<Link>> Link::accept(PrivateFd socket, const Party& party, const UniqueFd& memory, bool checks) {
  const auto bytes = size_of_shared_memory(memory.get(), F_SEAL_SHRINK);
  if (!bytes) return bytes.error();
  if (*bytes != sizeof(Segment)) {
    return {Code::kInvalidArgument, fmt::format("its memory has {} bytes instead of {}", *bytes, sizeof(Segment))};
  }
  auto mapping = SharedMapping::map(memory.get(), sizeof(Segment));
  if (!mapping) return mapping.error();
  return std::unique_ptr<Link>(new Link(std::move(socket), party, std::move(*mapping), 1, checks));
}

// The ICRC is left out where the other end needs none: nothing but the two processes touches the bytes.
std::uint8_t Link::prepare(const TxPacket& packet, const iovec* iovs) noexcept {
  if (wish_->load(std::memory_order_acquire) == Segment::kNoIcrc) return Slot::kUnchecked;
  store_icrc(packet.icrc, icrc_of(packet, iovs, 0).value_or(0));
  return 0;
}

bool Link::send(const TxPacket& packet, const iovec* iovs) noexcept {
  if (packet.size > Slot::kMostPacket) return false;
  const std::uint8_t flags = prepare(packet, iovs);
  if (!backlog_.empty()) send_backlog();
  if (!backlog_.empty() || !producer_.has_room()) return keep(packet, iovs, flags);
  if (!gather(packet, iovs, producer_.place())) return false;
  producer_.push(static_cast<std::uint16_t>(packet.size), *packet.route, flags);
  pushed_ = true;
  return true;
}

bool Link::keep(const TxPacket& packet, const iovec* iovs, std::uint8_t flags) noexcept {
  if (producer_.lied()) up_ = false;
  if (!up_ || backlog_.size() == kMostBacklog) return false;
  Waiting& kept = backlog_.emplace_back(Waiting{*packet.route, flags, std::vector<std::byte>(packet.size)});
  if (gather(packet, iovs, kept.bytes.data())) return true;
  backlog_.pop_back();
  return false;
}

void Link::send_backlog() noexcept {
  look_again_in_ = producer_.has_room() ? kLookAgain : std::min(2 * look_again_in_, kLookLatest);
  while (!backlog_.empty() && producer_.has_room()) {
    const Waiting& first = backlog_.front();
    std::memcpy(producer_.place(), first.bytes.data(), first.bytes.size());
    producer_.push(static_cast<std::uint16_t>(first.bytes.size()), first.route, first.flags);
    backlog_.pop_front();
    pushed_ = true;
  }
}

void Link::flush() noexcept {
  if (!backlog_.empty()) send_backlog();
  if (!std::exchange(pushed_, false) || !producer_.must_wake()) return;
  const std::byte wake{1};
  static_cast<void>(send_packet(socket_.get(), {&wake, 1}));  // a full socket is readable as it is
}

std::size_t Link::receive(std::span<RxPacket> packets) noexcept {
  std::size_t count = 0;
  // Bounded also where a peer fills in slots that hold no packet.
  for (std::uint32_t looks = 0; looks < kSlots && count < packets.size() && consumer_.ready(); ++looks) {
    RxPacket& packet = packets[count];
    packet = RxPacket{.bytes = {}, .source = party_.gid, .ipv4_id_known = true};
    if (!consumer_.take(packet)) continue;
    packet.unchecked = packet.unchecked && !checks_;
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
    if (!got || *got == 0) return up_ = false;
  }
  return true;
}

}  // namespace fairlead::soft::local
