#include "verbs/soft/port/memif/memif_device.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

namespace fairlead::soft::memif {
namespace {

constexpr std::size_t kMostBacklog = 512;
// How soon whoever sleeps looks for room in a full ring: ever later, as the peer may have been stopped.
constexpr Nanos kLookForRoom = 100 * kMicrosecond;
constexpr Nanos kLookLatest = 10 * kMillisecond;
constexpr const char* kLinkNeeds = "the other end: the other role, the same socket and the same id";
// What the peer wrote before it saw that it is to wake us, is here by then.
constexpr Nanos kLookOnce = 200 * kMicrosecond;
constexpr Nanos kAtOnce = 1;

Mac random_mac() {
  Mac mac;
  while (::getrandom(mac.bytes.data(), mac.bytes.size(), 0) != static_cast<ssize_t>(mac.bytes.size())) {
  }
  mac.bytes[0] = static_cast<std::uint8_t>((mac.bytes[0] & 0xfc) | 2);  // locally administered, of one station
  return mac;
}

}  // namespace

Result<std::unique_ptr<MemifDevice>> MemifDevice::open(const LinkSettings& settings) {
  auto link = Link::open(settings);
  if (!link) return link.error();
  return std::unique_ptr<MemifDevice>(new MemifDevice(settings.wire, std::move(*link)));
}

MemifDevice::MemifDevice(const Settings& settings, std::unique_ptr<Link> link)
    : link_(std::move(link)), frame_bytes_(settings.buffer_bytes) {
  const std::size_t slots = std::size_t{1} << settings.log2_slots;
  info_.mac = random_mac();
  info_.mtu = static_cast<std::uint32_t>(frame_bytes_ - EthernetHeader::kBytes);
  info_.receive_bytes = slots * info_.mtu / 2;
  // With fewer on their way a sender runs dry while the receiver works on a burst. A full ring makes frames wait.
  info_.peer_slots = slots * 3 / 4;
  info_.link_is_peer = true;
  info_.link_needs = kLinkNeeds;
}

Wire* MemifDevice::wire() const noexcept {
  Wire* const wire = link_->wire();
  return wire != nullptr && wire->regions.are_mine() ? wire : nullptr;
}

Wire* MemifDevice::current() noexcept {
  if (generation_ != link_->generation()) {
    generation_ = link_->generation();
    wakes_wanted_ = false;
    if (had_peer_) {
      for (auto& each : backlogs_) each.clear();  // it was for that one
    }
  }
  had_peer_ = link_->was_up();
  return wire();
}

std::size_t MemifDevice::receive(std::span<std::span<const std::byte>> frames) noexcept {
  const bool woken = slept_ && waiter_ == std::this_thread::get_id();
  if (woken) {
    slept_ = false;
    link_->hush();
  }
  if (woken || link_->talking()) link_->tend();
  Wire* const up = current();
  if (up == nullptr) return 0;
  if (keeps_some()) flush_backlogs(*up);
  std::size_t count = 0;
  for (int ways = up->urgent ? 2 : 1; ways > 0 && count == 0; --ways) {
    look_at_ = look_at_ == kOthers && up->urgent ? kUrgent : kOthers;
    count = way_of(*up, look_at_).receiver.take(frames);
  }
  return received(*up, count);
}

std::size_t MemifDevice::receive_urgent(std::span<std::span<const std::byte>> frames) noexcept {
  Wire* const up = current();
  return up != nullptr && up->urgent ? received(*up, up->urgent->receiver.take(frames)) : 0;
}

std::size_t MemifDevice::received(Wire& wire, std::size_t count) noexcept {
  if (!trust(wire) || count == 0) return 0;
  next_look_ = kLookForRoom;  // the peer runs
  if (wakes_wanted_) {
    wakes_wanted_ = false;
    want_to_be_woken(wire, false);
    if (slept_) link_->ring_in(kAtOnce);  // another one waits, and is to ask again
  }
  return count;
}

void MemifDevice::want_to_be_woken(Wire& wire, bool wanted) noexcept {
  wire.receiver.want_to_be_woken(wanted);
  if (wire.urgent) wire.urgent->receiver.want_to_be_woken(wanted);
}

const char* MemifDevice::fault_of(const Wire& wire) noexcept {
  const auto of = [](const Way& way) {
    return way.receiver.fault() != nullptr ? way.receiver.fault() : way.sender.fault();
  };
  const char* const fault = of(wire);
  return fault == nullptr && wire.urgent ? of(*wire.urgent) : fault;
}

bool MemifDevice::trust(const Wire& wire) noexcept {
  const char* const fault = fault_of(wire);
  if (fault != nullptr) link_->fail(fault);
  return fault == nullptr;
}

bool MemifDevice::prepare_to_wait() noexcept {
  slept_ = true;
  waiter_ = std::this_thread::get_id();
  Wire* const up = current();
  if (up == nullptr) return true;
  if (!wakes_wanted_) {
    wakes_wanted_ = true;
    want_to_be_woken(*up, true);
    link_->ring_in(kLookOnce);
  } else if (keeps_some()) {
    link_->ring_in(next_look_);
    next_look_ = std::min(2 * next_look_, kLookLatest);
  }
  const bool more = up->receiver.has_more() || (up->urgent && up->urgent->receiver.has_more());
  return !more && trust(*up);
}

std::size_t MemifDevice::reserve(Kind kind, std::span<std::byte*> rooms) noexcept {
  reserved_count_ = std::min(rooms.size(), kBurst);
  Wire* const up = current();
  if (up != nullptr && keeps_some()) flush_backlogs(*up);
  // A peer with one way has all in one backlog, too, so that they stay in order.
  reserved_for_ = kind == kUrgent && (up == nullptr || up->urgent) ? kUrgent : kOthers;
  const bool at_once = up != nullptr && backlogs_[reserved_for_].empty();
  const std::size_t in_ring = at_once ? reserve_in_ring(way_of(*up, reserved_for_), rooms) : 0;
  in_ring_ = in_ring > 0;
  if (in_ring_) return reserved_count_ = in_ring;
  rooms_.resize(kBurst * frame_bytes_);
  for (std::size_t i = 0; i < reserved_count_; ++i) reserved_[i] = rooms[i] = &rooms_[i * frame_bytes_];
  return reserved_count_;
}

// As many as are free and large enough.
std::size_t MemifDevice::reserve_in_ring(Way& way, std::span<std::byte*> rooms) noexcept {
  const std::size_t free = way.sender.free(reserved_count_);
  for (std::size_t i = 0; i < free; ++i) {
    std::uint32_t bytes = 0;
    std::byte* const buffer = way.sender.buffer(i, bytes);
    if (buffer == nullptr || bytes < frame_bytes_) return i;
    reserved_[i] = rooms[i] = buffer;
  }
  return free;
}

std::size_t MemifDevice::send(std::span<const std::uint32_t> sizes) noexcept {
  sizes = sizes.first(std::min(sizes.size(), reserved_count_));
  Wire* const up = current();
  reserved_count_ = 0;
  if (up == nullptr && (link_->was_up() || in_ring_))
    return 0;  // what is sent before the first peer comes waits for it
  Way* const way = up != nullptr ? &way_of(*up, reserved_for_) : nullptr;
  if (in_ring_) return send_in_ring(*way, sizes);
  const auto& backlog = backlogs_[reserved_for_];
  std::size_t slots = 0;
  std::size_t taken = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    const std::span<const std::byte> frame(reserved_[i], sizes[i]);
    const std::size_t used = way != nullptr && backlog.empty() ? way->sender.copy(slots, frame) : 0;
    slots += used;
    if (used == 0) {
      if (backlog.size() == kMostBacklog) break;
      keep(frame);
    }
    ++taken;
  }
  if (slots > 0) give(*way, slots);
  const bool lied = up != nullptr && fault_of(*up) != nullptr;
  return lied ? 0 : taken;  // what was received last is still in use: receive() lets the peer go
}

void MemifDevice::keep(std::span<const std::byte> frame) noexcept {
  if (!keeps_some()) {
    next_look_ = kLookForRoom;
    if (slept_) link_->ring_in(kLookOnce);  // not before the look that may be due
  }
  backlogs_[reserved_for_].emplace_back(frame.begin(), frame.end());
}

// A room that was not used is a gap; the frames behind it move up. A peer that lies may have given one buffer twice.
std::size_t MemifDevice::send_in_ring(Way& way, std::span<const std::uint32_t> sizes) noexcept {
  std::size_t used = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    if (used != i) std::memmove(reserved_[used], reserved_[i], sizes[i]);
    way.sender.fill(used++, sizes[i], false);
  }
  if (used > 0) give(way, used);
  return used;
}

void MemifDevice::flush_backlogs(Wire& wire) noexcept {
  for (const Kind kind : {kUrgent, kOthers}) flush(way_of(wire, kind), backlogs_[kind]);
}

void MemifDevice::flush(Way& way, std::deque<std::vector<std::byte>>& backlog) noexcept {
  std::size_t slots = 0;
  while (!backlog.empty()) {
    const std::size_t used = way.sender.copy(slots, backlog.front());
    if (used == 0) break;
    slots += used;
    backlog.pop_front();
  }
  if (slots == 0) return;
  next_look_ = kLookForRoom;
  give(way, slots);
}

void MemifDevice::give(Way& way, std::size_t slots) noexcept {
  if (way.sender.publish(slots)) link_->wake_peer(way);
}

}  // namespace fairlead::soft::memif
