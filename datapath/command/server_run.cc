// The running of a session's commands, and the replies.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "datapath/command/graph/launch_record.h"
#include "datapath/command/server_session.h"

namespace fairlead::datapath::command {

using fairlead::command::kInvalidValue;
using fairlead::command::kNotReady;
using fairlead::command::kNotSupported;
using fairlead::command::Launch;
using fairlead::command::Outcome;
using fairlead::command::Scope;

namespace {

constexpr std::chrono::microseconds kOldestUnsaid{50};
// Commands between two looks at the clock: more, where the last took less than that time.
constexpr std::uint32_t kLeastStride = 8, kMostStride = 32;
constexpr std::chrono::microseconds kAStride{4};
constexpr std::uint32_t kTurn = 256;                // commands of a channel before it is another's turn,
constexpr std::chrono::microseconds kTurnTime{50};  // or so much time, or one command longer
constexpr std::uint64_t kShortCopy = 16 << 10;      // bytes of what takes a few microseconds

bool may_wait(const Record& record) noexcept {
  return record.is(Opcode::kCopyIn) || record.is(Opcode::kCopyOut) || record.is(Opcode::kModule) ||
         record.is(Opcode::kFence) || record.is(Opcode::kGraph) || record.is(Opcode::kCopyAcross);
}

/// Asked once for a function that is launched again and again.
bool is_short(ServerDevice& device, std::uint64_t function) noexcept {
  if (device.asked != function) device.is_short = device.executor->is_short({function});
  device.asked = function;
  return device.is_short;
}

}  // namespace

bool ServerSession::run(Clock::time_point until, std::uint32_t number) {
  const auto device = std::ranges::find(devices_, number, &ServerDevice::number);
  if (device == devices_.end() || is_over()) return false;
  const std::uint32_t bit = device->bit();
  for (std::uint32_t* const mask : {&now_.due, &now_.held, &now_.pending, &fenced_}) *mask &= ~bit;
  moved_ = false;
  const bool more = run(*device, channels_.order_of(static_cast<std::size_t>(device - devices_.begin())), until);
  if (is_over()) return false;  // and nothing is due any more
  if (more) now_.due |= bit;
  if (moved_) now_.due |= fenced_ & ~bit;  // it may be what others wait for
  return (now_.due & bit) != 0;
}

bool ServerSession::run(ServerDevice& device, ChannelOrder& channels, Clock::time_point until) {
  const std::uint32_t bit = device.bit();
  bool more = false, moved = true;
  std::uint32_t single = kTurn;
  // What one channel did may be what another waits for.
  for (int rounds = 0; moved && rounds < 4; ++rounds) {
    moved = false;
    more = false;
    now_.pending &= ~bit;
    const std::span<ServerChannel* const> order = channels.in_order();
    for (std::size_t i = 0; i < order.size(); ++i) {
      ServerChannel& channel = *order[i];
      if (outlet_.untaken() >= terms_.held_results) {  // a client that does not read
        now_.held |= bit;
        return false;
      }
      const std::uint64_t before = channel.executed() + channel.complete();
      // Any command may be what one of a higher priority waits for.
      const bool is_single = channels.any_waits_before(i);
      const Step last = run(channel, is_single ? 1 : kTurn, channels.gives_way(i), until);
      if (is_over()) return false;  // and the channels are gone
      const bool went_on = channel.executed() + channel.complete() != before;
      moved |= went_on;
      moved_ |= went_on;
      more |= last == Step::kDone;
      if (last == Step::kHeld) now_.held |= bit;
      const bool is_at_work =
          channel.complete() < channel.executed() || channel.results().across.waits(channel.executed() + 1);
      if (is_at_work && !device.lost) now_.pending |= bit;
      // Who has more to run than there is time keeps no other from its turn, also one that has yet to be taken.
      const bool turn_over = last == Step::kTurnOver;
      more |= turn_over;
      if (last == Step::kTime || last == Step::kNews || (turn_over && outlet_.has_news())) {
        if (last != Step::kNews) channels.had_turn(i);
        return true;
      }
      if (!is_single || !went_on) continue;
      channels.had_turn(i);
      if (--single == 0) return true;
      i = std::size_t{0} - 1;
    }
  }
  return more || moved;
}

ServerSession::Step ServerSession::run(ServerChannel& channel, std::uint32_t most, bool gives_way,
                                       Clock::time_point until) {
  Step last = Step::kDone;
  std::optional<Clock::time_point> began;
  Clock::time_point looked;
  std::uint32_t stride = kLeastStride;  // commands between two looks at the clock
  for (std::uint32_t ran = 0; ran < most && last == Step::kDone;) {
    const bool is_timed = !began && until != Clock::time_point::max();  // there may be time for one alone
    const std::uint32_t row = is_timed || gives_way ? 1 : stride - std::min(unlooked_, stride - 1);
    std::uint32_t now_ran = launch_again(channel, std::min(most - ran, row));
    if (now_ran == 0) {
      last = step(channel);
      now_ran = 1;
    }
    if (is_over()) return last;
    ran += now_ran;
    unlooked_ += now_ran;
    if (last == Step::kDone && gives_way && outlet_.has_news()) last = Step::kNews;
    const bool is_due = unlooked_ >= stride || took_long_ || is_timed;
    const bool look = is_due && (last == Step::kDone || last == Step::kNews);
    if (look) {
      const Clock::time_point now = outlet_.now();
      if (began) stride = now - looked < kAStride ? std::min(2 * stride, kMostStride) : kLeastStride;
      if (!began) began = now;
      if (now - *began >= kTurnTime) last = Step::kTurnOver;
      if (now >= until) last = Step::kTime;
      looked = now;
      unlooked_ = 0;
    }
    if (!channel.owes_reply()) continue;
    if (channel.reply_is_full() || (look && channel.is_old(looked, kOldestUnsaid))) reply(channel);
  }
  if (device_of(channel).late) follow(channel);
  const bool goes_on = last == Step::kDone || last == Step::kNews || last == Step::kTurnOver;
  if (!goes_on && channel.owes_reply()) reply(channel);
  return last;
}

std::uint64_t ServerSession::waiting() const noexcept {
  std::uint64_t all = 0;
  for (const ServerChannel* const channel : channels_.all()) all += channel->accepted() - channel->executed();
  return all;
}

void ServerSession::reply(ServerChannel& channel) {
  ++counts_.replies;
  channel.take_reply(reply_);
  outlet_.send(TrafficClass::kCommands, reply_);
}

/// By the million: launches of what was launched before, which wait for nothing. How many of the channel's next
/// commands are such, at most so many; they have run.
std::uint32_t ServerSession::launch_again(ServerChannel& channel, std::uint32_t most) {
  ServerDevice& device = device_of(channel);
  if (!device.is_short || device.late || device.lost || channel.failure()) return 0;
  Outcome failure;
  const std::uint32_t ran = channel.advance_while(most, [&](const Record& record, std::uint64_t sequence) {
    if (!record.is(Opcode::kLaunch) || function_of(record) != device.asked) return false;
    tell_meter(channel.number(), sequence);
    Outcome outcome = device.executor->launch(launch_of(record), parameters_of(record));
    if (outcome.ok()) return true;
    failure = std::move(outcome);
    return false;
  });
  counts_.commands += ran;
  if (ran != 0) took_long_ = false;
  if (failure.ok()) return ran;
  (void)channel.front();  // which it is
  failed(channel, std::move(failure));
  ++counts_.commands;
  channel.advance();
  return ran + 1;
}

ServerSession::Step ServerSession::step(ServerChannel& channel) {
  const Record* const record = channel.front();
  if (record == nullptr) return Step::kIdle;
  took_long_ = false;
  ServerDevice& device = device_of(channel);
  // A recovery is not passed over, also where all is lost by now: then it is what fails.
  const bool passed_over =
      channel.failure() && (channel.failure()->scope >= Scope::kContext || !record->is(Opcode::kRecover));
  if (!passed_over) {
    if (may_wait(*record)) {
      if (const std::optional<Step> waits = wait_for(channel, *record)) return *waits;
    }
    took_long_ = takes_long(device, *record);
    if (channel.owes_reply() && took_long_) reply(channel);
    tell_meter(channel.number(), channel.executed() + 1);
    if (device.late && !device.lost) {
      device.executor->begin({channel.number(), channel.executed() + 1});
      channel.begin();
    }
    Outcome outcome = device.lost ? *device.lost : execute(channel, *record);
    if (!outcome.ok()) {
      if (device.late && outcome.result == kNotReady && outcome.scope == Scope::kCommand) return Step::kBlocked;
      failed(channel, std::move(outcome));
    }
  }
  // Also where it was passed over: else no other image would come.
  if (record->is(Opcode::kModule)) modules_.forget({channel.number(), channel.executed() + 1});
  ++counts_.commands;
  channel.advance();
  return Step::kDone;
}

/// Which command is about to run, for who watches how long it takes.
void ServerSession::tell_meter(std::uint16_t channel, std::uint64_t sequence) noexcept {
  if (meter_ == nullptr) return;
  meter_->channel.store(channel, std::memory_order_relaxed);
  meter_->sequence.store(sequence, std::memory_order_relaxed);
}

/// The channel's next command did.
void ServerSession::failed(ServerChannel& channel, Outcome outcome) {
  ServerDevice& device = device_of(channel);
  ++counts_.failures;
  if (outcome.scope <= Scope::kContext) ++counts_.failures_by_scope[static_cast<std::size_t>(outcome.scope)];
  if (devices_.size() > 1 && !device.lost) outcome.text += fmt::format(" (on device {})", channel.device());
  if (outcome.scope >= Scope::kContext) lose(device, outcome);
  channel.fail(std::move(outcome), channel.executed() + 1);
}

/// What the record waits for before it can run; nothing: it can.
std::optional<ServerSession::Step> ServerSession::wait_for(ServerChannel& channel, const Record& record) {
  const ServerDevice& device = device_of(channel);
  if (device.lost) return std::nullopt;
  if (record.is(Opcode::kCopyIn) || record.is(Opcode::kGraph)) {
    const bool is_inline = (record.flags & kInline) != 0;
    if (!is_inline && channel.payload() == nullptr) {
      if (channel.lacks_payload()) {
        end(Code::kDataLoss, fmt::format("command {} of channel {} takes bytes that were not sent",
                                         channel.executed() + 1, channel.number()));
      }
      return Step::kBlocked;
    }
    // What is read of records is not read twice from where a client may write; copies are read once.
    if (!is_inline && record.is(Opcode::kGraph) && channel.payload()->is_placed) {
      end(Code::kInvalidArgument,
          fmt::format("the records of the graph of command {} of channel {} are placed, not sent",
                      channel.executed() + 1, channel.number()));
      return Step::kBlocked;
    }
    const std::uint64_t bytes = is_inline ? tail_of(record).size() : channel.payload()->bytes.size();
    if (!channel.pays_once([&] { return outlet_.may_copy(bytes); })) return Step::kHeld;
  }
  if (record.is(Opcode::kCopyOut)) {
    const std::uint64_t bytes = body_of<CopyBody>(record).bytes;
    const bool is_placed = (record.flags & kPlaced) != 0;
    if (bytes > (is_placed ? kMaxPlaced : terms_.payload_bytes)) return std::nullopt;
    const std::uint64_t kept = device.late ? kept_bytes() : 0;
    const bool is_kept = !is_placed && (bytes > kMaxInline || device.late);
    if (is_kept && outlet_.untaken() + kept + bytes > terms_.held_results) return Step::kHeld;
    if (kept_ && !has_unheard_room(bytes)) return Step::kHeld;
    if (!channel.pays_once([&] { return outlet_.may_copy(bytes); })) return Step::kHeld;
  }
  if (record.is(Opcode::kModule) && device.takes_modules) {
    if (modules_.is_ready({channel.number(), channel.executed() + 1}, body_of<ModuleBody>(record))) {
      const std::uint64_t bytes = modules_.came();
      if (bytes == 0 || channel.pays_once([&] { return outlet_.may_copy(bytes); })) return std::nullopt;
      return Step::kHeld;
    }
    ask_for_image(channel);
    if (modules_.is_behind({channel.number(), channel.executed() + 1})) fenced_ |= device.bit();
    return Step::kBlocked;
  }
  if (record.is(Opcode::kFence) && waits_for(channel, body_of<FenceBody>(record))) return Step::kBlocked;
  if (record.is(Opcode::kCopyAcross) && !has_come_across(channel, body_of<CopyAcrossBody>(record))) {
    return Step::kBlocked;
  }
  return std::nullopt;
}

bool ServerSession::takes_long(ServerDevice& device, const Record& record) noexcept {
  if (record.is(Opcode::kLaunch)) return !device.late && !is_short(device, function_of(record));
  if (record.is(Opcode::kModule)) return device.takes_modules;
  if (record.is(Opcode::kGraph)) return true;
  if (record.is(Opcode::kCopyAcross)) return body_of<CopyAcrossBody>(record).bytes > kShortCopy;
  if (device.late) return record.is(Opcode::kLoad) || record.is(Opcode::kLoadFrom);  // all else is handed over
  if (record.is(Opcode::kLaunchGraph)) return true;
  if (record.is(Opcode::kFill)) return body_of<FillBody>(record).bytes > kShortCopy;
  if (record.is(Opcode::kCopyWithin)) return body_of<CopyWithinBody>(record).bytes > kShortCopy;
  if (record.is(Opcode::kAllocate)) return body_of<AllocateBody>(record).bytes > kShortCopy;
  if (record.is(Opcode::kAllocateAt)) return body_of<AllocateAtBody>(record).bytes > kShortCopy;
  if (record.is(Opcode::kCopyIn) || record.is(Opcode::kCopyOut)) return body_of<CopyBody>(record).bytes > kShortCopy;
  return record.opcode >= kFirstUserOpcode;
}

Outcome ServerSession::execute(ServerChannel& channel, const Record& record) {
  ServerDevice& device = device_of(channel);
  fairlead::command::Executor* const executor = device.executor.get();
  if (record.opcode >= kFirstUserOpcode) return executor->user(record.opcode, tail_of(record));
  switch (static_cast<Opcode>(record.opcode)) {
    case Opcode::kLaunch:
      return executor->launch(launch_of(record), parameters_of(record));
    case Opcode::kAllocate: {
      const auto body = body_of<AllocateBody>(record);
      return executor->allocate({body.handle}, body.bytes);
    }
    case Opcode::kRelease:
      return executor->release({body_of<ReleaseBody>(record).handle});
    case Opcode::kFill: {
      const auto body = body_of<FillBody>(record);
      return executor->fill({body.handle}, body.offset, body.bytes, static_cast<std::uint8_t>(body.value));
    }
    case Opcode::kCopyIn:
      return copy_in(channel, record);
    case Opcode::kCopyOut:
      return copy_out(channel, record);
    case Opcode::kCopyWithin: {
      const auto body = body_of<CopyWithinBody>(record);
      return executor->copy_within({body.to}, body.to_offset, {body.from}, body.from_offset, body.bytes);
    }
    case Opcode::kCopyAcross:
      return copy_across(channel, record);
    case Opcode::kLoad: {
      device.asked = 0;
      const Bytes name = tail_of(record);
      return executor->load({body_of<LoadBody>(record).handle},
                            {reinterpret_cast<const char*>(name.data()), name.size()});
    }
    case Opcode::kMark:
      return {};
    case Opcode::kFence:
      return fence(channel, record);
    case Opcode::kRecover:
      return recover(channel, record);
    case Opcode::kModule:
      return load_module(device, record);
    case Opcode::kLoadFrom:
      return load_from(device, record);
    case Opcode::kGraph:
      return make_graph(channel, record);
    case Opcode::kLaunchGraph:
      return executor->launch_graph({body_of<GraphHandleBody>(record).handle});
    case Opcode::kReleaseGraph:
      return device.graphs.release(*executor, body_of<GraphHandleBody>(record).handle);
    case Opcode::kUpdateGraph: {
      const auto body = body_of<UpdateGraphBody>(record);
      const Launch launch{{},
                          {body.grid[0], body.grid[1], body.grid[2]},
                          {body.block[0], body.block[1], body.block[2]},
                          body.shared_bytes};
      return executor->update_graph({body.graph}, body.number, launch, tail_of(record));
    }
    case Opcode::kAllocateAt: {
      const auto body = body_of<AllocateAtBody>(record);
      return executor->allocate_at({body.handle}, body.address, body.bytes);
    }
  }
  return unknown(record);
}

Outcome ServerSession::load_module(ServerDevice& device, const Record& record) {
  const auto body = body_of<ModuleBody>(record);
  if (!device.takes_modules) return device.executor->load_module({body.handle}, {});
  const ServerModules::Given given = modules_.give(body);
  if (given.image == nullptr) return given.why;
  return device.executor->load_module({body.handle}, std::span(*given.image).first(body.bytes));
}

Outcome ServerSession::load_from(ServerDevice& device, const Record& record) {
  device.asked = 0;
  const auto body = body_of<LoadFromBody>(record);
  Bytes tail = tail_of(record);
  std::vector<fairlead::command::Parameter> parameters;
  for (std::uint32_t i = 0; i < body.parameters; ++i) {
    const auto item = command::take<ParameterItem>(tail);
    parameters.push_back({item->bytes, item->alignment, item->kind == kPointerItem});
  }
  return device.executor->load_from({body.function}, {body.module},
                                    {reinterpret_cast<const char*>(tail.data()), tail.size()}, parameters);
}

Outcome ServerSession::make_graph(ServerChannel& channel, const Record& record) {
  const Bytes records = (record.flags & kInline) != 0 ? tail_of(record) : channel.payload()->bytes;
  ServerDevice& device = device_of(channel);
  return device.graphs.make(*device.executor, body_of<GraphBody>(record), records);
}

Outcome ServerSession::recover(ServerChannel& channel, const Record& record) {
  const std::uint64_t sequence = body_of<RecoverBody>(record).sequence;
  if (channel.failure() && channel.failure()->sequence == sequence) {
    channel.recover();
    return {};
  }
  return {kInvalidValue, Scope::kCommand, fmt::format("there is no failure of command {} to recover from", sequence)};
}

Outcome ServerSession::unknown(const Record& record) {
  if ((record.flags & kMustKnow) != 0) {
    return {kNotSupported, Scope::kCommand,
            fmt::format("this service knows no command of kind {}, and it must not be skipped", record.opcode)};
  }
  ++counts_.skipped_unknown;
  return {};
}

}  // namespace fairlead::datapath::command
