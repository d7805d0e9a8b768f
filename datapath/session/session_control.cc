// What a session hears of its control connection: the greeting, and what frames mean.
#include <fmt/format.h>

#include "datapath/session/peer_text.h"
#include "datapath/session/session.h"

namespace fairlead::datapath {
namespace {

// 2: a path may be set up beside the one in use.
constexpr std::uint32_t kOldestVersion = 1, kNewestVersion = 2, kPathsBeside = 2;
constexpr std::chrono::milliseconds kLastWords{100};  // of a path whose peer said goodbye

}  // namespace

void SessionImpl::link_up() {
  saw(SessionEvent::kConnected);
  phase_ = Phase::kHello;
  {
    const std::lock_guard lock(mutex_);
    description_.address = link_.stream().peer_address();
  }
  send_hello();
}

void SessionImpl::link_refused(const Status& why) {
  fail({why.code(), fmt::format("cannot connect to {}: {}", target_, why.message())});
}

void SessionImpl::link_lost(const Status& why) {
  saw(SessionEvent::kHungUp);
  paths_.stay();
  if (phase_ == Phase::kDraining || farewell_until_ || (phase_ == Phase::kClosing && paths_.in_use() != nullptr)) {
    goodbye_seen_ = dirty_ = true;  // there is nobody left to say it
    return;
  }
  if (id() == 0) host_->handshake_refused();
  fail({why.code(), fmt::format("lost {}: {}", who(), why.message())});
}

void SessionImpl::send_hello() {
  control::Hello hello{.version_min = kOldestVersion,
                       .version_max = kNewestVersion,
                       .engine_name = host_->config().name,
                       .session_id = id(),
                       .transports = {},
                       .max_message_bytes = host_->config().max_message_bytes,
                       .event_window = static_cast<std::uint32_t>(host_->config().max_pending_events),
                       .event_window_bytes = host_->config().max_pending_bytes};
  for (const Offer& offer : host_->offers()) {
    hello.transports.push_back({.name = offer.name, .kind = offer.kind, .software = offer.software, .describe = {}});
  }
  send_frame(hello);
}

void SessionImpl::link_heard(const control::Frame& frame) {
  const bool greeted = id() != 0;
  const auto* goodbye = std::get_if<control::Goodbye>(&frame);
  if (goodbye != nullptr) {
    saw(SessionEvent::kGoodbye);
    goodbye_seen_ = dirty_ = true;
  }
  if (phase_ == Phase::kDraining) return;  // it heard what it waits for, or goes on waiting
  if (!greeted) {
    if (const auto* hello = std::get_if<control::Hello>(&frame)) return handle_hello(*hello);
    if (const auto* refused = std::get_if<control::Refused>(&frame)) {
      return fail({code_from_wire(refused->code), fmt::format("{} refused us: {}", who(), clipped(refused->reason))});
    }
    host_->handshake_refused();
    return fail({Code::kDataLoss, fmt::format("{} spoke before its hello", who())});
  }
  if (goodbye != nullptr) return handle_goodbye(*goodbye);
  if (const auto* lookup = std::get_if<control::Lookup>(&frame)) return lookups_.answer(*lookup, host_->regions());
  if (const auto* regions = std::get_if<control::Regions>(&frame)) return lookups_.on_regions(*regions, who());
  if (const auto* withdrawn = std::get_if<control::Withdrawn>(&frame)) return lookups_.on_withdrawn(withdrawn->id);
  if (const auto* ping = std::get_if<control::Ping>(&frame)) {
    if (ping->reply) return paths_.peer_answered();
    return send_frame(control::Ping{.nonce = ping->nonce, .reply = true});
  }
  if (paths_.handle(frame)) return;
  fail({Code::kDataLoss, fmt::format("{} sent an unexpected control frame (type {})", who(), frame.index())});
}

void SessionImpl::handle_hello(const control::Hello& hello) {
  saw(SessionEvent::kHello);
  {
    const std::lock_guard lock(mutex_);
    description_.name = clipped(hello.engine_name);
  }
  const auto refuse = [&](Code code, std::string reason) {
    send_frame(control::Refused{.code = static_cast<std::uint32_t>(code), .reason = reason});
    host_->handshake_refused();
    fail({code, fmt::format("refused {}: {}", who(), reason)});
  };
  if (hello.version_min > kNewestVersion || hello.version_max < kOldestVersion) {
    return refuse(Code::kVersionMismatch,
                  fmt::format("protocol versions {}..{} offered, {}..{} spoken here; run the same release at both ends",
                              hello.version_min, hello.version_max, kOldestVersion, kNewestVersion));
  }
  if (hello.transports.size() > kMaxOffers || hello.event_window == 0) {
    return refuse(Code::kInvalidArgument, fmt::format("{} transports (limit {}), event window {} (at least 1)",
                                                      hello.transports.size(), kMaxOffers, hello.event_window));
  }
  if (!active_) {
    if (const Status admitted = host_->admit_peer(); !admitted.ok()) {
      return refuse(admitted.code(), std::string(admitted.message()));
    }
  }
  std::vector<Offer> theirs;
  for (const control::TransportOffer& t : hello.transports) {
    theirs.push_back({clipped(t.name), clipped(t.kind), t.software});
  }
  CreditWindow::Limits window{.events = hello.event_window};
  if (hello.event_window_bytes != 0) window.bytes = hello.event_window_bytes;
  outbox_.set_limits({window, hello.max_message_bytes});
  if (active_) {
    if (hello.session_id == 0) return refuse(Code::kDataLoss, "the hello names no session");
    id_.store(hello.session_id, std::memory_order_release);
  } else {
    host_->open_for_peer(theirs);
    id_.store(host_->random(), std::memory_order_release);
    send_hello();
  }
  if (hello.version_max >= kPathsBeside) paths_.allow_beside();
  phase_ = close_deadline_ == Clock::time_point::max() ? Phase::kOpen : Phase::kClosing;
  lookups_.open(id());
  if (!active_) return paths_.expect(std::move(theirs));
  Choice choice = choose(host_->config().transport, host_->config().failover, host_->offers(), theirs);
  if (choice.candidates.empty()) {
    return fail({Code::kUnavailable,
                 fmt::format("no transport in common with {}: transport is '{}'{}{}", who(), host_->config().transport,
                             choice.rejected.empty() ? "" : "; ", fmt::join(choice.rejected, "; "))});
  }
  paths_.begin(std::move(choice.candidates));
}

void SessionImpl::handle_goodbye(const control::Goodbye& goodbye) {
  const Code code = code_from_wire(goodbye.code);
  if (code == Code::kOk) {
    farewell_until_ = host_->now() + kLastWords;
    paths_.stay();
    return;
  }
  begin_drain({code, fmt::format("{} ended the session: {}", who(), clipped(goodbye.reason))}, code);
}

}  // namespace fairlead::datapath
