#include "datapath/engine/engine_lane.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/system/affinity.h"
#include "base/system/no_watch.h"
#include "datapath/session/control_socket.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kTick{1};
constexpr milliseconds kBusySleep{20};  // with sessions: their timers are this coarse while the lane sleeps
constexpr milliseconds kIdleSleep{500};
constexpr milliseconds kCopySleep{1};                   // nobody wakes a lane when a copy ends
constexpr std::chrono::microseconds kControlEvery{20};  // the control connections are looked at: a system call

std::shared_ptr<SessionImpl> shared(SessionImpl& session) {
  return std::static_pointer_cast<SessionImpl>(session.shared_from_this());
}

void fail(SessionImpl& session, const Status& why) { session.fail(why); }
void abandon(SessionImpl& session, const Status& why) { session.abandon(why); }

}  // namespace

EngineLane::EngineLane(EngineCommons& commons, const LiveEngine& fork, std::size_t number, Principals known)
    : commons_(commons),
      fork_(fork),
      principals_(std::move(known)),
      transports_(number, lane_),
      control_epoll_(UniqueFd(::epoll_create1(EPOLL_CLOEXEC))),
      queues_(commons.config.lanes > 1 ? &commons.waiters : nullptr),
      lane_(*this, commons.config.progress, commons.config.spin, number) {}

Status EngineLane::start(std::weak_ptr<void> owner, Listener* listener, std::function<void(UniqueFd)> take) {
  owner_ = std::move(owner);
  listener_ = listener;
  take_ = std::move(take);
  transports_.begin_with([this](std::string_view name) { return commons_.placement.weight_of(name); });
  transports_.adopt();
  if (!lane_.watch(control_epoll_.get())) return no_watch("control connections", errno);
  if (Status started = lane_.start(); !started.ok()) return started;
  commons_.placement.pin(lane_.number(), lane_.thread());
  return {};
}

// ---- sessions ------------------------------------------------------------------------------------------------------

std::shared_ptr<SessionImpl> EngineLane::make_session(bool active, std::string target) {
  return std::make_shared<SessionImpl>(std::shared_ptr<SessionHost>(owner_.lock(), this), active, std::move(target));
}

void EngineLane::enter(std::shared_ptr<SessionImpl> session, std::function<void(SessionImpl&)> begin) {
  load_.fetch_add(1, std::memory_order_relaxed);
  lane_.submit([this, session = std::move(session), begin = std::move(begin)] {
    if (closed_) return session->abandon({Code::kUnavailable, "the engine is shut down"});
    transports_.adopt();
    live_.push_back(session);
    begin(*session);
  });
}

void EngineLane::enter(UniqueFd connection) {
  const auto fd = std::make_shared<UniqueFd>(std::move(connection));
  enter(make_session(false), [this, fd](SessionImpl& session) {
    meet(shared(session));
    session.start_passive(std::make_unique<ControlChannel>(make_control_stream(std::move(*fd)), false));
  });
}

void EngineLane::resume_here(std::unique_ptr<ControlChannel> channel, const control::Resume& resume) {
  const auto moved = std::make_shared<std::unique_ptr<ControlChannel>>(std::move(channel));
  enter(make_session(false), [this, moved, resume](SessionImpl& session) {
    meet(shared(session));
    session.start_passive(std::move(*moved), &resume);
  });
}

/// Whoever has said nothing for longest makes room.
void EngineLane::meet(const std::shared_ptr<SessionImpl>& stranger) { end(commons_.sessions.meet(stranger), abandon); }

/// On its own lane. One of this lane stays in live_ for the rest of the round.
void EngineLane::end(const GivesWay& it, void (*how)(SessionImpl&, const Status&)) {
  if (it.session == nullptr) return;
  if (&it.session->host() == this) return how(*it.session, it.why);
  it.session->host().lane().submit([it, how] { how(*it.session, it.why); });
}

Status EngineLane::admit_peer(const SessionImpl& session, const std::string& principal, CreditWindow::Limits& window) {
  GivesWay gives_way;
  Status admitted = commons_.sessions.admit(session, principal, window, gives_way);
  end(gives_way, fail);
  return admitted;
}

void EngineLane::session_ready(SessionImpl& session) {
  commons_.sessions.ready(shared(session));
  if (!session.is_active()) queues_.push_accepted(session.shared_from_this());
}

void EngineLane::session_cut(SessionImpl& session, bool is_cut) {
  if (!is_cut) return commons_.sessions.resumed(session);
  end(commons_.sessions.cut(session), fail);
}

void EngineLane::open_for_peer(const std::vector<Offer>& theirs) {
  // Threads of a device are not to stay on the CPU of the lane that opens it.
  const ElsewhereMeanwhile not_here(commons_.placement.elsewhere());
  commons_.devices.open_for_peer(theirs, commons_.config);
  transports_.adopt();
}

void EngineLane::close() {
  closed_ = true;
  for (const auto& session : std::exchange(live_, {})) session->abandon();
  transports_.close();
}

// ---- driving -------------------------------------------------------------------------------------------------------

Status EngineLane::watch_control(const ControlStream& stream, ControlLink& link, std::uint32_t events, bool first) {
  epoll_event event{.events = events, .data = {.ptr = &link}};
  const int changed = ::epoll_ctl(control_epoll_.get(), first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, stream.fd(), &event);
  return first && changed != 0 ? no_watch("a control connection", errno) : Status();
}

void EngineLane::unwatch_control(const ControlStream& stream) {
  ::epoll_ctl(control_epoll_.get(), EPOLL_CTL_DEL, stream.fd(), nullptr);
}

Result<std::unique_ptr<ControlStream>> EngineLane::dial(const std::string& numeric_host, std::uint16_t port) {
  Result<UniqueFd> fd = start_connect(numeric_host, port);
  if (!fd) return fd.error();
  return make_control_stream(std::move(*fd));
}

/// A turn for each connection, and no more than one. Who left frames the last time and is not told of now comes first.
void EngineLane::poll_control() {
  epoll_event events[32];
  const int n = ::epoll_wait(control_epoll_.get(), events, 32, 0);
  const std::span<const epoll_event> told_of(events, static_cast<std::size_t>(std::max(n, 0)));
  for (std::size_t s = 0; s < live_.size(); ++s) {
    ControlLink& link = live_[s]->link();
    const auto is_its = [&link](const epoll_event& event) { return event.data.ptr == &link; };
    if (link.pending() && std::ranges::none_of(told_of, is_its)) link.on_ready(EPOLLIN);
  }
  for (const epoll_event& event : told_of) {
    if (event.data.ptr == nullptr) {
      listener_->accept(live_.size(), take_);
      continue;
    }
    // Sessions leave live_ only between rounds, so the pointer is good.
    auto& link = *static_cast<ControlLink*>(event.data.ptr);
    const std::uint32_t rest = link.pending() ? std::uint32_t{EPOLLIN} : 0;
    link.on_ready(event.events | rest);
  }
}

// What a poll leaves to do (buffers, credits, timers) is done at the start of the next round, so that whoever waits for
// what the poll brought goes on at once. Only work that waits for room on a path goes out in the same round.
bool EngineLane::progress() noexcept {
  const Clock::time_point now = recent_.now(&Clock::now);
  const bool tick = now - last_tick_ >= kTick;
  if (tick) last_tick_ = now;
  if (listener_ != nullptr) listener_->advance(now);
  DeviceStaging* const through = staging();
  bool did = through != nullptr && through->copier().poll();
  bool ended = false;
  for (std::size_t i = 0; i < live_.size(); ++i) {
    if (!tick && !live_[i]->wants_advance()) continue;
    did |= live_[i]->wants_advance();
    live_[i]->advance(now);
    ended |= live_[i]->finished();
  }
  if (ended) {
    const std::size_t left = std::erase_if(live_, [](const auto& session) { return session->finished(); });
    load_.fetch_sub(left, std::memory_order_relaxed);
  }

  const bool arrived = transports_.poll(tick);
  // After the paths: what they report was there before the peer ended them.
  if (now - control_at_ >= kControlEvery) {
    control_at_ = now;
    poll_control();
  }
  for (std::size_t i = 0; arrived && i < live_.size(); ++i) {
    if (live_[i]->wants_advance() && live_[i]->has_backlog()) live_[i]->advance(now);
  }
  return did || arrived;
}

bool EngineLane::arm() noexcept {
  return transports_.arm() && std::none_of(live_.begin(), live_.end(), [](const auto& session) {
           return session->wants_advance() || session->link().pending();
         });
}

void EngineLane::disarm() noexcept { transports_.disarm(); }
void EngineLane::settle() noexcept { transports_.settle(); }

milliseconds EngineLane::sleep_limit() noexcept {
  const DeviceStaging* const through = staging();
  if (through != nullptr && !through->copier().idle()) return transports_.sleep_limit(kCopySleep);
  return transports_.sleep_limit(live_.empty() ? kIdleSleep : kBusySleep);
}

}  // namespace fairlead::datapath
