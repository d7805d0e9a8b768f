// Who is behind a port: the window toward a peer, what UC and UD have on their way to it, and which of its processes
// send to us.
//
// It lives while somebody holds it (the path of a queue pair or an address handle, a datagram that was posted), and
// beyond that for what was learnt of the way, until its port forgets it. Threads: under the lock of the progress
// context; but a hold may be copied and let go of by whoever has one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "base/intrusive_list.h"
#include "verbs/soft/flow_control/flow.h"
#include "verbs/soft/flow_control/senders.h"
#include "verbs/soft/flow_control/window.h"

namespace fairlead::soft {

class KnownPeer {
 public:
  KnownPeer(PortSlot& port, const Gid& address, std::size_t room)
      : window(room), line(room), flow(port, address, window, line) {}

  /// The process that has such a queue pair, as one that sends to us; where several share an address, the upper byte
  /// tells them apart. Its address stays.
  [[nodiscard]] Sender& sender(std::uint32_t qpn) { return senders_[qpn >> 16]; }

  void hold() noexcept { holds_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() noexcept { holds_.fetch_sub(1, std::memory_order_release); }
  /// Nobody holds it, and nothing that was sent may still come back.
  [[nodiscard]] bool is_idle() const noexcept {
    return holds_.load(std::memory_order_acquire) == 0 && window.used() == 0 && !window.has_waiting() &&
           !line.has_waiting() && flow.deadline() == 0;
  }

  Window window;
  Window line;  // the flow's
  Flow flow;
  Link<KnownPeer> known{this};  // to its port; who was met or heard of last is the last

 private:
  std::map<std::uint32_t, Sender> senders_;
  std::atomic<std::size_t> holds_{0};
};

/// Keeps a peer from being forgotten.
class PeerHold {
 public:
  PeerHold() = default;
  explicit PeerHold(KnownPeer& peer) noexcept : peer_(&peer) { peer.hold(); }
  PeerHold(const PeerHold& other) noexcept : peer_(other.peer_) {
    if (peer_ != nullptr) peer_->hold();
  }
  /// Most datagrams of a queue pair go to who the last ones went to.
  PeerHold& operator=(const PeerHold& other) noexcept {
    if (peer_ != other.peer_) PeerHold(other).swap(*this);
    return *this;
  }
  ~PeerHold() {
    if (peer_ != nullptr) peer_->let_go();
  }

  void swap(PeerHold& other) noexcept { std::swap(peer_, other.peer_); }
  [[nodiscard]] explicit operator bool() const noexcept { return peer_ != nullptr; }
  [[nodiscard]] KnownPeer* operator->() const noexcept { return peer_; }

 private:
  KnownPeer* peer_ = nullptr;
};

}  // namespace fairlead::soft
