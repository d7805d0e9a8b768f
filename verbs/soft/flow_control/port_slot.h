// A port, what is about to leave through it, and who is behind it: its peers, of which those that nobody holds are
// forgotten in time. Sources can be forged, and who accepts from all of an IPv6 network meets no end of addresses.
//
// Owns all of them; addresses stay. Threads: under the lock of the progress context that has it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/intrusive_list.h"
#include "verbs/soft/flow_control/dcqcn.h"
#include "verbs/soft/flow_control/peer.h"
#include "verbs/soft/flow_control/senders.h"
#include "verbs/soft/flow_control/window.h"
#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/port/tx_batch.h"
#include "verbs/soft/wire/psn.h"

namespace fairlead::soft {

struct PortSlot {
  explicit PortSlot(std::unique_ptr<PacketPort> owned)
      : port(std::move(owned)),
        least_charge(port->least_charge()),
        far_window(port->receive_window().far),
        reads(port->receive_window().near),
        far_reads(port->receive_window().near) {
    far_reads.announce(far_window);
  }

  /// What UC and UD have on their way to a peer; null where nothing is known of it.
  [[nodiscard]] Flow* find_flow(const Gid& peer) noexcept;
  /// One that we are about to send to.
  [[nodiscard]] PeerHold meet(const Gid& peer);
  /// The flow of a peer that sends to us, perhaps without our sending to it. It may be forgotten, unless we do.
  [[nodiscard]] Flow& hear_of(const Gid& peer) { return know(peer).flow; }
  [[nodiscard]] std::size_t peers() const noexcept { return peers_.size(); }

  /// What of the receive buffer each of those that send to us may fill; READs, which we ask for ourselves, have up to
  /// half.
  [[nodiscard]] std::size_t share() const noexcept {
    return (far_window - std::min(far_window / 2, far_reads.used())) / senders.count();
  }

  std::unique_ptr<PacketPort> port;
  References* references = nullptr;  // the port's, once there is a route that may refer
  const std::uint32_t least_charge;
  const std::size_t far_window;     // 0: the port announces nothing
  bool bundles = true;              // small messages may share packets
  bool shared = false;              // with other processes, by the partitions of queue pair numbers
  UrgentWay* urgent_way = nullptr;  // the port's, once there is a route with one
  TxBatch batch;
  Window reads;                           // what READs have asked for and not received, of this host
  Window far_reads;                       // and of others
  Senders senders;                        // at other hosts
  Psn next_mad_psn;                       // of QP1
  std::optional<DcqcnConfig> congestion;  // what its queue pairs begin with

 private:
  [[nodiscard]] KnownPeer& know(const Gid& peer);
  void forget_idle() noexcept;

  std::unordered_map<Gid, std::unique_ptr<KnownPeer>, GidHash> peers_;
  List<KnownPeer> known_;
};

}  // namespace fairlead::soft
