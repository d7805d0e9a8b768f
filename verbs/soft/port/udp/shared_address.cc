#include "verbs/soft/port/udp/shared_address.h"

#include <fmt/format.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <system_error>

#include "base/system/no_cancellation.h"
#include "base/system/no_descriptor.h"
#include "base/system/no_thread.h"
#include "base/system/own_user.h"
#include "base/system/quiet_thread.h"
#include "verbs/soft/port/udp/udp_socket.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {
namespace {

constexpr int kTries = 100;
constexpr auto kBetweenTries = std::chrono::milliseconds(5);
constexpr int kProbeMilliseconds = 20;
constexpr unsigned kQpnByte = 5;  // the upper byte of the BTH's destination QPN
// Of a management datagram for QP1, behind BTH, DETH and its own header (IBTA volume 1, 12.6): what it is, the upper
// byte of the identifier by which the receiver knows the connection, and the lower half of a requested service's.
constexpr unsigned kQpnWord = 4;
constexpr unsigned kMadAttribute = 36;
constexpr unsigned kMadIdByte = 48;
constexpr unsigned kSidrRepIdByte = 44;
constexpr unsigned kServiceWord = 56;
constexpr unsigned kReq = 0x10, kSidrReq = 0x17, kSidrRep = 0x18;

// The program's view begins with the UDP payload. An index past the group's end is hashed to some member, which has no
// such queue pair. QP1 is everybody's: answers go to the member that asked, whose place its identifiers begin with
// (verbs/cm/manager.h), requests to the member that takes those for their service, or else to the one that came first.
Status steer(int socket, const Gid& address, const GroupNames& names, unsigned joining) {
  std::vector<sock_filter> code{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kQpnWord),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffffff),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, 2, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kQpnByte),
      BPF_STMT(BPF_RET | BPF_A, 0),
      BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kMadAttribute),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kReq, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kSidrReq, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kSidrRep, 2, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kMadIdByte),
      BPF_STMT(BPF_RET | BPF_A, 0),
      BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kSidrRepIdByte),
      BPF_STMT(BPF_RET | BPF_A, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kServiceWord),
  };
  const auto services = names.services();
  if (!services) return services.error();
  for (const GroupNames::Service& service : *services) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, service.number, 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, service.place));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, names.first(joining)));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)) == 0) return {};
  return {Code::kUnavailable, fmt::format("softroce cannot steer packets among the processes at {}: {}",
                                          to_string(address), std::strerror(errno))};
}

// What came for the last owner of a place is not for the next.
void drain(int socket) noexcept {
  std::byte byte;
  while (::recv(socket, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) >= 0) {
  }
}

// Whether packets for the place reach its socket: not yet, where members that ended just now still close theirs. Once
// they do, they always will.
Status reaches_itself(int socket, unsigned place, const Gid& address, std::uint32_t scope) {
  // No packet of RoCE: an opcode that is nobody's, the destination QPN's upper byte, and a number to know it by.
  std::array<std::uint64_t, 2> probe{0, std::random_device{}()};
  auto* bytes = reinterpret_cast<unsigned char*>(probe.data());
  bytes[0] = 0xff;
  bytes[kQpnByte] = static_cast<unsigned char>(place);
  const UniqueFd sender = open_udp_socket(address, 0, PortUse::kSend, scope);
  if (!sender && is_descriptor_limit(errno)) {
    return no_descriptor(fmt::format("a packet of softroce's from {} to itself", to_string(address)), errno);
  }
  const SocketAddress to(address, kRoceUdpPort, scope);
  const bool sent = ::sendto(sender.get(), probe.data(), sizeof(probe), 0, to.get(), to.size()) == sizeof(probe);
  std::array<std::uint64_t, 2> got{};
  pollfd ready{socket, POLLIN, 0};
  while (sent && ::poll(&ready, 1, kProbeMilliseconds) == 1) {
    if (::recv(socket, got.data(), sizeof(got), MSG_DONTWAIT) == sizeof(got) && got == probe) return {};
  }
  return {Code::kUnavailable,
          fmt::format("softroce: a packet from {} to its own port {} does not arrive; let a packet filter pass it",
                      to_string(address), kRoceUdpPort)};
}

struct Highest {
  unsigned place = 0;
  UniqueFd connection;
};

Result<Highest> find_highest(const GroupNames& names) {
  for (unsigned place = SharedAddress::kMaxMembers; place-- > 0;) {
    auto connection = names.connect_to(place);
    if (!connection) return connection.error();
    if (*connection) return Highest{place, std::move(*connection)};
  }
  return Highest{};
}

template <typename T>
T option(int socket, int level, int name) noexcept {
  T value{};
  socklen_t size = sizeof(value);
  return ::getsockopt(socket, level, name, &value, &size) == 0 ? value : T{};
}

// The sockets of the places up to the highest that is taken, as its process has them.
Result<std::vector<PrivateFd>> sockets_of(const Highest& highest, const Gid& address) {
  std::vector<PrivateFd> sockets;
  if (!highest.connection) return sockets;
  auto all = ask_for_sockets(highest.connection.get(), highest.place + 1);
  if (!all) return all.error();
  for (const PrivateFd& socket : *all) {
    if (!belongs_to_group(socket.get(), address)) {
      return {Code::kPermissionDenied,
              fmt::format("softroce: what process {} shares is no socket for {}:{}; end it",
                          peer_of(highest.connection.get()).pid, to_string(address), kRoceUdpPort)};
    }
  }
  return std::move(*all);
}

// The sockets up to that of the place: one that no process reads yet, or no more. One try. Empty if a process has it.
Result<std::vector<PrivateFd>> take_place(const GroupNames& names, const Gid& address, std::uint32_t scope,
                                          unsigned place) {
  const auto highest = find_highest(names);
  if (!highest) return highest.error();
  if (highest->connection && place <= highest->place) {
    const auto holder = names.connect_to(place);
    if (!holder) return holder.error();
    if (*holder) return std::vector<PrivateFd>();
  }
  auto sockets = sockets_of(*highest, address);
  if (!sockets) return sockets.error();
  if (sockets->empty()) {
    // Others of this user may have it that are not found: the system would let us in among them, and misroute.
    const UniqueFd alone = open_udp_socket(address, kRoceUdpPort, PortUse::kReceive, scope);
    if (!alone && errno == EADDRINUSE) return {Code::kAlreadyExists, "in use"};
  }
  if (place < sockets->size()) {
    sockets->erase(sockets->begin() + place + 1, sockets->end());
    drain(sockets->back().get());
  }
  while (sockets->size() <= place) {
    auto socket = bind_roce_port(address, PortUse::kShared, scope);
    if (!socket) return socket.error();
    sockets->emplace_back(std::move(*socket));
  }
  if (const Status status = steer(sockets->back().get(), address, names, place); !status.ok()) return status;
  return sockets;
}

// A process that is ending may still hold what its name says no more.
bool worth_a_retry(Code code) noexcept { return code == Code::kUnavailable || code == Code::kAlreadyExists; }

}  // namespace

bool belongs_to_group(int socket, const Gid& address) noexcept {
  SocketAddress bound;
  SocketAddress peer;
  socklen_t bound_size = sizeof(sockaddr_in6);
  socklen_t peer_size = sizeof(sockaddr_in6);
  sock_filter filter{};
  socklen_t filters = 0;  // the kernel says how many there are
  return option<int>(socket, SOL_SOCKET, SO_DOMAIN) == (address.is_ipv4() ? AF_INET : AF_INET6) &&
         option<int>(socket, SOL_SOCKET, SO_TYPE) == SOCK_DGRAM &&
         option<int>(socket, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_UDP &&
         ::getsockname(socket, bound.get(), &bound_size) == 0 && bound.gid() == address &&
         bound.port() == kRoceUdpPort && ::getpeername(socket, peer.get(), &peer_size) != 0 &&
         option<int>(socket, SOL_SOCKET, SO_REUSEPORT) == 1 && option<int>(socket, SOL_SOCKET, SO_REUSEADDR) == 0 &&
         option<int>(socket, SOL_SOCKET, SO_BINDTOIFINDEX) == 0 &&
         ::getsockopt(socket, SOL_SOCKET, SO_GET_FILTER, &filter, &filters) == 0 && filters == 0;
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::join_once(const GroupNames& names, const Gid& address,
                                                                unsigned place, std::uint32_t scope) {
  auto sockets = take_place(names, address, scope, place);
  if (!sockets) return sockets.error();
  if (sockets->empty()) return std::unique_ptr<SharedAddress>();
  if (const Status status = reaches_itself(sockets->back().get(), place, address, scope); !status.ok()) return status;
  auto name = names.listen_as(place);
  if (!name) return name.error();
  try {
    return std::unique_ptr<SharedAddress>(new SharedAddress(address, names, std::move(*sockets), std::move(*name)));
  } catch (const std::system_error& error) {
    names.leave(place);
    return no_thread(fmt::format("sharing {}", to_string(address)), error);
  }
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::join(const Gid& address, unsigned place, std::uint32_t scope) {
  const auto names = GroupNames::open(address);
  if (!names) return names.error();
  const auto only_one_joins = names->lock();
  if (!only_one_joins) return only_one_joins.error();
  auto joined = join_once(*names, address, place, scope);
  for (int tries = 1; tries < kTries && !joined && worth_a_retry(joined.error().code()); ++tries) {
    std::this_thread::sleep_for(kBetweenTries);
    joined = join_once(*names, address, place, scope);
  }
  if (joined || joined.error().code() != Code::kAlreadyExists) return joined;
  const auto alone = bind_roce_port(address, PortUse::kReceive, scope);  // to look for its holder only once
  return alone ? joined.error() : alone.error();
}

SharedAddress::SharedAddress(const Gid& address, const GroupNames& names, std::vector<PrivateFd> sockets, UniqueFd name)
    : address_(address), names_(names), owner_(::getpid()), sockets_(std::move(sockets)), name_(std::move(name)) {
  server_ = quiet_thread("softroce-share", [this] { serve(); });
}

SharedAddress::~SharedAddress() {
  if (owner_ != ::getpid()) {  // a forked child has neither the place nor the thread
    server_.detach();
    return;
  }
  names_.leave(member());
  ended_ = true;
  ::shutdown(name_.get(), SHUT_RDWR);  // ends accept()
  server_.join();
}

Status SharedAddress::take_requests(std::uint32_t service) const {
  const NoCancellation whole;
  const auto nobody_joins = names_.lock();
  if (!nobody_joins) return nobody_joins.error();
  if (Status taken = names_.take_service(service, member()); !taken.ok()) {
    return {taken.code(), fmt::format("softroce at {}: {}", to_string(address_), taken.message())};
  }
  Status steered = steer(socket(), address_, names_, member());
  if (!steered.ok()) names_.leave_service(service);
  return steered;
}

void SharedAddress::leave_requests(std::uint32_t service) const noexcept {
  if (owner_ != ::getpid()) return;
  const NoCancellation whole;
  // First, as that can be done without descriptors: others can have it then, and whoever takes it steers them away.
  names_.leave_service(service);
  const auto nobody_joins = names_.lock();
  if (nobody_joins) static_cast<void>(steer(socket(), address_, names_, member()));
}

void SharedAddress::serve() noexcept {
  std::vector<int> sockets;
  for (const PrivateFd& socket : sockets_) sockets.push_back(socket.get());
  while (!ended_) {
    const UniqueFd connection(::accept4(name_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) {
      answer_with_sockets(connection.get(), sockets);
    } else if (!ended_) {
      std::this_thread::sleep_for(kBetweenTries);  // no descriptor is free, for one
    }
  }
}

}  // namespace fairlead::soft
