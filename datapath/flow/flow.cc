// A flow's data: posting what the outbox has to the path, and what the path's completions and messages mean.
#include "datapath/flow/flow.h"

#include <fmt/format.h>

namespace fairlead::datapath {
namespace {

constexpr std::size_t kManyInFlight = 64;
constexpr std::uint64_t kStripesPerChunk = 4;

}  // namespace

Flow::Flow(FlowUser& user, TrafficClass traffic, bool active, const EngineConfig& config)
    : user_(user),
      traffic_(traffic),
      active_(active),
      rules_{.failover = config.failover,
             .path_timeout = config.path_timeout,
             .urgent = traffic == TrafficClass::kCommands,
             .peer_timeout = config.peer_timeout,
             .measured = config.choice == PathChoice::kMeasured,
             .traffic = traffic},
      paths_(user, *this, active, rules_),
      stripe_(std::max<std::uint64_t>(config.chunk_bytes / kStripesPerChunk, 1)),
      wanted_(traffic == TrafficClass::kBulk ? config.paths : 1),
      first_share_(stripe_),
      bounce_([this] { return user_.device_staging(); }, [this] { dirty_ = true; }),
      outbox_(user, config.chunk_bytes, &bounce_),
      inbound_({config.max_pending_events, config.max_pending_bytes, config.max_message_bytes}),
      device_target_([this] { return user_.device_staging(); }, [this] { dirty_ = true; }),
      staged_target_(&device_target_) {}

// ---- transfers -----------------------------------------------------------------------------------------------------

bool Flow::accept(TransferImpl& t) {
  if (t.tied && t.after != nullptr) return outbox_.add(t, true);
  PathSlot* const slot = paths_.in_use();
  const bool many = slot != nullptr && slot->in_flight.size() >= kManyInFlight;
  const bool is_posted = slot != nullptr && !many && post_lone(*slot, t);
  if (!outbox_.add(t)) return false;
  if (is_posted) return true;
  // While many requests are on the path, a completion is near: what is posted until then goes out together, with one
  // doorbell and one signalled completion. Alone it would not come through sooner.
  if (many && ++gathered_ < Outbox::kBatch) {
    dirty_ = true;
  } else {
    pump();
  }
  return true;
}

/// With nothing before it, it is on its way before it is entered.
bool Flow::post_lone(PathSlot& slot, TransferImpl& t) {
  const bool alone = rails_.empty() && !staged_target_.has_work();
  if (stopped_ || !alone || slot.in_flight.room(slot.can.max_outstanding) == 0) return false;
  if (!slot.in_flight.make_room()) return false;
  const std::span<const WorkRequest> request = outbox_.build_lone(way_of(slot), t, slot.in_flight.next_id());
  if (request.empty()) return false;
  const std::size_t accepted = slot.path->post(request);
  outbox_.commit(accepted, slot.in_flight);
  return accepted != 0;
}

bool Flow::has_said_all() noexcept {
  const PathSlot* slot = paths_.in_use();
  return slot == nullptr || slot->down || outbox_.size() == 0;
}

void Flow::end_all(Code code, const std::string& reason) {
  bounce_.stop();
  outbox_.end_all(code, reason);
  bounce_.clear();
  staged_target_.reset();
  device_target_.stop();
}

// ---- time ----------------------------------------------------------------------------------------------------------

void Flow::advance(Clock::time_point now) {
  dirty_ = false;
  bounce_.advance(outbox_, now);
  paths_.advance(now);
  if (std::exchange(rails_due_, false) && paths_.in_use() != nullptr) open_rails();
  for (const std::unique_ptr<Rail>& rail : rails_) {
    if (rail != nullptr) rail->advance(now);
  }
  const PathSlot* slot = paths_.in_use();
  if (slot == nullptr) return pump();
  // What the target turned away on a path that lives (tcp) is posted again; a dying path takes a fence.
  if (!slot->down) outbox_.requeue();
  pump();
  send_consumed();
}

void Flow::check_timers(Clock::time_point now) {
  outbox_.end_late(now);
  for_paths([now](PathSet& paths) { paths.check_progress(now); });
  const std::optional<Outbox::Stuck> stuck = outbox_.stuck();
  if (!stuck) return;
  // Of several paths those that have nothing to do with it are left alone.
  for_paths([&](PathSet& paths) {
    const bool first = &paths == &paths_;
    const bool holds =
        first ? rails_.empty() || stuck->on_first : paths.in_use() != nullptr && !paths.in_use()->in_flight.empty();
    if (holds) paths.take_back_memory(stuck->since, now, first ? stuck->on_first : std::nullopt);
  });
}

// ---- to the path ---------------------------------------------------------------------------------------------------

void Flow::pump() {
  gathered_ = 0;
  if (stopped_) return;
  if (paths_.in_use() != nullptr) pump_first();
  for (const std::unique_ptr<Rail>& rail : rails_) {
    if (rail != nullptr) pump_rail(*rail);
  }
}

void Flow::pump_first() {
  if (staged_target_.has_work()) pump_staged();
  const bool spreads = has_rails();
  while (PathSlot* slot = paths_.in_use()) {
    // No more than the path takes: what it refuses was built in vain.
    const std::size_t room = slot->in_flight.room(slot->can.max_outstanding);
    Outbox::Way way = way_of(*slot);
    if (spreads) {
      way.stripe = stripe_;
      way.share = std::min(first_share_.room(), stripe_);  // each is heard of by itself
    }
    const std::span<const WorkRequest> requests = outbox_.build(way, room, slot->in_flight.next_id());
    if (requests.empty()) return;
    const std::size_t accepted = slot->path->post(requests);
    const std::uint64_t bytes = outbox_.commit(accepted, slot->in_flight);
    if (!rails_.empty()) first_share_.given(bytes, user_.now());
    if (accepted < requests.size() || !outbox_.has_backlog()) return;
  }
}

Outbox::Way Flow::way_of(const PathSlot& slot) const noexcept {
  Outbox::Way way;
  way.can = &slot.can;
  way.domain = slot.domain;
  way.transport = slot.transport;
  way.peer_transport = slot.peer_transport;
  way.staged = slot.write_failed;
  return way;
}

bool Flow::send_path_message(const PathMessage& message, PostedRequest::Use use) {
  PathSlot* slot = paths_.open();
  if (slot == nullptr) return false;
  PathHeader header;
  encode(message, header);
  const LocalSegment segments[2] = {
      {header, kPathHeaderBytes, kOwnBytes},
      {const_cast<std::byte*>(message.data.data()), message.data.size(), 0}};  // read by post() only
  const WorkRequest request{
      slot->in_flight.next_id(), OpKind::kMessage, {segments, message.data.empty() ? 1u : 2u}, 0, 0};
  if (slot->path->post({&request, 1}) == 0) return false;
  slot->in_flight.push({.use = use});
  return true;
}

void Flow::pump_staged() {
  PathSlot* slot = paths_.open();
  if (slot == nullptr) return;
  staged_target_.pump(user_.seen_by_peer(), slot->can.max_message, [this](const PathMessage& message) {
    return send_path_message(message, PostedRequest::Use::kStagedOperation);
  });
}

void Flow::send_consumed() {
  const std::optional<Inbound::Consumed> due = inbound_.credit_due(user_.waiting(traffic_));
  if (!due) return;
  PathMessage message;
  message.type = MessageType::kConsumed;
  message.sequence = due->sequence;
  if (send_path_message(message, PostedRequest::Use::kControl)) inbound_.told(*due);
}

// ---- from the path -------------------------------------------------------------------------------------------------

void Flow::on_completion(Path& path, const Ended& ended) noexcept {
  const std::uint64_t behind = ended.first + ended.count;
  for (std::uint64_t id = ended.first; id != behind;) {
    PathSlot* slot = paths_.find(path);
    if (slot == nullptr) return;
    dirty_ = true;
    if (ended.code == Code::kOk) alive_ = true;
    // Small pieces of one transfer are told of together.
    EndedData data;
    const std::uint32_t parts = ended.code == Code::kOk ? slot->in_flight.end_data(id, behind, data) : 0;
    if (parts == 0) {
      one_completed(*slot, id++, ended.code);
      continue;
    }
    id += parts;
    slot->moved = slot->carried = true;
    if (!rails_.empty()) first_share_.ended(data.bytes, user_.now());
    outbox_.placed(*data.transfer, data.bytes, parts);
  }
}

void Flow::one_completed(PathSlot& slot, std::uint64_t id, Code code) {
  if (id == kProbeId) return slot.on_probe(code);
  slot.moved = true;
  const std::optional<PostedRequest> request = slot.in_flight.end(id);
  if (!request) return;
  if (request->use == PostedRequest::Use::kMeasure) return slot.on_measured(*request, code, user_.now());
  slot.carried |= code == Code::kOk && request->use != PostedRequest::Use::kControl;
  if (!rails_.empty()) first_share_.ended(request->bytes, user_.now());
  // Turned away behind a write that was refused (tcp). It has a number, which the other end waits for: on this path
  // there is no going on.
  if (code == Code::kAborted && request->use == PostedRequest::Use::kStagedOperation && &slot == paths_.in_use() &&
      !slot.down) {
    paths_.on_down(slot, code, "an operation by message came behind a write that was refused");
  }
  request_ended(*request, code);
}

void Flow::request_ended(const PostedRequest& request, Code code) {
  switch (request.use) {
    case PostedRequest::Use::kMeasure:
      return;
    case PostedRequest::Use::kControl:
    case PostedRequest::Use::kStagedOperation:
      if (code != Code::kOk) inbound_.forget_told();  // it may have been the word of our credits
      return;
    default:
      outbox_.completed(request, code);
  }
}

void Flow::on_message(Path& path, std::span<const std::byte> bytes) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  dirty_ = true;
  alive_ = true;
  const std::optional<PathMessage> message = decode(bytes);
  if (!message) {
    return user_.fail(
        {Code::kDataLoss, fmt::format("{} sent a malformed message of {} bytes", user_.who(), bytes.size())});
  }
  if (message->type != MessageType::kHello && !paths_.may_carry(*slot)) return fail_early(*slot);
  switch (message->type) {
    case MessageType::kHello:
      return slot->on_hello(message->sequence);
    case MessageType::kNotify:
    case MessageType::kFragment:
    case MessageType::kNotifyFragment:
    case MessageType::kAtomic:
    case MessageType::kOutcome:
      slot->carried = true;
      return handle_sequenced(*message);
    case MessageType::kConsumed:
      return outbox_.consumed(message->sequence);
    case MessageType::kStagedWrite:
    case MessageType::kStagedReadRequest:
    case MessageType::kStagedReadData:
    case MessageType::kStagedAck:
      return handle_staged(*message);
  }
}

void Flow::fail_early(const PathSlot& slot) {
  user_.fail({Code::kDataLoss, fmt::format("{} used a path {}", user_.who(),
                                           slot.said_ready ? "beside the one in use" : "before it was proved")});
}

void Flow::on_notification(Path& path, std::uint32_t value) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  dirty_ = true;
  alive_ = true;
  if (!paths_.may_carry(*slot)) return fail_early(*slot);
  slot->carried = true;
  // It has no room for its number. What a path delivers is in the order of posting, and without gaps.
  PathMessage message;
  message.type = MessageType::kNotify;
  message.sequence = inbound_.received() + 1;
  message.value = value;
  handle_sequenced(message);
}

void Flow::handle_sequenced(const PathMessage& message) {
  Event event;
  event.traffic = traffic_;
  std::string why;
  switch (inbound_.take(message, user_.waiting(traffic_), event, why)) {
    case Inbound::Verdict::kKept:
      return;
    case Inbound::Verdict::kOurs:
      return handle_atomic(message);
    case Inbound::Verdict::kDuplicate:
      return counters_.duplicate_notifications_dropped.add();
    case Inbound::Verdict::kWrong:
      return user_.fail({Code::kDataLoss, fmt::format("{} sent {}", user_.who(), why)});
    case Inbound::Verdict::kEvent:
      return user_.deliver(std::move(event));
  }
}

void Flow::handle_atomic(const PathMessage& message) {
  std::string why;
  bool legal = false;
  if (message.type == MessageType::kOutcome) {
    legal = outbox_.take_outcome(message, why);
  } else if (const auto outcome = atomics::carry_out(message, user_.seen_by_peer(), why)) {
    counters_.atomics_served.add(outcome->code == Code::kOk ? 1 : 0);
    legal = outbox_.say(message.total, *outcome, paths_.slot()->can.max_outstanding);
    if (!legal) why = fmt::format("atomic {} with more outcomes not taken than it may wait for", message.total);
  }
  if (!legal) user_.fail({Code::kDataLoss, fmt::format("{} sent {}", user_.who(), why)});
}

void Flow::handle_staged(const PathMessage& message) {
  std::string why;
  bool legal = true;
  switch (message.type) {
    case MessageType::kStagedWrite:
      legal = staged_target_.on_write(message, user_.seen_by_peer(), why);
      break;
    case MessageType::kStagedReadRequest:
      legal = staged_target_.on_read(message, why);
      break;
    default:
      legal = outbox_.staged_answer(message, paths_.slot()->moved, why);
  }
  if (!legal) return user_.fail({Code::kDataLoss, fmt::format("{} {}", user_.who(), why)});
  if (staged_target_.owes()) pump_staged();
}

}  // namespace fairlead::datapath
