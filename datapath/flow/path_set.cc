// Paths: states, setting one up, proving that it carries data.
#include "datapath/flow/path_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "datapath/protocol/path_messages.h"
#include "datapath/protocol/peer_text.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

// A path that is not proved within this time is given up; writes that do not end in half of it are given up first, so
// that a device without one-sided operations is used in staged mode.
constexpr milliseconds kSetupTimeout{4000};
constexpr std::size_t kMaxDescription = 4096;
// What a path is proved with. Some packets of any size that a network may not let through: where it swallows what is
// larger than it takes, a few bytes pass.
constexpr std::size_t kProofBytes = 16 * 1024, kOldProofBytes = 8;

/// The ways between states.
constexpr bool may_follow(PathState from, PathState to) {
  switch (to) {
    case PathState::kNone:  // never entered: the path is gone
      return false;
    case PathState::kSettingUp:
      return from == PathState::kNone;
    case PathState::kProved:
      return from == PathState::kSettingUp;
    case PathState::kInUse:
      return from == PathState::kProved;
    case PathState::kClosing:
      return from == PathState::kSettingUp || from == PathState::kProved || from == PathState::kInUse;
    case PathState::kFenced:
      return from == PathState::kClosing;
  }
  return false;
}

/// Where the peer is to write.
control::Key key_of(const Probe& probe) { return {.address = probe.target().address, .key = probe.target().key}; }

/// A message over it is to fit the buffers of both ends.
Status connect(PathSlot& slot, std::string_view peer) {
  const Status connected = slot.path->connect(peer);
  if (connected.ok()) slot.can.max_message = std::min(slot.can.max_message, slot.path->max_message());
  return connected;
}

}  // namespace

std::string_view to_string(PathState state) noexcept {
  static constexpr std::array<std::string_view, kPathStates> kNames = {"none",   "setting up", "proved",
                                                                       "in use", "closing",    "fenced"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view to_string(PathEvent event) noexcept {
  static constexpr std::array<std::string_view, kPathEvents> kNames = {
      "offer",   "answer", "connected", "peer ready", "peer down", "down",
      "timeout", "fence",  "fence ack", "drained",    "shut",      "better"};
  return kNames[static_cast<std::size_t>(event)];
}

void PathSet::enter(PathSlot& slot, PathState state) noexcept {
  assert(may_follow(slot.state, state));
  slot.state = state;
}

PathSlot* PathSet::find(const Path& path) noexcept {
  if (slot_ != nullptr && slot_->path.get() == &path) return slot_.get();
  return beside_ != nullptr && beside_->path.get() == &path ? beside_.get() : nullptr;
}

PathSlot* PathSet::slot_of(std::uint64_t epoch) noexcept {
  if (slot_ != nullptr && slot_->epoch == epoch) return slot_.get();
  return beside_ != nullptr && beside_->epoch == epoch ? beside_.get() : nullptr;
}

std::string PathSet::name_of(std::size_t candidate) const {
  const Candidate& over = candidates_[candidate];
  const std::string& name = host_.transports()[over.local].offer.name;
  return over.host.empty() ? name : fmt::format("{} by way of {}", name, over.host);
}

bool PathSet::handle(const control::Frame& frame) {
  if (const auto* offer = std::get_if<control::PathOffer>(&frame)) return handle_offer(*offer), true;
  if (const auto* answer = std::get_if<control::PathAnswer>(&frame)) return handle_answer(*answer), true;
  if (const auto* ready = std::get_if<control::PathReady>(&frame)) return handle_ready(*ready), true;
  if (const auto* down = std::get_if<control::PathDown>(&frame)) return handle_down(*down), true;
  if (const auto* fence = std::get_if<control::Fence>(&frame)) return handle_fence(*fence), true;
  if (const auto* ack = std::get_if<control::FenceAck>(&frame)) return handle_fence_ack(*ack), true;
  return false;
}

Result<std::unique_ptr<PathSlot>> PathSet::open_path(std::size_t transport, std::size_t peer_transport,
                                                     PathConfig config) {
  OpenTransport& open = host_.transports()[transport];
  const Result<DomainBook*> domain = host_.domain_at(transport);
  if (!domain) return domain.error();
  if (*domain != nullptr) config.domain = &(*domain)->domain();
  config.events = &user_.path_events();
  config.urgent = rules_.urgent;
  config.role = active_ ? PathRole::kActive : PathRole::kPassive;
  Result<std::unique_ptr<Path>> path = open.endpoint->open_path(config);
  if (!path) return path.error();
  auto slot = std::make_unique<PathSlot>();
  slot->path = std::move(*path);
  slot->can = open.device->capabilities();
  slot->domain = *domain;
  slot->transport = transport;
  slot->peer_transport = peer_transport;
  slot->epoch = epoch_;
  slot->opened_at = slot->last_progress = host_.now();
  ++open.paths;
  enter(*slot, PathState::kSettingUp);
  return slot;
}

Probe& PathSet::probe_of(const PathSlot& slot) const noexcept {
  return slot.domain != nullptr ? slot.domain->probe() : *host_.transports()[slot.transport].probe;
}

void PathSet::use(std::unique_ptr<PathSlot> slot) noexcept {
  slot_ = std::move(slot);
  slot_epoch_ = slot_->epoch;
  candidate_ = slot_->candidate;
}

// ---- active: choosing and offering ---------------------------------------------------------------------------------

const std::vector<Candidate>& PathSet::begin(std::vector<Candidate> candidates) {
  candidates_ = std::move(candidates);
  if (measures()) put_best_first();
  trials_.begin(candidates_.size(), rules_.peer_timeout);
  begin_path();
  return candidates_;
}

/// With the best that may be tried; else waits for one that may be later.
void PathSet::begin_path() {
  begin_at_.reset();
  if (shut_) return;
  if (!host_.linked()) {  // it stands again soon, or the session is about to end
    begin_at_ = host_.now();
    return;
  }
  while (true) {
    const std::optional<std::size_t> next = trials_.next(host_.now());
    if (!next) {
      begin_at_ = trials_.next_at();
      return begin_at_ ? void() : no_path_left();
    }
    candidate_ = *next;
    Result<std::unique_ptr<PathSlot>> slot = offer_path(candidate_);
    if (slot) return use(std::move(*slot));
    trials_.failed(candidate_, slot.error().message(), host_.now());
    log(LogLevel::kWarning, fmt::format("{}: {}", name_of(candidate_), slot.error().message()));
  }
}

Result<std::unique_ptr<PathSlot>> PathSet::offer_path(std::size_t candidate) {
  ++epoch_;
  const Candidate& over = candidates_[candidate];
  PathConfig config = host_.path_config();
  session_host_ = config.peer_host;
  config.peer_addresses = over.addresses;
  if (!over.host.empty()) {
    config.peer_host = over.host;
    config.local_host.clear();
  }
  config.addresses_first = rules_.spare;
  Result<std::unique_ptr<PathSlot>> slot = open_path(over.local, over.remote, std::move(config));
  if (!slot) return slot;
  (*slot)->candidate = candidate;
  user_.send_frame(control::PathOffer{.epoch = (*slot)->epoch,
                                      .active_transport = static_cast<std::uint32_t>((*slot)->transport),
                                      .passive_transport = static_cast<std::uint32_t>((*slot)->peer_transport),
                                      .description = (*slot)->path->local_description(),
                                      .probe = key_of(probe_of(**slot)),
                                      .probe_bytes = kProbeBytes});
  return slot;
}

void PathSet::no_path_left() {
  std::string tried;
  for (std::size_t c = 0; c < candidates_.size(); ++c) {
    tried += fmt::format("{}{}: {}", c == 0 ? "" : "; ", name_of(c), trials_.because(c));
  }
  user_.no_path({Code::kUnavailable, fmt::format("no path to {}: {}", host_.who(), tried)});
}

void PathSet::handle_answer(const control::PathAnswer& answer) {
  PathSlot* slot = slot_of(answer.epoch);
  saw(slot, PathEvent::kAnswer);
  if (!active_ || slot == nullptr || slot->state != PathState::kSettingUp) return;
  slot->answered = true;
  slot->opened_at = host_.now();
  slot->peer_probe = answer.probe.value_or(control::Key());
  slot->peer_probe_bytes = answer.probe_bytes;
  Status connected = answer.description.size() <= kMaxDescription
                         ? connect(*slot, answer.description)
                         : Status(Code::kDataLoss, fmt::format("a path description of {} bytes (limit {})",
                                                               answer.description.size(), kMaxDescription));
  if (!connected.ok()) candidate_failed(*slot, connected.code(), connected.message());
}

/// A path that was never used does not work: say so, and try the next best (active) or wait for it (passive).
void PathSet::candidate_failed(PathSlot& slot, Code code, const std::string& reason) {
  say_down(slot.epoch, code, reason);
  if (&slot == beside_.get()) return give_up_beside(reason);
  drop();
  if (active_) exclude_and_go_on(reason);
}

void PathSet::exclude_and_go_on(const std::string& reason) {
  log(LogLevel::kWarning, fmt::format("{} to {} does not work: {}", name_of(candidate_), host_.who(), reason));
  trials_.failed(candidate_, reason, host_.now());
  begin_path();
}

std::string PathSet::explain() const {
  std::string text =
      fmt::format("{} ({}): {}", host_.transports()[slot_->transport].offer.name, slot_->path->describe(),
                  active_ ? candidates_[candidate_].reason : "the connecting end's choice");
  const auto measured = [this](std::size_t c) {
    const std::optional<Figure> figure = figure_of(c);
    return figure ? fmt::format("measured {}", to_string(*figure)) : std::string();
  };
  if (const std::string figures = active_ ? measured(candidate_) : std::string(); !figures.empty()) {
    text += ", " + figures;
  }
  for (std::size_t c = 0; c < candidates_.size(); ++c) {
    if (c == candidate_) continue;
    const std::string figures = measured(c);
    text += fmt::format("; {}: {}", name_of(c),
                        !trials_.because(c).empty() ? trials_.because(c)
                        : !figures.empty()          ? figures
                                                    : "ranks below");
  }
  if (slot_->write_failed) text += "; staged, since one-sided writes do not arrive";
  return text;
}

// ---- passive -------------------------------------------------------------------------------------------------------

void PathSet::handle_offer(const control::PathOffer& offer) {
  saw(PathEvent::kOffer);
  // We told the active end that the path died before it was proved there too: it will not fence what it never used. One
  // that said "ready" may have used it, and must fence.
  if (!active_ && state() == PathState::kClosing && !fence_requested_ && !slot_->peer_ready) {
    after_fence(user_.acknowledged());
    if (shut_) return;
  }
  // Beside a path that is in use, or that was when the peer said this.
  const bool may_stand_beside = beside_allowed_ && beside_ == nullptr && slot_ != nullptr && slot_->peer_ready &&
                                (state() == PathState::kInUse || state() == PathState::kClosing);
  if (active_ || offer.epoch <= epoch_ || (slot_ != nullptr && !may_stand_beside)) {
    return host_.fail(
        {Code::kDataLoss, fmt::format("{} offered a path (epoch {}) out of turn", host_.who(), offer.epoch)});
  }
  epoch_ = offer.epoch;
  std::vector<OpenTransport>& transports = host_.transports();
  const std::size_t transport = offer.passive_transport;
  if (transport >= transports.size() || offer.active_transport >= peer_offers_.size() ||
      peer_offers_[offer.active_transport].kind != transports[transport].offer.kind ||
      offer.description.size() > kMaxDescription) {
    return say_down(offer.epoch, Code::kInvalidArgument, "the offer names transports that do not match");
  }
  PathConfig config = host_.path_config();
  config.peer_description = offer.description;
  Result<std::unique_ptr<PathSlot>> opened = open_path(transport, offer.active_transport, std::move(config));
  if (!opened) return say_down(offer.epoch, opened.error().code(), opened.error().message());
  PathSlot& slot = **opened;
  if (slot_ != nullptr) {
    beside_ = std::move(*opened);
  } else {
    use(std::move(*opened));
  }
  slot.peer_probe = offer.probe.value_or(control::Key());
  slot.peer_probe_bytes = offer.probe_bytes;
  if (Status connected = connect(slot, offer.description); !connected.ok()) {
    return candidate_failed(slot, connected.code(), connected.message());
  }
  user_.send_frame(control::PathAnswer{.epoch = slot.epoch,
                                       .description = slot.path->local_description(),
                                       .probe = key_of(probe_of(slot)),
                                       .probe_bytes = kProbeBytes});
}

// ---- both: proving -------------------------------------------------------------------------------------------------

void PathSet::on_ready(PathSlot& slot) {
  saw(&slot, PathEvent::kConnected);
  slot.can.max_outstanding = std::min(slot.can.max_outstanding, slot.path->max_outstanding());
  if (slot.state < PathState::kClosing && !shut_) slot.connected = true;
}

/// A WRITE and a message each way: only what has been seen to arrive is used.
void PathSet::prove(PathSlot& slot) {
  const OpenTransport& transport = host_.transports()[slot.transport];
  LocalSegment source = probe_of(slot).source();
  const bool large = slot.peer_probe_bytes != 0;
  const std::size_t most_message = std::max<std::size_t>(slot.can.max_message, kPathHeaderBytes) - kPathHeaderBytes;
  const std::size_t said = large ? std::min({source.length, most_message, kProofBytes}) : 0;
  source.length = std::min({source.length, large ? kProofBytes : kOldProofBytes,
                            std::max<std::size_t>(slot.peer_probe_bytes, kOldProofBytes)});
  PathHeader header;
  PathMessage hello;
  hello.type = MessageType::kHello;
  hello.sequence = slot.epoch;
  encode(hello, header);
  const LocalSegment message[2] = {{header, kPathHeaderBytes, kOwnBytes}, {source.data, said, 0}};
  const bool write = transport.device->capabilities().one_sided && slot.peer_probe.key != 0 && !slot.probe_posted;
  const WorkRequest requests[2] = {
      {kProbeId, OpKind::kWrite, {&source, 1}, slot.peer_probe.address, slot.peer_probe.key},
      {slot.in_flight.next_id(), OpKind::kMessage, {message, said != 0 ? 2u : 1u}, 0, 0}};
  if (!write && !slot.probe_posted) slot.write_failed = true;
  const std::span<const WorkRequest> batch(requests + (write ? 0 : 1), write ? 2 : 1);
  const std::size_t taken = slot.path->post(batch);
  if (taken == batch.size()) {
    slot.hello_sent = true;
    slot.in_flight.push({});
  } else if (taken != 0) {
    slot.probe_posted = true;  // the next round sends the message
  }
}

void PathSet::check_proved(PathSlot& slot) {
  if (slot.state == PathState::kSettingUp) {
    if (!slot.hello_sent || !slot.hello_received || !(slot.write_proved || slot.write_failed)) return;
    enter(slot, PathState::kProved);
    slot.said_ready = true;
    user_.send_frame(control::PathReady{.epoch = slot.epoch, .one_sided = slot.write_proved});
  }
  if (slot.state != PathState::kProved || !slot.peer_ready) return;
  if (&slot == beside_.get()) {
    if (!active_) return;  // the other end says what becomes of it
    return measures() ? weigh_beside() : take_over(fmt::format("{} works again", name_of(slot.candidate)));
  }
  enter(slot, PathState::kInUse);
  slot.last_progress = slot.in_use_since = host_.now();
  if (active_) slot.figure = figure_of(slot.candidate);
  trials_.in_use();
  user_.path_in_use();
}

void PathSet::handle_ready(const control::PathReady& ready) {
  PathSlot* slot = slot_of(ready.epoch);
  saw(slot, PathEvent::kPeerReady);
  if (slot == nullptr) return;
  slot->peer_ready = true;  // of a path that is closed, too: it says that a fence is to come
  if (slot->state < PathState::kClosing && !shut_) check_proved(*slot);
}

/// Its message may be polled before the frame by which it says "ready", and says the same.
bool PathSet::begins_to_carry(PathSlot& slot) {
  const bool first = &slot == slot_.get();
  // Its end of a path that is set up beside this one may hear of the fence earlier than ours.
  if (!slot.said_ready || (!first && state() != PathState::kFenced)) return false;
  slot.peer_ready = true;
  if (first && slot.state < PathState::kClosing && !shut_) check_proved(slot);
  return true;
}

void PathSet::advance_setup(PathSlot& slot, Clock::time_point now) {
  const auto age = now - slot.opened_at;
  // That an offer is not answered says nothing of the transport: it has come late, or its answer will.
  const milliseconds limit = active_ && !slot.answered ? std::max(kSetupTimeout, rules_.peer_timeout) : kSetupTimeout;
  if (slot.down || age > limit) {
    if (!slot.down) saw(&slot, PathEvent::kTimeout);
    const Code code = slot.down ? slot.down_code : Code::kDeadlineExceeded;
    const std::string reason = slot.down ? slot.down_reason
                                         : fmt::format("not proved within {} ms ({})", limit.count(),
                                                       active_ && !slot.answered ? "the peer did not answer"
                                                       : !slot.connected         ? "no connection"
                                                       : !slot.hello_received    ? "nothing arrives from the peer"
                                                                                 : "what we send does not arrive");
    // Once we said "ready" the other end may have begun to use it: that takes a fence.
    const bool may_be_used = &slot == slot_.get() && slot.state == PathState::kProved;
    return may_be_used ? died(code, reason) : candidate_failed(slot, code, reason);
  }
  if (slot.connected && !slot.hello_sent) prove(slot);
  if (age > kSetupTimeout / 2 && slot.hello_received && !slot.write_proved) slot.write_failed = true;
  check_proved(slot);
}

}  // namespace fairlead::datapath
