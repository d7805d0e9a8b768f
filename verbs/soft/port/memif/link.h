// The connection behind a memif: who is there, what both agreed on, and the end of it.
//
// The master listens and has one peer at a time, others are told so. The slave connects, again and again, ten times a
// second, but not while the last one waits to be greeted (../ungreeted.h). Each takes only processes of its own user. A
// peer that dies, leaves, lies or is too slow to agree is let go, which is logged, and another one may come. Its memory
// goes then, but in tend() and fail() alone.
// Threads: all calls but wait_fd() by one thread at a time. A child of fork() has no link.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/private_fd.h"
#include "base/system/fork_mark.h"
#include "fairlead/status.h"
#include "verbs/soft/port/memif/handshake.h"

namespace fairlead::soft::memif {

/// Where a socket is: a name that contains a slash is of a file, any other one of the abstract namespace; a leading @
/// says that a name with slashes is abstract, too.
[[nodiscard]] bool is_file(const std::string& socket) noexcept;

struct LinkSettings {
  Role role = Role::kMaster;
  std::string socket = {};
  Settings wire = {};
};

class Link {
 public:
  /// Errors: the socket's name is taken, too long, or of somebody else.
  [[nodiscard]] static Result<std::unique_ptr<Link>> open(const LinkSettings& settings);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// What carries frames; null while there is no peer. It stays until the next tend() or fail().
  [[nodiscard]] Wire* wire() const noexcept { return handshake_ ? handshake_->wire() : nullptr; }
  /// Counts the peers that there were.
  [[nodiscard]] unsigned generation() const noexcept { return generation_; }
  /// Whether there has been one that frames could go to.
  [[nodiscard]] bool was_up() const noexcept { return was_up_; }
  /// Whether a peer is there that has not agreed yet: tend() is worth while.
  [[nodiscard]] bool talking() const noexcept { return handshake_ && handshake_->wire() == nullptr; }
  /// Everything but frames.
  void tend() noexcept;
  /// Makes wait_fd() silent until something happens: before tend() and a look for frames, by whoever has waited on it.
  void hush() noexcept;
  /// The peer has done what cannot be: it is told, and let go.
  void fail(const char* what) noexcept;
  /// Makes the peer look at this way. Never waits, unless the peer makes it in the very moment.
  void wake_peer(const Way& way) noexcept;
  /// Becomes readable when frames may have come, when tend() has something to do, and when ring_in()'s time is over.
  [[nodiscard]] int wait_fd() const noexcept { return events_.get(); }
  void ring_in(Nanos time) noexcept;

 private:
  explicit Link(const LinkSettings& settings);
  [[nodiscard]] Status listen();
  [[nodiscard]] bool is_mine() const noexcept { return fork_mark_.is_mine(); }
  [[nodiscard]] bool watch(int fd, std::uint32_t how) noexcept;
  void accept() noexcept;
  void dial() noexcept;
  void meet(PrivateFd socket) noexcept;
  void converse() noexcept;
  [[nodiscard]] bool say(const Outgoing& what) noexcept;
  void part(const std::string& why, bool tell, bool blame) noexcept;

  const LinkSettings settings_;
  const std::string name_;  // for messages
  const ForkMark fork_mark_;
  PrivateFd events_;  // epoll
  UniqueFd alarm_;
  PrivateFd listener_;
  PrivateFd peer_;
  PrivateFd ungreeted_;  // the connection before, which the master has not come to
  std::unique_ptr<Handshake> handshake_;
  Nanos since_ = 0;  // when the peer came, or when the link came up
  Nanos dial_at_ = 0;
  unsigned generation_ = 0;
  bool was_up_ = false;
  bool heard_ = false;  // of the peer
  bool said_no_descriptor_ = false;
  std::string said_;  // the last reason that was logged
};

}  // namespace fairlead::soft::memif
