#include "verbs/soft/port/shared_address.h"

#include <fmt/format.h>
#include <linux/filter.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>

#include "verbs/soft/port/udp_socket.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {
namespace {

constexpr int kTries = 100;
constexpr auto kBetweenTries = std::chrono::milliseconds(5);
constexpr int kProbeMilliseconds = 20;
constexpr unsigned kQpnByte = 5;  // the upper byte of the BTH's destination QPN

// The program's view begins with the UDP payload. An index past the group's end is hashed to some member, which has no
// such queue pair.
Status steer_by_qpn(int socket, const Gid& address) {
  std::array<sock_filter, 2> code{{BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kQpnByte), BPF_STMT(BPF_RET | BPF_A, 0)}};
  const sock_fprog program{code.size(), code.data()};
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
Status reaches_itself(int socket, unsigned place, const Gid& address) {
  // No packet of RoCE: an opcode that is nobody's, the destination QPN's upper byte, and a number to know it by.
  std::array<std::uint64_t, 2> probe{0, std::random_device{}()};
  auto* bytes = reinterpret_cast<unsigned char*>(probe.data());
  bytes[0] = 0xff;
  bytes[kQpnByte] = static_cast<unsigned char>(place);
  const UniqueFd sender = open_udp_socket(address, 0, PortUse::kSend);
  const SocketAddress to(address, kRoceUdpPort);
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

Highest find_highest(const GroupNames& names) {
  for (unsigned place = SharedAddress::kMaxMembers; place-- > 0;) {
    if (UniqueFd connection = names.connect_to(place)) return {place, std::move(connection)};
  }
  return {};
}

// The sockets up to that of a free place: one whose owner died, or a new one at the end. One try.
Result<std::vector<PrivateFd>> take_place(const GroupNames& names, const Gid& address) {
  std::vector<PrivateFd> sockets;
  if (const Highest highest = find_highest(names); highest.connection) {
    auto all = ask_for_sockets(highest.connection.get(), highest.place + 1);
    if (!all) return all.error();
    sockets = std::move(*all);
    for (unsigned place = 0; place < highest.place; ++place) {
      if (names.connect_to(place)) continue;
      sockets.erase(sockets.begin() + place + 1, sockets.end());
      drain(sockets.back().get());
      return sockets;
    }
  }
  if (sockets.size() == SharedAddress::kMaxMembers) {
    return {Code::kResourceExhausted,
            fmt::format("softroce: all {} places at {} are taken; end a process, or choose another address with "
                        "FAIRLEAD_SOFT_ADDRESS",
                        SharedAddress::kMaxMembers, to_string(address))};
  }
  auto socket = bind_roce_port(address, PortUse::kShared);
  if (!socket) return socket.error();
  if (const Status status = steer_by_qpn(socket->get(), address); !status.ok()) return status;
  sockets.emplace_back(std::move(*socket));
  return sockets;
}

// A process that is ending may still hold what its name says no more.
bool worth_a_retry(Code code) noexcept { return code == Code::kUnavailable || code == Code::kAlreadyExists; }

}  // namespace

Result<std::unique_ptr<SharedAddress>> SharedAddress::join(const Gid& address) {
  const GroupNames names(to_string(address));
  const auto only_one_joins = names.lock();
  if (!only_one_joins) return only_one_joins.error();
  Status status;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kBetweenTries);
    auto sockets = take_place(names, address);
    if (!sockets) {
      status = sockets.error();
      if (!worth_a_retry(status.code())) break;
      continue;
    }
    const auto place = static_cast<unsigned>(sockets->size() - 1);
    status = reaches_itself(sockets->back().get(), place, address);
    if (!status.ok()) continue;
    if (UniqueFd name = names.listen_as(place))
      return std::unique_ptr<SharedAddress>(new SharedAddress(std::move(*sockets), std::move(name)));
    status = {Code::kUnavailable,
              fmt::format("softroce cannot take a place at {}: {}", to_string(address), std::strerror(errno))};
  }
  return status;
}

SharedAddress::SharedAddress(std::vector<PrivateFd> sockets, UniqueFd name)
    : sockets_(std::move(sockets)), name_(std::move(name)) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the application's
  server_ = std::thread([this] { serve(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_setname_np(server_.native_handle(), "softroce-share");
}

SharedAddress::~SharedAddress() {
  ::shutdown(name_.get(), SHUT_RDWR);  // ends accept()
  server_.join();
}

void SharedAddress::serve() noexcept {
  std::vector<int> sockets;
  for (const PrivateFd& socket : sockets_) sockets.push_back(socket.get());
  while (true) {
    const UniqueFd connection(::accept4(name_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) {
      answer_with_sockets(connection.get(), sockets);
    } else if (errno != EINTR && errno != ECONNABORTED && errno != EMFILE && errno != ENFILE) {
      return;
    } else {
      std::this_thread::sleep_for(kBetweenTries);
    }
  }
}

}  // namespace fairlead::soft
