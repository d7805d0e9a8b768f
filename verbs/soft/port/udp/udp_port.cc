#include "verbs/soft/port/udp/udp_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/system/no_cancellation.h"
#include "base/system/uncancelled.h"
#include "verbs/soft/port/frame/lanes.h"
#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

constexpr std::size_t kMaxDatagram = 65507;
constexpr std::size_t kMaxSegments = 64;  // UDP_MAX_SEGMENTS of every kernel that has UDP_SEGMENT
constexpr std::size_t kMaxTxSockets = 16;
constexpr std::size_t kMostWindow = 256 << 10;
// Of a socket's receive buffer, as the system accounts it, what payload may fill: packets of 1 KiB are charged more
// than twice their size. Of a stock system's it is 192 KiB (PacketPort::peer_window).
constexpr std::size_t kPayloadOf13 = 6;
constexpr std::size_t kMostUnsegmented = 256;  // then the oldest is tried anew
constexpr std::size_t kMostWaiting = 512;
constexpr Nanos kLookAgain = 50 * kMicrosecond;  // whether a full socket has room

// Among processes that share an address the kernel steers a whole run by its first packet.
std::uint32_t qpn_bytes(TxBatch& batch, const TxPacket& packet) noexcept {
  std::uint32_t reserved_and_qpn;
  std::memcpy(&reserved_and_qpn, static_cast<const std::byte*>(batch.iovs(packet)[0].iov_base) + 4, 4);
  return reserved_and_qpn;
}

bool no_room(int error) noexcept { return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS; }

// A connected socket knows its way, which saves a message a tenth of its time. But the system counts the IPv4 ids of
// what it sends, which the ICRC covers: only where nobody sees them.
bool may_connect(const Gid& destination) noexcept { return !destination.is_ipv4(); }

}  // namespace

struct UdpPort::Sender {
  struct Control {
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t)) + 2 * CMSG_SPACE(sizeof(int))> bytes;
  };
  std::array<mmsghdr, TxBatch::kMaxPackets> messages{};
  std::array<SocketAddress, TxBatch::kMaxPackets> destinations{};
  std::array<Control, TxBatch::kMaxPackets> control{};
  std::array<std::uint16_t, TxBatch::kMaxPackets> packets{};  // of each message
  std::array<int, TxBatch::kMaxPackets> sockets{};
  std::size_t count = 0;

  template <typename T>
  static void add_control(msghdr& header, int level, int type, T value) noexcept {
    auto* at = reinterpret_cast<cmsghdr*>(static_cast<std::byte*>(header.msg_control) + header.msg_controllen);
    at->cmsg_level = level;
    at->cmsg_type = type;
    at->cmsg_len = CMSG_LEN(sizeof(T));
    std::memcpy(CMSG_DATA(at), &value, sizeof(T));
    header.msg_controllen += CMSG_SPACE(sizeof(T));
  }

  void add(const Route& route, std::uint32_t scope, iovec* iovs, std::size_t iov_count,
           std::uint16_t segment) noexcept {
    const bool v4 = route.destination.is_ipv4();
    msghdr& header = messages[count].msg_hdr;
    header = {nullptr, 0, iovs, iov_count, control[count].bytes.data(), 0, 0};
    if (!route.connected) {
      destinations[count] = SocketAddress(route.destination, kRoceUdpPort, scope);
      header.msg_name = destinations[count].get();
      header.msg_namelen = destinations[count].size();
    }
    if (segment != 0) add_control(header, SOL_UDP, UDP_SEGMENT, segment);
    const int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
    if (route.traffic_class != route.socket_traffic_class) {
      add_control(header, level, v4 ? IP_TOS : IPV6_TCLASS, int{route.traffic_class});
    }
    if (route.hop_limit != route.socket_hop_limit) {
      const int hops = route.hop_limit != 0 ? route.hop_limit : kDefaultHopLimit;
      add_control(header, level, v4 ? IP_TTL : IPV6_HOPLIMIT, hops);
    }
    if (header.msg_controllen == 0) header.msg_control = nullptr;
    sockets[count++] = route.socket;
  }
};

UdpPort::UdpPort(const InterfaceAddress& address, UniqueFd socket)
    : UdpPort(address, PrivateFd(std::move(socket)), nullptr) {}

UdpPort::UdpPort(const InterfaceAddress& address, std::unique_ptr<SharedAddress> place)
    : UdpPort(address, PrivateFd(), std::move(place)) {}

UdpPort::UdpPort(const InterfaceAddress& address, PrivateFd own, std::unique_ptr<SharedAddress> place)
    : address_(address.gid),
      own_(std::move(own)),
      place_(std::move(place)),
      socket_(place_ ? place_->socket() : own_.get()),
      interface_(address),
      host_port_(host_sender_port(address.gid)),
      receiver_(socket_),
      sender_(std::make_unique<Sender>()) {
  measure_receive_buffer();
  host_guard_ = PrivateFd(guard_sender_port(host_port_));
  if (host_guard_) host_socket_ = open_sender(host_port_, PortUse::kSendShared, Gid(), 0, 0);
  if (!host_socket_.fd) host_error_ = errno;
}

UdpPort::~UdpPort() = default;

void UdpPort::measure_receive_buffer() noexcept {
  const std::size_t accounted = receive_buffer_bytes(socket_);
  receive_window_ = {std::min(kMostWindow, accounted / 8 * 5), accounted / 13 * kPayloadOf13};
}

void UdpPort::ask_for_receive_buffer(std::size_t bytes) noexcept {
  set_receive_buffer(socket_, bytes);
  measure_receive_buffer();
}

Status UdpPort::status() const {
  if (host_error_ == 0) return {};
  if (host_error_ != EADDRINUSE) {
    return {Code::kResourceExhausted,
            fmt::format("softroce cannot open a socket to send from {}: {}; raise RLIMIT_NOFILE (`ulimit -n`)",
                        to_string(address_), std::strerror(host_error_))};
  }
  return {Code::kAlreadyExists,
          fmt::format("softroce: UDP port {}, from which {} sends to addresses of this host, is another user's; see "
                      "`ss -unap sport = :{}`, or choose another address with FAIRLEAD_SOFT_ADDRESS",
                      host_port_, to_string(address_), host_port_)};
}

UdpPort::TxSocket UdpPort::open_sender(std::uint16_t port, PortUse use, const Gid& peer, std::uint8_t traffic_class,
                                       std::uint8_t hop_limit) {
  UniqueFd fd = open_udp_socket(address_, port, use, interface_.index);
  if (!fd) return {};
  const SocketAddress to(peer, kRoceUdpPort, interface_.index);
  const bool connected = !peer.is_null() && ::connect(fd.get(), to.get(), to.size()) == 0;
  const bool taken = set_sending_defaults(fd.get(), address_, traffic_class, hop_limit);
  return {port, PrivateFd(std::move(fd)), connected ? peer : Gid{}, taken ? traffic_class : std::uint8_t{0},
          taken ? hop_limit : std::uint8_t{0}};
}

// There are no paths to spread over, so one socket sends what is for many queue pairs with one system call.
const UdpPort::TxSocket& UdpPort::sender_in_host(const Route& route) {
  const Gid& to = route.destination;
  if (!to.is_loopback()) return host_socket_;
  const auto found = std::ranges::find(host_connected_, to, &TxSocket::peer);
  if (found != host_connected_.end()) return *found;
  if (host_connected_.size() == kMaxTxSockets) return host_socket_;
  TxSocket made = open_sender(host_port_, PortUse::kSendShared, to, route.traffic_class, route.hop_limit);
  if (made.peer != to) return host_socket_;
  return host_connected_.emplace_back(std::move(made));
}

// Source ports spread flows over a network's paths and a receiver's queues.
const UdpPort::TxSocket* UdpPort::sender_outward(const Route& route, std::uint32_t flow) {
  const auto goes_there = [&route](const TxSocket& each) { return each.peer == route.destination; };
  if (tx_sockets_.size() < kMaxTxSockets) {
    const auto port = static_cast<std::uint16_t>(0xc000 | (flow & 0x3fff));
    const Gid peer = may_connect(route.destination) ? route.destination : Gid();
    TxSocket made = open_sender(port, PortUse::kSend, peer, route.traffic_class, route.hop_limit);
    if (made.fd) tx_sockets_.push_back(std::move(made));
  }
  if (tx_sockets_.empty()) return nullptr;
  // The flow's own, or the next that is connected to the destination, if there is any. The lowest bits say less about a
  // flow than the others (lanes.h).
  const std::size_t first = flow >> kLaneBits;
  const TxSocket* chosen = &tx_sockets_[first % tx_sockets_.size()];
  for (std::size_t i = 0; i < tx_sockets_.size() && !goes_there(*chosen); ++i) {
    const TxSocket& next = tx_sockets_[(first + i) % tx_sockets_.size()];
    if (goes_there(next)) chosen = &next;
  }
  return chosen;
}

Route UdpPort::make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                          std::uint8_t hop_limit) {
  const NoCancellation whole;
  std::erase(unsegmented_, destination);  // the way to it may be another by now
  Route route{address_, destination, kRoceUdpPort, traffic_class, hop_limit, socket_};
  const std::optional<bool> in_host = is_of_host(destination);
  if (!in_host) {  // of whom packets are to be taken is unknown, then
    route.error = static_cast<std::uint16_t>(errno);
    return route;
  }
  if (*in_host) route.peer_port = host_sender_port(destination);
  const TxSocket* chosen = *in_host ? &sender_in_host(route) : sender_outward(route, flow);
  if (chosen == nullptr) return route;
  route.source_port = chosen->port;
  route.socket = chosen->fd.get();
  route.connected = chosen->peer == destination;
  route.socket_traffic_class = chosen->traffic_class;
  route.socket_hop_limit = chosen->hop_limit;
  return route;
}

std::size_t UdpPort::rx_burst(std::span<RxPacket> packets, Nanos now) noexcept {
  now_ = now;
  if (!waiting_.empty()) send_waiting();
  return receiver_.receive(packets);
}

void UdpPort::tx_burst(TxBatch& batch) noexcept {
  if (!waiting_.empty()) send_waiting();
  for (std::size_t from = 0; from < batch.size();) {
    prepare(batch, from);
    from = send_prepared(batch, from);
  }
  batch.clear();
  batch.report_full(waiting_.size() >= kFull);
}

bool UdpPort::segments(const Gid& destination) const noexcept {
  return unsegmented_.empty() || std::ranges::find(unsegmented_, destination) == unsegmented_.end();
}

// One message per run of packets to one peer that are equally long but for the last, which may be shorter.
void UdpPort::prepare(TxBatch& batch, std::size_t from) noexcept {
  sender_->count = 0;
  for (std::size_t i = from; i < batch.size();) {
    const TxPacket& first = batch.packet(i);
    std::size_t iovs = 0;
    std::size_t bytes = 0;
    std::size_t end = i;
    bool open = true;
    const bool joined = segments(first.route->destination);
    while (end < batch.size() && open) {
      const TxPacket& packet = batch.packet(end);
      const std::size_t number = end - i;
      if (number > 0) {
        const Route& a = *first.route;
        const Route& b = *packet.route;
        const TxPacket& previous = batch.packet(end - 1);
        const bool joins = joined && number < kMaxSegments && packet.size <= first.size &&
                           bytes + packet.size <= kMaxDatagram &&
                           packet.first_iov == previous.first_iov + previous.iovs &&
                           qpn_bytes(batch, packet) == qpn_bytes(batch, first) &&
                           (&a == &b || (a.socket == b.socket && a.destination == b.destination &&
                                         a.traffic_class == b.traffic_class && a.hop_limit == b.hop_limit));
        if (!joins) break;
        open = packet.size == first.size;
      }
      // The system refuses to send a packet whose payload is gone, and a wrong ICRC loses it where it does not.
      store_icrc(packet.icrc, icrc_of(packet, batch.iovs(packet), static_cast<std::uint16_t>(number)).value_or(0));
      iovs += packet.iovs;
      bytes += packet.size;
      ++end;
    }
    sender_->packets[sender_->count] = static_cast<std::uint16_t>(end - i);
    sender_->add(*first.route, interface_.index, batch.iovs(first), iovs,
                 end - i > 1 ? static_cast<std::uint16_t>(first.size) : std::uint16_t{0});
    i = end;
  }
}

// Messages sent of [from, to), which go through one socket; -1 with errno set if not even the first was.
int UdpPort::send_run(std::size_t from, std::size_t to) noexcept {
  mmsghdr* messages = &sender_->messages[from];
  const int socket = sender_->sockets[from];
  if (to - from > 1) return uncancelled::sendmmsg(socket, messages, static_cast<unsigned>(to - from), 0);
  const msghdr& header = messages->msg_hdr;
  const bool plain = header.msg_control == nullptr && header.msg_iovlen == 1;
  const ssize_t sent = plain ? uncancelled::sendto(socket, header.msg_iov->iov_base, header.msg_iov->iov_len, 0,
                                                   static_cast<const sockaddr*>(header.msg_name), header.msg_namelen)
                             : uncancelled::sendmsg(socket, &header, 0);
  return sent < 0 ? -1 : 1;
}

void UdpPort::report_traffic_class() noexcept { receive_traffic_class(socket_, address_); }

// Sends the batch's packets from `from` on, as they were prepared. The first that is to be prepared again, because its
// route does not segment.
std::size_t UdpPort::send_prepared(TxBatch& batch, std::size_t from) noexcept {
  std::size_t retried = sender_->count;  // the message that was
  for (std::size_t i = 0; i < sender_->count;) {
    std::size_t run = i + 1;
    while (run < sender_->count && sender_->sockets[run] == sender_->sockets[i]) ++run;
    const auto packets_until = [this, i](std::size_t end) {
      std::size_t packets = 0;
      for (std::size_t k = i; k < end; ++k) packets += sender_->packets[k];
      return packets;
    };
    const int socket = sender_->sockets[i];
    const bool behind = std::ranges::any_of(waiting_, [=](const Waiting& each) { return each.route.socket == socket; });
    const int sent = behind ? -1 : send_run(i, run);
    if (sent > 0) {
      from += packets_until(i + static_cast<std::size_t>(sent));
      i += static_cast<std::size_t>(sent);
      continue;
    }
    const int error = behind ? EAGAIN : errno;
    if (error == EINTR) continue;
    if (no_room(error)) {
      const std::size_t end = from + packets_until(run);
      keep(batch, from, end);
      from = end;
      i = run;
      continue;
    }
    if ((error == EIO || error == EINVAL) && sender_->packets[i] > 1) {
      // The route cannot segment (no checksum offload, for one): what goes there goes packet by packet from here on.
      if (unsegmented_.size() == kMostUnsegmented) unsegmented_.erase(unsegmented_.begin());
      unsegmented_.push_back(batch.packet(from).route->destination);
      return from;
    }
    // What became of an earlier packet (nobody has the port there) is reported once, instead of sending.
    if (retried != i) {
      retried = i;
      continue;
    }
    refused_ += sender_->packets[i];
    from += sender_->packets[i++];  // unreachable or refused: lost, as on any network; retransmission deals with it
  }
  return batch.size();
}

// The system has no room. Whoever waited for it here would keep everybody else's packets waiting as well, also those
// that are to be received.
void UdpPort::keep(TxBatch& batch, std::size_t from, std::size_t to) {
  for (; from < to && waiting_.size() < kMostWaiting; ++from) {
    const TxPacket& packet = batch.packet(from);
    const iovec* iovs = batch.iovs(packet);
    store_icrc(packet.icrc, icrc_of(packet, iovs, 0).value_or(0));
    Waiting& kept = waiting_.emplace_back(Waiting{*packet.route, std::vector<std::byte>(packet.size)});
    if (gather(packet, iovs, kept.bytes.data())) continue;
    waiting_.pop_back();
    ++refused_;
  }
  refused_ += to - from;  // lost, as on any network
}

void UdpPort::send_waiting() noexcept {
  std::vector<int> full;
  std::erase_if(waiting_, [this, &full](Waiting& each) {
    if (std::ranges::find(full, each.route.socket) != full.end()) return false;
    iovec iov{each.bytes.data(), each.bytes.size()};
    sender_->count = 0;
    sender_->add(each.route, interface_.index, &iov, 1, 0);
    int sent = -1;
    while ((sent = send_run(0, 1)) < 0 && errno == EINTR) continue;
    if (sent < 0 && no_room(errno)) {
      full.push_back(each.route.socket);
      return false;
    }
    if (sent < 0) ++refused_;
    return true;
  });
}

Nanos UdpPort::next_event() const noexcept { return waiting_.empty() ? 0 : now_ + kLookAgain; }

}  // namespace fairlead::soft
