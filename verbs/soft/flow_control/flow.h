// What is on its way to a peer without acknowledgements: how UC and UD keep from overrunning the peer's socket.
//
// Every packet is charged to the peer's window, of which these may have half where connections use it, too. About every
// 32 KiB one asks for a receipt, which a peer of our kind sends once it has taken the packet in; the receipt gives back
// the charges of all packets up to that one. Other peers send none: then the charges come back after a while, which
// bounds the rate. Nothing is ever sent again. Sizes in bytes. Threads: under the domain's lock. Source: receipts are
// our own, on a manufacturer's opcode (IBTA volume 1, 9.2.1); docs/softroce.md describes them. To a stranger, who only
// sends to us, we owe receipts and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/clock.h"
#include "base/intrusive_list.h"
#include "base/timer_queue.h"
#include "verbs/soft/flow_control/window.h"
#include "verbs/soft/port/tx_batch.h"
#include "verbs/soft/wire/psn.h"

namespace fairlead::soft {

struct PortSlot;

/// A receipt that we owe to the peer.
struct OwedReceipt {
  std::uint32_t peer_qpn = 0;
  Psn psn;
  std::uint32_t receiver = 0;  // the queue pair that took a receive request for it; 0: none did
  Nanos since = 0;
};

class Flow {
 public:
  Flow(PortSlot& port, const Gid& peer, Window& window, Window& line)
      : port_(port), peer_(peer), window_(window), line_(line) {}

  /// We are about to send to the peer, which is no stranger from here on.
  void meet() noexcept { met_ = true; }
  [[nodiscard]] bool met() const noexcept { return met_; }

  /// A packet was charged to the window and leaves. True if it is to ask for a receipt.
  bool on_sent(std::uint32_t qpn, Psn psn, std::size_t charge, Nanos now);
  /// Charges that come back to the window.
  [[nodiscard]] std::size_t on_receipt(std::uint32_t qpn, Psn psn, Nanos now);
  [[nodiscard]] std::size_t on_timer(Nanos now);
  /// 0: nothing is on its way.
  [[nodiscard]] Nanos deadline() const noexcept { return deadline_; }
  [[nodiscard]] Window& window() noexcept { return window_; }
  /// Of who waits until has_share(); nothing is charged to it.
  [[nodiscard]] Window& line() noexcept { return line_; }
  /// Whether so much is within what these may have: half of the window where there are connections, else all of it.
  [[nodiscard]] bool has_share(std::size_t charge) const noexcept {
    const std::uint64_t under_way = sent_ - settled_;
    return connections == 0 || under_way == 0 || under_way + charge <= window_.limit() / 2;
  }
  [[nodiscard]] PortSlot& port() noexcept { return port_; }
  [[nodiscard]] const Gid& peer() const noexcept { return peer_; }
  /// The peer is of our kind: it asked for a receipt itself.
  void on_asked() noexcept { answers_ = true; }

  std::size_t connections = 0;  // reliable queue pairs to the same peer, which use the window, too
  OwedReceipt owed;
  std::optional<Route> route;    // of receipts; made with the first
  Link<Flow> owing{this};        // a receipt
  TimerEntry<Flow> timer{this};  // for deadline()

 private:
  static constexpr std::size_t kMarkEvery = 32 << 10;

  struct Mark {
    std::uint32_t qpn;
    Psn psn;
    std::uint64_t sent;  // charges up to it
  };

  std::size_t settle(std::uint64_t upto, Nanos now) noexcept;
  [[nodiscard]] Nanos patience() const noexcept;

  PortSlot& port_;
  Gid peer_;
  Window& window_;
  Window& line_;
  bool met_ = false;
  std::deque<Mark> marks_;
  std::uint64_t sent_ = 0;
  std::uint64_t marked_ = 0;
  std::uint64_t settled_ = 0;
  Nanos deadline_ = 0;
  bool answers_ = false;
  unsigned unanswered_ = 0;  // windows for which no receipt came
};

}  // namespace fairlead::soft
