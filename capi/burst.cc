#include "fairlead/burst.h"

#include <chrono>

#include "capi/handles.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

struct fairlead_burst {
  Burst burst;
};

namespace {

template <typename Make>
fairlead_code made(fairlead_peer* peer, fairlead_traffic traffic, fairlead_burst** burst, Make&& make) {
  return outcome([&]() -> Status {
    clear(burst);
    if (peer == nullptr) return missing("peer");
    if (burst == nullptr) return missing("burst");
    if (Status status = check_enum(traffic, FAIRLEAD_COMMANDS, "traffic"); !status.ok()) return status;
    return hand_over([&]() -> Result<Burst> { return make(peer->peer, static_cast<TrafficClass>(traffic)); }, burst);
  });
}

/// What those that need a burst have in common.
template <typename Do>
fairlead_code of(fairlead_burst* burst, Do&& act) {
  return outcome([&]() -> Status { return burst != nullptr ? act(burst->burst) : missing("burst"); });
}

}  // namespace

fairlead_code fairlead_peer_burst_writes(fairlead_peer* peer, fairlead_traffic traffic, fairlead_burst** burst) {
  return made(peer, traffic, burst, Burst::writes);
}
fairlead_code fairlead_peer_burst_reads(fairlead_peer* peer, fairlead_traffic traffic, fairlead_burst** burst) {
  return made(peer, traffic, burst, Burst::reads);
}

fairlead_code fairlead_burst_add(fairlead_burst* burst, const fairlead_memory* local,
                                 const fairlead_remote_memory* remote) {
  return of(burst, [&](Burst& to) {
    const Memory nothing;
    const RemoteMemory nowhere;
    return to.add(local != nullptr ? local->memory : nothing, remote != nullptr ? remote->memory : nowhere);
  });
}
fairlead_code fairlead_burst_flush(fairlead_burst* burst) {
  return of(burst, [](Burst& to) { return to.flush(); });
}
uint64_t fairlead_burst_added(const fairlead_burst* burst) { return burst != nullptr ? burst->burst.added() : 0; }
uint64_t fairlead_burst_ended(fairlead_burst* burst) {
  std::uint64_t ended = 0;
  const fairlead_code fine = of(burst, [&](Burst& of_it) {
    ended = of_it.ended();
    return Status();
  });
  return fine == FAIRLEAD_OK ? ended : 0;
}
fairlead_code fairlead_burst_wait(fairlead_burst* burst, uint64_t count, int64_t timeout_ns) {
  return of(burst, [&](Burst& to) { return to.wait(count, std::chrono::nanoseconds(timeout_ns)); });
}
void fairlead_burst_release(fairlead_burst* burst) { delete burst; }
