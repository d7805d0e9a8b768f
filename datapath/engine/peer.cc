// fairlead::Peer but for its transfers: what it is, look-ups, events, the end.
#include "fairlead/peer.h"

#include <fmt/format.h>

#include "datapath/engine/handles.h"

namespace fairlead {

using datapath::session_of;
using datapath::SessionImpl;
using datapath::usable;

PeerState Peer::state() const noexcept { return valid() ? session_of(*this)->state() : PeerState::kClosed; }

Status Peer::wait_ready(std::chrono::nanoseconds timeout) {
  SessionImpl* session = session_of(*this);
  if (Status fine = usable(session); !fine.ok()) return fine;
  const auto settled = [session] {
    const PeerState state = session->state();
    return state == PeerState::kReady || state == PeerState::kClosed;
  };
  if (!session->host().lane().wait_until(settled, datapath::deadline_after(timeout))) {
    return {Code::kDeadlineExceeded, fmt::format("the session is not ready yet; the wait timed out")};
  }
  if (session->state() == PeerState::kReady) return {};
  const Status closed = session->description().closed;
  return closed.ok() ? Status(Code::kUnavailable, "the session is closed") : closed;
}

std::string Peer::name() const { return valid() ? session_of(*this)->description().name : std::string(); }
std::size_t Peer::lane() const noexcept { return valid() ? session_of(*this)->host().lane().number() : 0; }
std::string Peer::address() const { return valid() ? session_of(*this)->description().address : std::string(); }
std::string Peer::transport() const { return valid() ? session_of(*this)->description().transport : std::string(); }
std::string Peer::principal() const { return valid() ? session_of(*this)->description().principal : std::string(); }
std::string Peer::explain() const { return valid() ? session_of(*this)->description().explain : std::string(); }
PeerStats Peer::stats() const { return valid() ? session_of(*this)->stats() : PeerStats(); }

// ---- names
// -----------------------------------------------------------------------------------------------------------

namespace {

using Found = std::vector<std::shared_ptr<const datapath::RemoteRegionImpl>>;

Result<Found> answer_to(SessionImpl& session, const std::shared_ptr<datapath::LookupRequest>& request,
                        std::string_view name, std::chrono::nanoseconds timeout) {
  const bool ended = session.host().lane().wait_until([&] { return request->finished.load(std::memory_order_acquire); },
                                                      datapath::deadline_after(timeout));
  if (!ended) {
    request->abandoned.store(true);
    return Status(Code::kDeadlineExceeded, fmt::format("no answer about region '{}' in time", name));
  }
  if (!request->status.ok()) return request->status;
  return std::move(request->regions);
}

Result<Found> look_up(SessionImpl& session, std::string_view name, bool prefix, std::chrono::nanoseconds timeout) {
  if (name.size() > datapath::kMaxRegionName || (name.empty() && !prefix)) {
    return Status(Code::kInvalidArgument, fmt::format("a region's name has 1 to {} bytes; this one has {}",
                                                      datapath::kMaxRegionName, name.size()));
  }
  return answer_to(session, session.start_lookup(name, prefix), name, timeout);
}

}  // namespace

Result<RemoteMemory> Peer::lookup(std::string_view name, std::chrono::nanoseconds timeout) {
  SessionImpl* session = session_of(*this);
  if (Status fine = usable(session); !fine.ok()) return fine;
  auto found = look_up(*session, name, false, timeout);
  if (!found) return found.error();
  if (found->empty()) return Status(Code::kNotFound, fmt::format("no region named '{}' is published", name));
  return datapath::make_remote_memory(found->front());
}

Result<std::vector<RemoteMemory>> Peer::list(std::string_view prefix, std::chrono::nanoseconds timeout) {
  SessionImpl* session = session_of(*this);
  if (Status fine = usable(session); !fine.ok()) return fine;
  auto found = look_up(*session, prefix, true, timeout);
  if (!found) return found.error();
  std::vector<RemoteMemory> list;
  list.reserve(found->size());
  for (const auto& region : *found) list.push_back(datapath::make_remote_memory(region));
  return list;
}

Result<RemoteMemory> Peer::import_(std::string_view capability, std::chrono::nanoseconds timeout) {
  SessionImpl* session = session_of(*this);
  if (Status fine = usable(session); !fine.ok()) return fine;
  const auto parsed = datapath::parse_capability(capability);
  if (!parsed) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("a capability is the text that Engine::export_ gives; these {} bytes are none", capability.size()));
  }
  auto found = answer_to(*session, session->start_lookup({}, false, capability), "of a capability", timeout);
  if (!found) return found.error();
  if (found->empty()) return Status(Code::kNotFound, "no region with that capability");
  return datapath::make_remote_memory(found->front());
}

// ---- events
// ----------------------------------------------------------------------------------------------------------

Event Peer::next_event(std::chrono::nanoseconds timeout) {
  Event event;
  SessionImpl* session = session_of(*this);
  if (event.status = usable(session); !event.status.ok()) {
    if (valid()) event.kind = Event::Kind::kClosed;
    return event;
  }
  if (session->take_event(event)) return event;
  datapath::Lane& lane = session->host().lane();
  if (timeout.count() <= 0) {
    lane.poll_once();
  } else {
    lane.wait_for([session] { return session->inbox.pending() != 0 || session->events_over(); }, timeout);
  }
  const bool over = session->events_over();
  if (session->take_event(event) || !over) return event;
  event.status = session->description().closed;
  if (event.status.ok()) event.status = {Code::kUnavailable, "the session was closed, and its events were taken"};
  return event;
}

void Peer::close(std::chrono::nanoseconds grace) noexcept {
  SessionImpl* session = session_of(*this);
  if (usable(session).ok()) session->request_close(grace);
}

}  // namespace fairlead
