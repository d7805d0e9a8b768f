// Counters of sessions, in the two structures that have them.
#pragma once

#include "fairlead/peer.h"

namespace fairlead::capi {

template <typename Structure>
void put_peer_stats(const PeerStats& from, Structure& to) {
  to.bytes_written = from.bytes_written;
  to.bytes_read = from.bytes_read;
  to.messages_sent = from.messages_sent;
  to.messages_received = from.messages_received;
  to.transfers_completed = from.transfers_completed;
  to.transfers_failed = from.transfers_failed;
  to.replayed_transfers = from.replayed_transfers;
  to.recoveries = from.recoveries;
  to.failovers = from.failovers;
  to.failbacks = from.failbacks;
  to.paths_measured = from.paths_measured;
  to.resumptions = from.resumptions;
  to.duplicate_notifications_dropped = from.duplicate_notifications_dropped;
  to.staged_bytes = from.staged_bytes;
  to.rail_bytes = from.rail_bytes;
  to.atomics = from.atomics;
  to.atomics_served = from.atomics_served;
  to.transfers_under_way = from.transfers_under_way;
  to.events_untaken = from.events_untaken;
  to.awaiting_credit = from.awaiting_credit;
}

}  // namespace fairlead::capi
