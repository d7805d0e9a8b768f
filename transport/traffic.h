// What an endpoint has moved and what it holds, for operators.
//
// Owner: the endpoint. Written by who drives it, read by any thread.
#pragma once

#include "base/counter.h"

namespace fairlead::datapath {

/// shm: bytes that this end copied, by the way that they took. What went through a ring counts at either end.
struct Copies {
  Counter through_rings;
  Counter mapped, streamed;  // from memory that both map; the latter past the caches
  Counter by_kernel;         // process_vm_readv
};

struct Traffic {
  // Bytes as this end sees them. tcp: all that its connections carry after their greeting, frame headers included, as
  // it moves. verbs: the payload of requests when they complete, of messages, and of a peer's writes that carry a
  // notification; what else a peer writes and reads, the device moves alone.
  Counter bytes_sent, bytes_received;
  // Work requests that a path took. Read `ended` first, and the difference is what is under way.
  Counter requests, ended;
  // Paths that became ready, those of them that are ready no more, and how many died under their sessions. A path by
  // itself cannot tell a death from a peer that leaves: who uses it counts (Endpoint::path_died).
  Counter paths, paths_ended, paths_lost;
  Counter retransmissions;  // tcp: segments. Others count elsewhere, or in hardware
  Copies copies;
};

}  // namespace fairlead::datapath
