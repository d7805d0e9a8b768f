#include <chrono>

#include "capi/handles.h"
#include "capi/structures.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

namespace {

/// What the event points at, and its peer.
Status give_event(Event&& from, Peer&& peer, fairlead_event* to) {
  auto owned = std::make_unique<Event>(std::move(from));
  auto handle = peer.valid() ? std::make_unique<fairlead_peer>(fairlead_peer{std::move(peer)}) : nullptr;
  fairlead_event full = FAIRLEAD_INIT(fairlead_event);
  full.kind = static_cast<fairlead_event_kind>(owned->kind);
  full.traffic = static_cast<fairlead_traffic>(owned->traffic);
  full.value = owned->value;
  full.data = owned->data.data();
  full.data_size = owned->data.size();
  full.text = owned->text.c_str();
  full.status = static_cast<fairlead_code>(owned->status.code());
  full.status_text = owned->status.message().c_str();
  full.peer = handle.release();
  full.owned = owned.release();
  return give(full, to, "fairlead_event");  // its size was looked at before
}

/// What every release has written and read.
constexpr std::size_t kEventBytes = offsetof(fairlead_event, owned) + sizeof(void*);

/// That there is room must be known before an event is taken, which could not be given back.
Status check(fairlead_event* event) {
  if (event != nullptr && event->struct_size >= sizeof(std::size_t) && event->struct_size < kEventBytes) {
    return {Code::kInvalidArgument, "fairlead_event.struct_size is " + std::to_string(event->struct_size) +
                                        ": there is no room for all that an event holds"};
  }
  const fairlead_event none = FAIRLEAD_INIT(fairlead_event);
  return give(none, event, "fairlead_event");
}

}  // namespace

fairlead_code fairlead_engine_next_event(fairlead_engine* engine, int64_t timeout_ns, fairlead_event* event) {
  return outcome([&]() -> Status {
    if (Status status = check(event); !status.ok()) return status;
    if (engine == nullptr) return missing("engine");
    auto [peer, next] = engine->engine->next_event(std::chrono::nanoseconds(timeout_ns));
    return give_event(std::move(next), std::move(peer), event);
  });
}

fairlead_code fairlead_peer_next_event(fairlead_peer* peer, int64_t timeout_ns, fairlead_event* event) {
  return outcome([&]() -> Status {
    if (Status status = check(event); !status.ok()) return status;
    if (peer == nullptr) return missing("peer");
    return give_event(peer->peer.next_event(std::chrono::nanoseconds(timeout_ns)), Peer(), event);
  });
}

void fairlead_event_clear(fairlead_event* event) {
  if (event == nullptr) return;
  fairlead_peer_release(event->peer);
  (void)outcome([&]() -> Status {
    delete static_cast<Event*>(event->owned);
    return {};
  });
  std::memset(reinterpret_cast<char*>(event) + sizeof event->struct_size, 0, kEventBytes - sizeof event->struct_size);
}
