// What a device counted, with the names of Linux rxe's hw_counters where it has the same one.
//
// Threads: written under the domain's lock, read by anyone at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/counter.h"

namespace fairlead::soft {

struct Counters {
  Counter sent_pkts;
  Counter rcvd_pkts;
  Counter sent_bytes;  // of those packets, BTH to ICRC
  Counter rcvd_bytes;
  Counter send_err;             // packets that the system did not take
  Counter duplicate_request;    // requests received again
  Counter out_of_seq_request;   // requests past a gap
  Counter rcvd_rnr_err;         // RNR NAKs received
  Counter send_rnr_err;         // RNR NAKs sent
  Counter rcvd_seq_err;         // sequence NAKs received
  Counter send_seq_err;         // sequence NAKs sent
  Counter ack_deferred;         // acknowledgements coalesced into a later one
  Counter completer_retry_err;  // times a requester went back
  Counter retry_exceeded_err;
  Counter retry_rnr_exceeded_err;
  Counter rdma_sends;      // messages completed, as requester
  Counter rdma_recvs;      // messages completed, as responder
  Counter lost_responses;  // READ responses found missing by what followed them
  Counter cq_overflows;
  // Received and dropped, by reason.
  Counter drop_malformed;
  Counter drop_icrc;
  Counter drop_no_qp;
  Counter drop_wrong_source;
  Counter drop_wrong_service;  // an opcode that is not of the queue pair's type
  Counter drop_pkey;
  Counter drop_state;
  Counter drop_qkey;
  Counter drop_no_receive;   // UC and UD: no receive request was posted
  Counter drop_length;       // UC and UD: longer than the receive request, or UD than the path MTU
  Counter drop_message;      // UC: messages that a gap or a refusal cut short
  Counter drop_bogus;        // a response that answers nothing
  Counter lane_handed_over;  // to another lane of the port, whose queue it should have come by (port/lanes.h)
  Counter drop_lane_full;    // were to be, but that lane did not keep up
  // Congestion, named as NVIDIA's adapters do: notification point (receiver) and reaction point (sender).
  Counter np_ecn_marked_roce_packets;
  Counter np_cnp_sent;
  Counter rp_cnp_handled;
  Counter rp_cnp_ignored;
  Counter icrc_explained;  // accepted with an IPv4 id that was inferred
  // Between devices of our kind at different hosts: answers that announced a receive window.
  Counter sent_windows;
  Counter rcvd_windows;
  // And between such devices anywhere:
  Counter rcvd_early;    // packets that came before their turn, and were kept
  Counter sent_missing;  // reports of packets that are missing before those
  Counter rcvd_missing;
  Counter sent_repeats;  // packets sent again, alone, because of such reports
  // Of packets above, those that crossed memory of this host instead of sockets (port/local/).
  Counter sent_by_memory;
  Counter rcvd_by_memory;
  // Of those, packets that left their payload where it lay, for the receiver to copy.
  Counter sent_by_reference;
  Counter rcvd_by_reference;  // and was copied
  Counter sent_reference_bytes;
  Counter rcvd_reference_bytes;
  Counter references_withdrawn;  // by the sender, before their payload was copied
  Counter references_failed;     // whose payload could not be copied
  Counter references_denied;     // links by which the system lets nothing be copied so
};

/// At most so many; all are Counter, so that other processes can read them as an array (counter_page.h).
inline constexpr std::size_t kMostCounters = sizeof(Counters) / sizeof(Counter);
static_assert(sizeof(Counter) == sizeof(std::uint64_t));

struct CounterValue {
  std::string_view name;
  std::uint64_t value;
};

/// In the order of their declaration.
[[nodiscard]] std::vector<CounterValue> read(const Counters& counters);

}  // namespace fairlead::soft
