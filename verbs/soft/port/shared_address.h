// One address, several processes: they share UDP port 4791 of it, and the kernel hands each packet to the process whose
// queue pair it is for.
//
// The members' sockets form a SO_REUSEPORT group, in which a classic BPF program chooses by the upper byte of the
// packet's destination QPN: member n of the group numbers its queue pairs from n << 16 on (QpTable's partition).
//
// The kernel keeps a group as an array and moves the last socket into the place of one that closes, which would
// misroute the packets of the moved. So no socket closes but the last: member n also holds the sockets of the members
// below it, which it gets, when it joins, from the highest member, which holds all. A member that died, however it did,
// leaves its socket open in those above; the next process that joins takes it over. Packets for a dead member's queue
// pairs meet silence: in a socket that nobody reads or, past the end of the array, in a member that has no such queue
// pair.
//
// All state is the kernel's (group_names.h). Members are of one user, as the kernel demands of such a group.
// Threads: each object one at a time; it has a thread that answers those who join.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "verbs/soft/port/group_names.h"
#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

class SharedAddress {
 public:
  /// What one message on a Unix socket carries, and what QPNs can tell apart.
  static constexpr unsigned kMaxMembers = 250;

  /// Joins the address's group, or founds it. Errors: the address is not this host's, or held by who does not share it
  /// (named where it can be seen); all places are taken; a member does not answer.
  static Result<std::unique_ptr<SharedAddress>> join(const Gid& address);
  ~SharedAddress();
  SharedAddress(const SharedAddress&) = delete;
  SharedAddress& operator=(const SharedAddress&) = delete;

  /// The place in the group, and the upper byte of all QPNs.
  [[nodiscard]] std::uint8_t member() const noexcept { return static_cast<std::uint8_t>(sockets_.size() - 1); }
  /// To receive from, and to send. Open as long as this object lives.
  [[nodiscard]] int socket() const noexcept { return sockets_.back().get(); }

 private:
  SharedAddress(std::vector<PrivateFd> sockets, UniqueFd name);
  void serve() noexcept;

  std::vector<PrivateFd> sockets_;  // of the members up to this one
  PrivateFd name_;                  // listens
  std::thread server_;
};

}  // namespace fairlead::soft
