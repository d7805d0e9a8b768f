#include "verbs/soft/port/frame/frame_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "fairlead/log.h"
#include "verbs/soft/observe/counters.h"
#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/wire/icrc.h"

namespace fairlead::soft {
namespace {

constexpr int kOwnStation = -2;  // Route::socket of what comes back inside
constexpr std::size_t kMostWaiting = 256;
constexpr std::size_t kMostLooped = 256;
constexpr std::size_t kMostControl = 256;         // of a question or an answer, with all options that there are
constexpr std::uint32_t kSlotCharge = 4096 + 64;  // of a ring, each packet takes a slot: as much as the largest
constexpr Nanos kPatience = 200 * kMillisecond;   // with a link that is down, before a word is said
constexpr Nanos kTendEvery = 1 * kMillisecond;
// A device that cannot wake anybody is looked at all the time while frames come, then ever less often.
constexpr Nanos kStayAwake = 100 * kMicrosecond;
constexpr Nanos kLongestNap = 1 * kMillisecond;
// A peer on shared memory that does not say that it has looked: not of our kind, or its process does not run.
constexpr std::chrono::seconds kLongestParting{1};
// Of which all but the last may be to questions that were asked before, while the peer did not look.
constexpr unsigned kPartingAnswers = 8;
constexpr std::chrono::milliseconds kBlindParting{5};  // from a station that is known by its address, and not asked
constexpr std::chrono::microseconds kPartingPause{50};

bool same_network(const Gid& a, const Gid& b, unsigned prefix) noexcept {
  const std::size_t first = a.is_ipv4() ? 12 : 0;
  for (unsigned bit = 0; bit < prefix; ++bit) {
    const std::size_t byte = first + bit / 8;
    if (((a.bytes[byte] ^ b.bytes[byte]) >> (7 - bit % 8) & 1) != 0) return false;
  }
  return true;
}

}  // namespace

FramePort::FramePort(std::unique_ptr<FrameDevice> device, const FramePortConfig& config, Nanos now,
                     std::optional<Lane> lane)
    : device_(std::move(device)),
      info_(device_->info()),
      config_(config),
      lane_(std::move(lane)),
      down_since_(now),
      now_(now),
      received_at_(now) {
  if (config_.address.is_null()) config_.address = automatic_address(info_.mac);
  names_ = {info_.mac, config_.address, link_local_gid(info_.mac)};
}

FramePort::~FramePort() { part(); }

// Shared memory goes with its port, and what the peer has not taken out of it yet: the acknowledgement of what a
// program got that ends now. Frames stay in order, so whoever answers a question has taken what was sent before it.
void FramePort::part() noexcept {
  if (!info_.link_is_peer || sent_to_.is_null()) return;
  if (sent_unasked_) {
    if (device_->link_up()) std::this_thread::sleep_for(kBlindParting);
    return;
  }
  const auto waits = [this] {
    return std::ranges::any_of(waiting_, [this](const Waiting& each) { return each.station == sent_to_; });
  };
  const auto end = std::chrono::steady_clock::now() + kLongestParting;
  bool asked = false;
  bool asked_last = false;  // after everything else
  unsigned answers = 0;
  while (device_->link_up() && std::chrono::steady_clock::now() < end) {
    if (!asked) {
      asked_last = !waits();
      parting_answered_ = false;
      const ResolutionFrame question = ask(config_.address, info_.mac, sent_to_);
      asked = send_frame(std::span(question.bytes).first(question.size));
    }
    const std::size_t got = device_->receive(frames_);  // a device sends on what it could not at once
    for (const auto& frame : std::span(frames_).first(got)) take_control(frame);
    if (parting_answered_ && asked_last && ++answers == kPartingAnswers) return;
    if (parting_answered_) asked = false;
    if (got == 0) std::this_thread::sleep_for(kPartingPause);
  }
}

std::uint32_t FramePort::max_mtu() const noexcept { return largest_path_mtu(info_.mtu, !config_.address.is_ipv4()); }

std::uint32_t FramePort::max_v1_mtu() const noexcept {
  constexpr std::uint32_t kMore = kGrhBytes - kIpv4HeaderBytes - kUdpHeaderBytes;
  return largest_path_mtu(info_.mtu - std::min(info_.mtu, kMore));
}

std::size_t FramePort::peer_window() const noexcept {
  return info_.peer_slots != 0 ? info_.peer_slots * std::size_t{kSlotCharge} : PacketPort::peer_window();
}

std::uint32_t FramePort::least_charge() const noexcept {
  return info_.peer_slots != 0 ? kSlotCharge : PacketPort::least_charge();
}

const Gid& FramePort::next_hop(const Gid& destination) const noexcept {
  const bool near = config_.gateway.is_null() || same_network(config_.address, destination, config_.prefix);
  return near ? destination : config_.gateway;
}

Route FramePort::make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                            std::uint8_t hop_limit) {
  // Over IPv4 only RoCE v1 has link-local peers; what is answered to one, goes so.
  if (config_.address.is_ipv4() && station_of(destination)) {
    return *make_v1_route(names_.link_local, destination, 0, traffic_class, hop_limit);
  }
  Route route{config_.address, destination, static_cast<std::uint16_t>(0xc000 | (flow & 0x3fff)), traffic_class,
              hop_limit};
  route.socket = destination == config_.address ? kOwnStation : neighbours_.find_or_add(next_hop(destination), now_);
  route.apart = this;
  ask_neighbours();
  return route;
}

std::optional<Route> FramePort::make_v1_route(const Gid& source, const Gid& destination, std::uint32_t flow_label,
                                              std::uint8_t traffic_class, std::uint8_t hop_limit) {
  Route route{source, destination, 0, traffic_class, hop_limit};
  route.version = RoceVersion::kV1;
  route.flow_label = flow_label;
  if (destination == config_.address || destination == names_.link_local) {
    route.socket = kOwnStation;
  } else if (const auto station = station_of(destination)) {
    route.socket = neighbours_.find_or_add(destination, *station);
  } else if (destination.is_ipv4() == config_.address.is_ipv4()) {
    route.socket = neighbours_.find_or_add(destination, now_);  // there are no routers: not the gateway
    ask_neighbours();
  } else {
    return std::nullopt;
  }
  return route;
}

void FramePort::take_control(std::span<const std::byte> shown) noexcept {
  // A copy, as of headers; what is longer than any message is read as if it ended there.
  std::array<std::byte, kMostControl> copy;
  const auto frame = std::span<const std::byte>(copy).first(std::min(shown.size(), copy.size()));
  std::copy_n(shown.begin(), frame.size(), copy.begin());
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const auto message = parse_resolution(frame);
  if (!message || message->target.is_ipv4() != config_.address.is_ipv4()) return;
  if (message->kind == Resolution::Kind::kAnswer) {
    if (message->target == config_.address && message->target_mac != info_.mac && !std::exchange(warned_, true)) {
      log(LogLevel::kWarning,
          fmt::format("softroce: {} is also the address of {} on this link; give one of them another",
                      to_string(config_.address), to_string(message->target_mac)));
    }
    if (neighbours_.learn(message->target, message->target_mac, now_)) send_waiting();
    if (message->target == sent_to_) parting_answered_ = true;
    // A NIC sends what is not UDP to one queue, whichever lane asked.
    if (lane_ && !from_lanes_) lane_->tell_others(frame);
    return;
  }
  if (message->target != config_.address) return;
  if (neighbours_.learn_asker(message->sender, message->sender_mac, now_)) send_waiting();
  // Who gives no address for its question has it in the frame.
  const Mac asker =
      message->sender_mac.is_station() ? message->sender_mac : EthernetHeader::decode(frame.data()).source;
  const ResolutionFrame reply = answer(config_.address, info_.mac, message->sender, asker);
  send_frame(std::span(reply.bytes).first(reply.size));
}

// From the device and from other lanes in turn.
std::size_t FramePort::fetch_in_turn(std::span<std::span<const std::byte>> frames) noexcept {
  for (int source = 0; source < 2; ++source) {
    from_lanes_ = !from_lanes_;
    const std::size_t got = from_lanes_ ? lane_->take(frames) : device_->receive(frames);
    if (got > 0) return got;
  }
  return 0;
}

// To the lane whose packet it is. False if that is this one.
bool FramePort::hand_over(const RxPacket& packet, std::span<const std::byte> frame) noexcept {
  if (packet.bytes.size() < Bth::kBytes) return false;
  const std::uint32_t qpn = Bth::decode(packet.bytes.data()).dest_qpn;
  if (!lane_->is_others(qpn)) return false;
  const bool taken = lane_->hand_over(qpn, frame);
  if (counters_ != nullptr) (taken ? counters_->lane_handed_over : counters_->drop_lane_full).add();
  return true;
}

std::size_t FramePort::rx_burst(std::span<RxPacket> packets, Nanos now) noexcept {
  now_ = now;
  if (now >= tended_at_ + kTendEvery) keep_order(now);
  if (!looped_.empty()) {
    std::size_t count = 0;
    handed_out_.clear();
    while (count < packets.size() && !looped_.empty()) {
      handed_out_.push_back(std::move(looped_.front()));
      looped_.pop_front();
      const Bytes& frame = handed_out_.back();
      if (parse_roce_frame(frame, names_, packets[count]) && !(lane_ && hand_over(packets[count], frame))) ++count;
    }
    return count;
  }
  const auto frames = std::span(frames_).first(std::min(packets.size(), kBurst));
  return take_in(lane_ ? fetch_in_turn(frames) : device_->receive(frames), packets);
}

std::size_t FramePort::rx_urgent(std::span<RxPacket> packets, Nanos now) noexcept {
  now_ = now;
  return take_in(device_->receive_urgent(std::span(frames_).first(std::min(packets.size(), kBurst))), packets);
}

// Of so many frames.
std::size_t FramePort::take_in(std::size_t got, std::span<RxPacket> packets) noexcept {
  if (got == 0) return 0;
  received_at_ = now_;
  std::size_t count = 0;
  for (const auto& frame : std::span(frames_).first(got)) {
    if (parse_roce_frame(frame, names_, packets[count])) {
      if (!(lane_ && hand_over(packets[count], frame))) ++count;
    } else {
      take_control(frame);
    }
  }
  return count;
}

// The urgent ones first, where they have a way of their own.
void FramePort::tx_burst(TxBatch& batch) noexcept {
  static_assert(TxBatch::kMaxPackets <= UINT8_MAX);
  std::array<std::uint8_t, TxBatch::kMaxPackets> order;
  std::iota(order.begin(), order.end(), std::uint8_t{0});
  const auto all = std::span(order).first(batch.size());
  const auto others =
      device_->sets_apart()
          ? std::stable_partition(all.begin(), all.end(), [&](std::uint8_t i) { return batch.packet(i).route->urgent; })
          : all.begin();
  const auto urgent = static_cast<std::size_t>(others - all.begin());
  send(batch, all.first(urgent), true);
  send(batch, all.subspan(urgent), false);
  batch.clear();
  ask_neighbours();
}

void FramePort::send(TxBatch& batch, std::span<const std::uint8_t> which, bool urgent) noexcept {
  std::array<std::byte*, kBurst> rooms;
  std::array<std::uint32_t, kBurst> sizes;
  while (!which.empty()) {
    const auto wanted = std::span(rooms).first(std::min(kBurst, which.size()));
    const std::size_t got = urgent ? device_->reserve_urgent(wanted) : device_->reserve(wanted);
    if (got == 0) {
      refused_ += which.size();
      return;
    }
    std::size_t leaving = 0;
    for (std::size_t i = 0; i < got; ++i) {
      const TxPacket& packet = batch.packet(which[i]);
      const Route& route = *packet.route;
      const bool own = route.socket == kOwnStation;
      const Gid& station = route.version == RoceVersion::kV1 ? route.destination : next_hop(route.destination);
      const Mac* mac = own ? &info_.mac : neighbours_.lookup(route.socket, station, now_);
      const bool leaves = mac != nullptr && !own;
      if (!own) sent_to_ = station;
      if (!own) sent_unasked_ = route.version == RoceVersion::kV1 && station_of(station);
      sizes[i] = leaves && info_.attaches && packet.lent ? build_attached(batch, packet, rooms, i) : 0;
      if (sizes[i] == 0) sizes[i] = build(batch, packet, rooms[i]);
      if (sizes[i] == 0) {
        ++refused_;
        continue;
      }
      if (mac != nullptr) std::memcpy(rooms[i], mac->bytes.data(), Mac::kBytes);
      if (leaves) {
        ++leaving;
        continue;
      }
      const std::span<const std::byte> frame(rooms[i], sizes[i]);
      if (mac != nullptr && looped_.size() < kMostLooped) {
        looped_.emplace_back(frame.begin(), frame.end());
      } else if (mac == nullptr && waiting_.size() < kMostWaiting) {
        waiting_.push_back({route.socket, station, {frame.begin(), frame.end()}});
      } else {
        ++refused_;
      }
      sizes[i] = 0;
    }
    refused_ += leaving - device_->send(std::span(sizes).first(got));
    which = which.subspan(got);
  }
}

Nanos FramePort::next_event() const noexcept {
  if (!looped_.empty()) return now_;
  Nanos next = neighbours_.next_due();
  if (device_->wait_fd() < 0) {
    const Nanos quiet = now_ - received_at_;
    const Nanos look = quiet < kStayAwake ? now_ : now_ + std::min(quiet / 4, kLongestNap);
    next = next == 0 ? look : std::min(next, look);
  }
  return next;
}

void FramePort::keep_order(Nanos now) noexcept {
  tended_at_ = now;
  device_->tend();
  watch_link(now);
  ask_neighbours();
}

LinkState FramePort::link() noexcept {
  if (device_->link_up()) return LinkState::kUp;
  return info_.link_is_peer ? LinkState::kAwaited : LinkState::kDown;
}

void FramePort::watch_link(Nanos now) noexcept {
  const bool up = device_->link_up();
  if (up && !link_up_) {
    const ResolutionFrame here = announce(config_.address, info_.mac);
    send_frame(std::span(here.bytes).first(here.size));
    neighbours_.forget(now);
    if (std::exchange(missed_link_, false)) log(LogLevel::kInfo, fmt::format("softroce: {} has a link", config_.name));
  }
  if (!up && link_up_) down_since_ = now;
  if (!up && !missed_link_ && now >= down_since_ + kPatience) {
    missed_link_ = true;
    log(info_.link_is_peer ? LogLevel::kInfo : LogLevel::kWarning,
        fmt::format("softroce: {} has no link, so that nothing arrives and what is sent is lost; it takes {}",
                    config_.name, info_.link_needs));
  }
  link_up_ = up;
}

void FramePort::ask_neighbours() noexcept {
  while (const auto question = neighbours_.due(now_)) {
    const ResolutionFrame frame = ask(config_.address, info_.mac, question->address, question->known);
    send_frame(std::span(frame.bytes).first(frame.size));
    if (question->known == nullptr && question->given_up) {
      std::erase_if(waiting_, [&](const Waiting& each) { return each.station == question->address; });
    }
  }
}

void FramePort::send_waiting() noexcept {
  std::erase_if(waiting_, [this](Waiting& each) {
    const Mac* mac = neighbours_.lookup(each.neighbour, each.station, now_);
    if (mac == nullptr) return false;
    std::memcpy(each.frame.data(), mac->bytes.data(), Mac::kBytes);
    if (!send_frame(each.frame)) ++refused_;
    return true;
  });
}

bool FramePort::send_frame(std::span<const std::byte> frame) noexcept {
  std::byte* room = nullptr;
  if (device_->reserve({&room, 1}) == 0) return false;
  std::memcpy(room, frame.data(), frame.size());
  const auto size = static_cast<std::uint32_t>(frame.size());
  return device_->send({&size, 1}) == 1;
}

}  // namespace fairlead::soft
