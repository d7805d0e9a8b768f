// One address, several processes: they share UDP port 4791 of it, and the kernel hands each packet to the process whose
// queue pair it is for.
//
// The members' sockets form a SO_REUSEPORT group, in which a classic BPF program chooses by the upper byte of the
// packet's destination QPN: member n of the group numbers its queue pairs from n << 16 on (QpTable's partition).
//
// The kernel keeps a group as an array and moves the last socket into the place of one that closes, which would
// misroute the packets of the moved. So no socket closes but the last: member n also holds the sockets of the places
// below it. It gets them, when it joins, from the highest member, which holds all, and makes those that are missing. A
// member that died, however it did, leaves its socket open in those above; whoever has its place next takes it over.
// Packets for a place without a process meet silence: in a socket that nobody reads or, past the end of the array, in a
// member that has no such queue pair.
//
// All state is the kernel's (group_names.h). Members are of one user, as the kernel demands of such a group.
// Threads: each object one at a time, but for requests, about which any may call; it has a thread that answers those
// who join.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "verbs/soft/port/udp/group_names.h"
#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

class SharedAddress {
 public:
  /// What one message on a Unix socket carries, and what QPNs can tell apart.
  static constexpr unsigned kMaxMembers = 250;

  /// Joins the address's group at this place, or founds it. Null: another process has the place. `scope` as for
  /// SocketAddress. Errors: the address is not this host's, or held by who does not share it (named where it can be
  /// seen); a member does not answer, or what it gives is no socket of the group; kResourceExhausted: no
  /// descriptors or no thread.
  static Result<std::unique_ptr<SharedAddress>> join(const Gid& address, unsigned place, std::uint32_t scope = 0);
  ~SharedAddress();
  SharedAddress(const SharedAddress&) = delete;
  SharedAddress& operator=(const SharedAddress&) = delete;

  /// The place in the group, and the upper byte of all QPNs.
  [[nodiscard]] std::uint8_t member() const noexcept { return static_cast<std::uint8_t>(sockets_.size() - 1); }
  /// To receive from, and to send. Open as long as this object lives.
  [[nodiscard]] int socket() const noexcept { return sockets_.back().get(); }
  /// Requests for the service, which come to QP1, come here until leave_requests(). Those for services that no member
  /// has taken go to the member that came first of those that live. Error: another member has it.
  [[nodiscard]] Status take_requests(std::uint32_t service) const;
  void leave_requests(std::uint32_t service) const noexcept;

 private:
  /// One try. The lock is held.
  static Result<std::unique_ptr<SharedAddress>> join_once(const GroupNames& names, const Gid& address, unsigned place,
                                                          std::uint32_t scope);
  SharedAddress(const Gid& address, const GroupNames& names, std::vector<PrivateFd> sockets, UniqueFd name);
  void serve() noexcept;

  const Gid address_;
  const GroupNames names_;
  const pid_t owner_;
  std::vector<PrivateFd> sockets_;  // of the places up to this one
  PrivateFd name_;                  // listens
  std::atomic<bool> ended_{false};
  std::thread server_;
};

/// Whether the socket, which another process gave away, can be one of the group's.
[[nodiscard]] bool belongs_to_group(int socket, const Gid& address) noexcept;

}  // namespace fairlead::soft
