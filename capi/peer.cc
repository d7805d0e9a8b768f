#include <chrono>
#include <span>

#include "capi/handles.h"
#include "capi/stats.h"
#include "capi/structures.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

namespace {

/// A text of the peer's, as snprintf.
template <typename Text>
size_t text_by(const fairlead_peer* peer, char* text, size_t size, Text&& of) {
  return value_of(std::size_t{0},
                  [&] { return put_text(peer != nullptr ? of(peer->peer) : std::string(), text, size); });
}

/// What lookup and import have in common.
template <typename Do>
fairlead_code found_by(fairlead_peer* peer, fairlead_remote_memory** memory, Do&& act) {
  return outcome([&]() -> Status {
    clear(memory);
    if (peer == nullptr) return missing("peer");
    if (memory == nullptr) return missing("memory");
    return hand_over([&] { return act(peer->peer); }, memory);
  });
}

}  // namespace

void fairlead_peer_release(fairlead_peer* peer) {
  (void)outcome([&]() -> Status {
    delete peer;
    return {};
  });
}

bool fairlead_peer_same(const fairlead_peer* one, const fairlead_peer* other) {
  return one != nullptr && other != nullptr && one->peer == other->peer;
}

fairlead_peer_state fairlead_peer_get_state(const fairlead_peer* peer) {
  return peer != nullptr ? static_cast<fairlead_peer_state>(peer->peer.state()) : FAIRLEAD_PEER_CLOSED;
}

fairlead_code fairlead_peer_wait_ready(fairlead_peer* peer, int64_t timeout_ns) {
  return outcome(
      [&] { return peer != nullptr ? peer->peer.wait_ready(std::chrono::nanoseconds(timeout_ns)) : missing("peer"); });
}

size_t fairlead_peer_name(const fairlead_peer* peer, char* text, size_t size) {
  return text_by(peer, text, size, [](const Peer& of) { return of.name(); });
}
size_t fairlead_peer_principal(const fairlead_peer* peer, char* text, size_t size) {
  return text_by(peer, text, size, [](const Peer& of) { return of.principal(); });
}
size_t fairlead_peer_address(const fairlead_peer* peer, char* text, size_t size) {
  return text_by(peer, text, size, [](const Peer& of) { return of.address(); });
}
size_t fairlead_peer_transport(const fairlead_peer* peer, char* text, size_t size) {
  return text_by(peer, text, size, [](const Peer& of) { return of.transport(); });
}
size_t fairlead_peer_explain(const fairlead_peer* peer, char* text, size_t size) {
  return text_by(peer, text, size, [](const Peer& of) { return of.explain(); });
}
size_t fairlead_peer_lane(const fairlead_peer* peer) {
  return value_of(std::size_t{0}, [&] { return peer != nullptr ? peer->peer.lane() : 0; });
}

fairlead_code fairlead_peer_get_stats(const fairlead_peer* peer, fairlead_peer_stats* stats) {
  return outcome([&]() -> Status {
    if (peer == nullptr) return missing("peer");
    fairlead_peer_stats full = FAIRLEAD_INIT(fairlead_peer_stats);
    put_peer_stats(peer->peer.stats(), full);
    return give(full, stats, "fairlead_peer_stats");
  });
}

fairlead_code fairlead_peer_lookup(fairlead_peer* peer, const char* name, int64_t timeout_ns,
                                   fairlead_remote_memory** memory) {
  return found_by(peer, memory,
                  [&](Peer& of) { return of.lookup(text_of(name), std::chrono::nanoseconds(timeout_ns)); });
}

fairlead_code fairlead_peer_import(fairlead_peer* peer, const char* capability, int64_t timeout_ns,
                                   fairlead_remote_memory** memory) {
  return found_by(peer, memory,
                  [&](Peer& of) { return of.import_(text_of(capability), std::chrono::nanoseconds(timeout_ns)); });
}

fairlead_code fairlead_peer_list(fairlead_peer* peer, const char* prefix, int64_t timeout_ns,
                                 void (*each)(void* context, fairlead_remote_memory* memory), void* context) {
  return outcome([&]() -> Status {
    if (peer == nullptr) return missing("peer");
    if (each == nullptr) return missing("each");
    auto found = peer->peer.list(text_of(prefix), std::chrono::nanoseconds(timeout_ns));
    if (!found) return found.error();
    std::vector<fairlead_remote_memory*> handles(found->size());
    if (Status status = hand_over_all(std::move(found), handles.data()); !status.ok()) return status;
    for (fairlead_remote_memory* handle : handles) each(context, handle);
    return {};
  });
}

void fairlead_peer_close(fairlead_peer* peer, int64_t grace_ns) {
  if (peer != nullptr) peer->peer.close(std::chrono::nanoseconds(grace_ns));
}
