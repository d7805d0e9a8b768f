#include "verbs/soft/port/local/local_port.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system/no_cancellation.h"
#include "base/system/no_watch.h"
#include "base/system/uncancelled.h"
#include "base/system/unix_packets.h"
#include "fairlead/log.h"
#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/wire/opcode.h"

namespace fairlead::soft::local {
namespace {

constexpr std::size_t kMostLinks = 64;
constexpr std::size_t kMostDestinations = 256;
constexpr std::int16_t kUnknown = -1, kNoRoom = -2;  // Route::host, where it is no index
constexpr std::size_t kMostStrangers = 16;
constexpr Nanos kGreetingTime = 1 * kSecond;
// A look at the sockets is a system call, one at a ring is not: so the former less often while there are links, and
// seldom while nothing comes that way.
constexpr unsigned kInnerEvery = 16, kInnerSeldom = 512;
constexpr Nanos kInnerLatest = 20 * kMicrosecond;
constexpr Nanos kTendEvery = 100 * kMicrosecond;
// Until the next try where nobody is, and where somebody is who does not answer.
constexpr Nanos kFirstPatience = 10 * kMillisecond, kMostPatience = 1 * kSecond;
constexpr Nanos kAnswerTime = 100 * kMillisecond, kMostAnswerPatience = 10 * kSecond;
constexpr Nanos kNameEvery = 1 * kSecond, kWithoutName = 100 * kMillisecond;

// Datagrams and QP1 are for whoever has the address; all else is for one queue pair of a peer.
bool crosses_memory(std::byte opcode) noexcept {
  return static_cast<Service>(std::to_integer<std::uint8_t>(opcode) >> 5) != Service::kUd;
}

// Whoever sends datagrams can ask for one.
bool is_receipt(std::byte opcode) noexcept {
  return static_cast<Opcode>(std::to_integer<std::uint8_t>(opcode)) == Opcode::kReceipt;
}

}  // namespace

std::unique_ptr<PacketPort> LocalPort::around(std::unique_ptr<PacketPort> inner, const Party& self,
                                              const LocalOptions& options) {
  std::unique_ptr<LocalPort> port(new LocalPort(std::move(inner), self, options));
  const Status status = port->listen();
  if (status.ok()) return port;
  log(LogLevel::kInfo,
      fmt::format("softroce at {} meets no device of this host in memory: {}", to_string(self.gid), status.message()));
  return std::move(port->inner_);
}

LocalPort::LocalPort(std::unique_ptr<PacketPort> inner, const Party& self, const LocalOptions& options)
    : PortDecorator(std::move(inner)), self_(self), options_(options) {}

LocalPort::~LocalPort() {
  if (listener_ && is_mine()) ::unlink(name_.c_str());
}

Status LocalPort::listen() {
  auto place = meeting_place();
  if (!place) return place.error();
  place_ = std::move(*place);
  name_ = meeting_of(place_, self_);
  events_ = PrivateFd(UniqueFd(::epoll_create1(EPOLL_CLOEXEC)));
  if (!events_ || (inner_->wait_fd() >= 0 && !watch(inner_->wait_fd()))) return no_watch("its sockets", errno);
  return take_name();
}

Status LocalPort::take_name() {
  auto listener = listen_at(name_);
  if (!listener) return listener.error();
  if (watch(listener->get())) return listener_ = std::move(*listener), Status();
  const Status status = no_watch("its sockets", errno);
  ::unlink(name_.c_str());  // nobody would be there
  return status;
}

/// Who dials is to find somebody who takes him, or nobody: then his packets go by sockets, and are not lost.
void LocalPort::leave_name(std::string_view why) noexcept {
  if (!listener_) return;
  ::unlink(name_.c_str());
  listener_.reset();
  look_at_name_ = now_ + kWithoutName;
  log(LogLevel::kInfo,
      fmt::format("softroce at {} meets no further device in memory, but by sockets: {}", to_string(self_.gid), why));
}

/// The name may be gone with its directory: where the system sweeps what a user has who is logged in no more.
void LocalPort::keep_name() noexcept {
  look_at_name_ = now_ + kNameEvery;
  const NoCancellation whole;
  if (links_.size() >= kMostLinks) return;
  if (listener_ && (::access(name_.c_str(), F_OK) == 0 || errno != ENOENT)) return;
  const auto place = meeting_place();
  if (!place || *place != place_ || !take_name().ok()) look_at_name_ = now_ + kWithoutName;
}

bool LocalPort::watch(int fd) noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void LocalPort::count_in(Counters& counters) noexcept {
  counters_ = &counters;
  inner_->count_in(counters);
}

Route LocalPort::make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                            std::uint8_t hop_limit) {
  Route route = inner_->make_route(destination, flow, traffic_class, hop_limit);
  if (route.peer_port == 0) return route;  // not of this host
  leads_here_ = true;
  if (terms().refers) route.references = this;
  route.apart = this;
  return route;
}

// One that is not there is made if there is room, for whoever is met and, if it `makes` it, for others.
bool LocalPort::has_destination(const Route& route, bool makes) noexcept {
  if (route.host != kUnknown) return route.host >= 0;
  if (route.peer_port == 0) return false;  // not of this host
  const auto found =
      std::ranges::find(destinations_, route.destination, [](const auto& each) -> const Gid& { return each->gid; });
  const auto index = static_cast<std::int16_t>(found - destinations_.begin());
  if (found == destinations_.end()) {
    if (destinations_.size() == kMostDestinations) route.host = kNoRoom;
    if (route.host == kNoRoom || (!makes && !is_met(route.destination))) return false;
    destinations_.push_back(std::make_unique<Destination>(Destination{route.destination, {}}));
  }
  route.host = index;
  return true;
}

bool LocalPort::is_met(const Gid& gid) const noexcept {
  return std::ranges::any_of(links_, [&gid](const auto& link) { return link->up() && link->party().gid == gid; });
}

void LocalPort::tx_burst(TxBatch& batch) noexcept {
  if (leads_here_ && is_mine()) {
    std::uint64_t taken = 0;
    batch.keep_if([this, &batch, &taken](const TxPacket& packet) {
      const iovec* iovs = batch.iovs(packet);
      const auto* bth = static_cast<const std::byte*>(iovs[0].iov_base);
      const auto place = std::to_integer<std::uint8_t>(bth[5]);
      Link* link = crosses_memory(bth[0]) ? link_for(*packet.route, place, !is_receipt(bth[0])) : nullptr;
      if (link == nullptr && !packet.refers) return true;
      if (link != nullptr && link->send(packet, iovs)) {
        ++taken;
        if (packet.refers) count_referring(iovs[1].iov_len);
      } else {
        ++lost_;
      }
      return false;
    });
    if (taken != 0 && counters_ != nullptr) counters_->sent_by_memory.add(taken);
    for (const auto& link : links_) link->flush();
  }
  batch.empty() ? batch.clear() : inner_->tx_burst(batch);
}

void LocalPort::count_referring(std::size_t bytes) noexcept {
  if (counters_ == nullptr) return;
  counters_->sent_by_reference.add();
  counters_->sent_reference_bytes.add(bytes);
}

Link* LocalPort::link_for(const Route& route, std::uint8_t place, bool makes) noexcept {
  if (!has_destination(route, makes)) return nullptr;
  Destination& destination = *destinations_[static_cast<std::size_t>(route.host)];
  Way& way = destination.ways[place];
  if (way.link != nullptr && way.link->up()) return way.link;
  if (now_ < way.next_try) return nullptr;
  way.link = meet(destination.gid, place);
  if (way.link == nullptr) {
    way.patience = std::clamp(2 * way.patience, kFirstPatience, kMostPatience);
    way.next_try = now_ + way.patience;
  }
  return way.link;
}

std::size_t LocalPort::reach(const Route& route, std::uint32_t qpn, std::size_t message) noexcept {
  if (message < options_.least_referred || !is_mine()) return 0;
  const Link* const link = link_for(route, static_cast<std::uint8_t>(qpn >> 16));
  return link != nullptr && link->refers() ? Reference::kMostBytes : 0;
}

bool LocalPort::fetches(const Route& route, std::uint32_t qpn, std::size_t message) noexcept {
  if (message < options_.least_referred || !is_mine()) return false;
  const Link* const link = link_for(route, static_cast<std::uint8_t>(qpn >> 16));
  return link != nullptr && link->fetches();
}

// A child of fork() shares the rings with its parent, whose references they are.
template <typename Which>
void LocalPort::withdraw_if(Which&& which) noexcept {
  if (!is_mine()) return;
  for (const auto& link : links_) link->withdraw(which);
}

void LocalPort::withdraw(const Route& route) noexcept {
  withdraw_if([&route](const Standing& each) { return each.owner == &route; });
}

void LocalPort::withdraw(const void* start, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(start);
  withdraw_if([first, bytes](const Standing& each) {
    return each.reference.address < first + bytes && first < each.reference.address + each.reference.bytes;
  });
}

void LocalPort::end_loans() noexcept {
  withdraw_if([](const Standing&) { return true; });
}

LinkTerms LocalPort::terms() const noexcept {
  return {options_.checks, !options_.checks && options_.least_referred != 0, counters_};
}

Link* LocalPort::find(const Party& party) noexcept {
  const auto found =
      std::ranges::find_if(links_, [&party](const auto& link) { return link->up() && link->party() == party; });
  return found != links_.end() ? found->get() : nullptr;
}

// Whoever has the address alone has all its queue pairs.
Link* LocalPort::meet(const Gid& gid, std::uint8_t place) noexcept {
  const std::array parties = {Party{gid}, Party{gid, place}};
  for (const Party& party : parties) {
    if (Link* const link = find(party)) return link;
  }
  if (links_.size() >= kMostLinks) return nullptr;
  const NoCancellation while_dialing;
  for (const Party& party : parties) {
    if (Link* const link = take_in(Link::dial(meeting_of(place_, party), party, self_, terms()))) return link;
  }
  return nullptr;
}

Link* LocalPort::take_in(Result<std::unique_ptr<Link>> made) noexcept {
  if (!made || !watch((*made)->socket())) return nullptr;
  log(LogLevel::kDebug, fmt::format("softroce: packets between {} and {} cross memory", to_string(self_.gid),
                                    to_string((*made)->party().gid)));
  return links_.emplace_back(std::move(*made)).get();
}

std::size_t LocalPort::rx_burst(std::span<RxPacket> packets, Nanos now) noexcept {
  now_ = now;
  if (!is_mine()) return inner_->rx_burst(packets, now);
  for (const auto& link : links_) link->release();
  // What is to wake who waits is left to him: whoever takes it away here may be gone when he should have been woken.
  const bool looks_at_all = std::exchange(has_waited_, false);
  if (looks_at_all || (!waits_ && now >= next_tend_)) tend();
  std::size_t count = 0;
  if (looks_at_all || links_.empty() || until_inner_-- == 0 || now >= next_inner_) {
    count = inner_->rx_burst(packets, now);
    inner_has_more_ = count == packets.size();
    sockets_busy_ = count != 0;
    until_inner_ = inner_has_more_ ? 1 : count != 0 ? kInnerEvery : kInnerSeldom;  // not at once: links have their turn
    next_inner_ = inner_has_more_ ? ~Nanos{0} : now + kInnerLatest;
  }
  const std::size_t by_sockets = count;
  for (std::size_t i = 0; i < links_.size() && count < packets.size(); ++i) {
    Link& link = *links_[(first_ + i) % links_.size()];
    if (link.has_backlog()) link.flush();
    count += link.receive(packets.subspan(count));
  }
  ++first_;
  if (count != by_sockets && counters_ != nullptr) counters_->rcvd_by_memory.add(count - by_sockets);
  return count;
}

std::size_t LocalPort::rx_urgent(std::span<RxPacket> packets, Nanos now) noexcept {
  now_ = now;
  if (!is_mine()) return 0;
  std::size_t count = 0;
  for (const auto& link : links_) {
    link->release();
    count += link->receive_urgent(packets.subspan(count));
  }
  if (count != 0 && counters_ != nullptr) counters_->rcvd_by_memory.add(count);
  return count;
}

bool LocalPort::on_wait(bool begins) noexcept {
  if (!is_mine()) return inner_->on_wait(begins);
  waits_ = begins;
  has_waited_ = !begins;  // what is to be looked at when he begins wakes him at once
  const bool sockets = inner_->on_wait(begins);
  if (!begins) {
    for (const auto& link : links_) link->wake();
    return sockets;
  }
  for (const auto& link : links_) link->sleep();
  const bool ready = std::ranges::any_of(links_, [](const auto& link) { return link->ready(); });
  return sockets && !ready && !inner_has_more_;
}

Nanos LocalPort::next_event() const noexcept {
  Nanos next = inner_->next_event();
  const auto consider = [&next](Nanos at) { next = next == 0 ? at : std::min(next, at); };
  for (const auto& link : links_) {
    if (link->up() && link->has_backlog()) consider(now_ + link->look_again_in());
  }
  if (!listener_ && links_.size() < kMostLinks) consider(look_at_name_);
  return next;
}

// What was received is released before.
void LocalPort::tend() noexcept {
  next_tend_ = now_ + kTendEvery;
  std::array<epoll_event, 1> first;
  const bool news = uncancelled::epoll_wait_now(events_.get(), first.data(), first.size()) != 0;
  for (const auto& link : links_) {
    if (link->since == 0) link->since = now_;  // when it was made, the time was that of the burst before
    link->look_at_peer(now_);
    if ((!news || link->listen()) && !link->answered() && now_ >= link->since + kAnswerTime) link->give_up();
  }
  drop_ended();
  if (news) accept();
  if (!strangers_.empty()) hear_strangers();
  if (links_.size() >= kMostLinks) leave_name(fmt::format("it has met {}, the limit", kMostLinks));
  if (now_ >= look_at_name_) keep_name();
}

void LocalPort::accept() noexcept {
  if (!listener_) return;
  const NoCancellation whole;
  bool more = true;
  errno = 0;
  for (std::size_t i = 0; i < kMostStrangers && more; ++i) {
    PrivateFd socket = accept_from(listener_.get(), more);
    if (!socket || !watch(socket.get())) continue;
    if (strangers_.size() == kMostStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back({std::move(socket), now_ + kGreetingTime});
  }
  if (more || errno == EAGAIN) return;
  leave_name(fmt::format("it cannot accept one: {}", std::strerror(errno)));
}

void LocalPort::hear_strangers() noexcept {
  const NoCancellation whole;
  std::erase_if(strangers_, [this](Stranger& each) {
    GreetingBytes bytes;
    UniqueFd memory;
    bool lost = false;
    const auto got = receive_packet(each.socket.get(), bytes, memory, &lost);
    if (!got && errno == EAGAIN) return now_ > each.deadline;
    const auto party = got ? decode(std::span(bytes).first(*got)) : std::nullopt;
    const std::optional<bool> known = party ? is_of_host(party->gid) : false;  // packets come from who it says it is
    if (!known) log(LogLevel::kWarning, cannot_tell_host(party->gid, errno));
    if (known == true && lost) {
      log(LogLevel::kWarning, fmt::format("softroce: no descriptor is left for the memory in which {} meets {}; raise "
                                          "`ulimit -n`",
                                          to_string(party->gid), to_string(self_.gid)));
    }
    if (known != true || !memory || links_.size() >= kMostLinks) return true;
    auto made = Link::accept(std::move(each.socket), *party, memory, terms());
    if (!made) {
      log(LogLevel::kWarning, fmt::format("softroce: {} meets {} in memory that is refused: {}", to_string(party->gid),
                                          to_string(self_.gid), made.error().message()));
      return true;
    }
    links_.push_back(std::move(*made));
    look_again_for(party->gid);
    return true;
  });
}

// Who was not there before may be now.
void LocalPort::look_again_for(const Gid& gid) noexcept {
  for (const auto& destination : destinations_) {
    if (destination->gid != gid) continue;
    for (Way& way : destination->ways) way.next_try = 0;
  }
}

void LocalPort::drop_ended() noexcept {
  const auto ended = [](const auto& link) { return !link->up() && !link->ready(); };
  if (std::ranges::none_of(links_, ended)) return;
  for (const auto& destination : destinations_) {
    for (Way& way : destination->ways) {
      if (way.link == nullptr || way.link->up()) continue;
      way.patience =
          way.link->answered() ? kAnswerTime : std::clamp(2 * way.patience, kAnswerTime, kMostAnswerPatience);
      way.next_try = now_ + way.patience;
      way.link = nullptr;
    }
  }
  std::erase_if(links_, ended);
}

}  // namespace fairlead::soft::local
