#include "command_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "datapath/engine/handles.h"

namespace fairlead::simulation {

using command::Channel;
using command::Handle;
using command::Pointer;
using command::Stage;
using Kind = Action::Kind;

namespace {

constexpr std::byte kUntouched{0xab};
constexpr std::chrono::seconds kPatience{20};  // until the service has answered
constexpr std::chrono::seconds kSought{100};   // the service, by who lost its peer

}  // namespace

CommandClient::CommandClient(World& world, const Program& program, const Expected& expected,
                             std::shared_ptr<datapath::SessionImpl> session, std::size_t& begun, bool late,
                             datapath::command::Seeker::Dial dial, datapath::command::Seeker::Now now)
    : world_(world),
      program_(program),
      expected_(expected),
      of_engine_(std::move(session)),
      begun_(begun),
      late_(late),
      patience_(world.now() + kPatience),
      dial_(std::move(dial)),
      now_(now),
      sequences_(program.actions.size()),
      outputs_(program.actions.size()) {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Action& action = program.actions[i];
    if (action.kind == Kind::kCopyOut) outputs_[i].assign(action.bytes, kUntouched);
    if (action.kind == Kind::kFail) outputs_[i].assign(16, kUntouched);
  }
}

CommandClient::~CommandClient() {
  channels_.clear();
  session_.reset();
  if (!dead_ && !of_engine_->finished()) of_engine_->request_close(std::chrono::seconds(5));
}

void CommandClient::wrong(std::string what) {
  if (wrong_.empty()) wrong_ = fmt::format("{} ({})", what, progress());
}

std::string CommandClient::progress() const {
  const char* const where = session_ == nullptr ? "not greeted" : channels_.empty() ? "not welcome" : "at work";
  std::string text = fmt::format("client {}, action {} of {}", where, next_, program_.actions.size());
  for (const Channel& channel : channels_) {
    text += fmt::format(", channel {}: {} appended, {} accepted, {} executed, {} complete", channel.number(),
                        channel.last(), channel.reached(Stage::kAccepted), channel.reached(Stage::kExecuted),
                        channel.reached(Stage::kComplete));
  }
  return text;
}

void CommandClient::close() {
  if (session_ != nullptr) {
    session_->close();
  } else {
    of_engine_->request_close(std::chrono::seconds(5));
  }
}

bool CommandClient::is_kept() const noexcept {
  return session_ != nullptr && session_->is_welcome() && session_->outlives_peers();
}

std::uint64_t CommandClient::executed(std::size_t channel) const {
  return channel < channels_.size() ? channels_[channel].reached(Stage::kExecuted) : 0;
}

/// The session is over before the program is: the client hears why, at whatever it asks.
void CommandClient::end(const Status& why) {
  lost_ = why;
  if (why.ok() || why.message().empty()) wrong("the session ended, and nobody says why");
  if (session_ == nullptr || !session_->has_ended()) return;
  for (Channel& channel : channels_) {
    if (const Result<std::uint64_t> more = channel.release({1}); more) wrong("a session that ended takes commands");
    if (channel.last() == 0 || channel.reached(Stage::kComplete) >= channel.last()) continue;
    const Status at_end = channel.synchronize(std::chrono::nanoseconds(0));
    if (at_end.ok()) wrong("a command that is not known to be complete ended well");
  }
  judge_what_is_there();
}

void CommandClient::greet() {
  command::SessionOptions options;
  options.flush_bytes = program_.flush_bytes;
  options.flush_commands = program_.flush_commands;
  options.flush_after = std::chrono::microseconds(0);
  options.wait_for_room = false;
  if (program_.has_range) options.range_bytes = kRangeBytes;  // the service is in this process
  std::uint64_t devices = datapath::command::kAnyDevice;
  if (program_.devices > 1) devices = (std::uint64_t{1} << program_.devices) - 1;
  if (dial_ != nullptr) options.resume_within = kSought;
  session_ = std::make_shared<datapath::command::ClientSession>(datapath::make_peer(of_engine_), options);
  if (dial_ != nullptr) session_->seek_by(dial_, now_);
  session_->greet(of_engine_->host().config().max_message_bytes, {options.range_bytes, 0}, devices);
}

bool CommandClient::open_channels() {
  for (std::uint16_t i = 0; i < program_.channels; ++i) {
    datapath::command::ClientChannel* const channel =
        session_->open_channel({.priority = program_.priorities[i], .device = program_.device_of(i)});
    if (channel == nullptr) {
      wrong("the service gives fewer channels than it is to");
      return false;
    }
    channels_.emplace_back(std::shared_ptr<command::ChannelBody>(session_, channel));
  }
  return true;
}

bool CommandClient::step() {
  if (done_ || !lost_.ok() || !wrong_.empty()) return false;
  if (session_ == nullptr) {
    if (of_engine_->state() == PeerState::kClosed) {
      end(datapath::make_peer(of_engine_).wait_ready(std::chrono::nanoseconds(0)));
      return false;
    }
    if (of_engine_->state() == PeerState::kReady) greet();
  }
  if (session_ != nullptr) {
    session_->drain();
    if (session_->has_ended()) {
      end(session_->status());
      return false;
    }
  }
  if (session_ == nullptr || !session_->is_welcome()) {
    if (world_.now() > patience_) end({Code::kDeadlineExceeded, "the service does not answer"});
    return lost_.ok();
  }
  if (channels_.empty() && !open_channels()) return false;
  if (context_is_lost()) return false;
  Went went = Went::kOn;
  while (went == Went::kOn && next_ < program_.actions.size() && world_.chance(0.95)) {
    went = go_on();
    if (went != Went::kOn) break;
    ++next_;
    ++begun_;
  }
  if (went != Went::kFailed && next_ == program_.actions.size()) {
    judge_results();
    done_ = true;
    return false;
  }
  if (world_.chance(0.3)) session_->flush_all();  // as the timer does
  return lost_.ok() && wrong_.empty();
}

/// A device's, or one's that this channel waited for. Then the session comes to nothing any more, and what is known to
/// be complete is right.
bool CommandClient::context_is_lost() {
  for (const Channel& channel : channels_) {
    const std::optional<command::Failure> failure = channel.failure();
    const bool waited = failure && failure->scope == command::Scope::kStream && program_.devices > 1;
    if (!failure || (failure->scope < command::Scope::kContext && !waited)) continue;
    if (failure->scope > command::Scope::kContext || failure->result != command::kLaunchFailed ||
        failure->text.empty() || failure->sequence > channel.last() ||
        (late_ && !waited && failure->sequence <= channel.reached(Stage::kComplete))) {
      wrong(
          fmt::format("the device was lost; said is: command {} of {}, {} of them complete, scope {}, result {}, '{}'",
                      failure->sequence, channel.last(), channel.reached(Stage::kComplete),
                      static_cast<int>(failure->scope), failure->result, failure->text));
    }
    Channel copy = channel;
    if (!waited && copy.recover().code() != Code::kAborted) wrong("what is lost is recovered from");
    if (failure->scope == command::Scope::kContext) lost_at_[channel.number()] = failure->sequence;
    judge_what_is_there();
    lost_ = {Code::kAborted, failure->text};
    return true;
  }
  return false;
}

CommandClient::Went CommandClient::go_on() {
  const Action& action = program_.actions[next_];
  if (action.kind == Kind::kSync) return sync(action);
  if (action.kind == Kind::kRecover) return recover(action);
  const Result<std::uint64_t> appended = append(action, next_);
  if (appended) {
    sequences_[next_] = *appended;
    return Went::kOn;
  }
  if (session_->has_ended()) return Went::kWaits;
  if (appended.error().code() == Code::kResourceExhausted) return Went::kWaits;
  // What comes behind a failure is appended until that is known.
  if (action.passed_over && appended.error().code() == Code::kAborted) return Went::kOn;
  if (context_is_lost()) return Went::kWaits;
  wrong(fmt::format("it cannot be appended: {}", appended.error().message()));
  return Went::kFailed;
}

Result<std::uint64_t> CommandClient::append(const Action& action, std::size_t number) {
  Channel& channel = channels_[action.channel];
  const Handle handle{action.handle};
  switch (action.kind) {
    case Kind::kAllocate:
      if (!program_.has_range) return channel.allocate(handle, action.bytes);
      return channel.allocate_at(handle, session_->limits(channel.device()).range.base + action.at, action.bytes);
    case Kind::kUpload:
      return channel.upload(handle, graph_of(program_.graphs[action.other]));
    case Kind::kUpdateGraph:
      return channel.update_graph(handle, action.number, {}, mix_parameters(action.target, action.other, action.bytes));
    case Kind::kLaunchGraph:
      return channel.launch_graph(handle);
    case Kind::kReleaseGraph:
      return channel.release_graph(handle);
    case Kind::kRelease:
      return channel.release(handle);
    case Kind::kFill:
      return channel.fill(handle, action.at, action.bytes, action.value);
    case Kind::kCopyIn:
      return channel.copy_in(handle, action.at, bytes_of(action));
    case Kind::kCopyOut:
      return channel.copy_out(outputs_[number], handle, action.at);
    case Kind::kCopyWithin:
      return channel.copy_within(handle, action.at, {action.other}, action.other_at, action.bytes);
    case Kind::kCopyAcross: {
      const auto from = static_cast<std::uint16_t>(channel_of(action.other));
      ++across_;
      return channel.copy_across(handle, action.at, program_.device_of(from), {action.other}, action.other_at,
                                 action.bytes);
    }
    case Kind::kLoad:
      return channel.load(handle, "mix");
    case Kind::kLaunch:
      return channel.launch(
          {{handle_of(action.channel, kFunction)}},
          command::pack(Pointer{{action.other}}, Pointer{handle}, static_cast<std::uint32_t>(action.bytes)));
    case Kind::kUser:
      return channel.user(LoggedDevice::opcode_of(action.channel), bytes_of(action));
    case Kind::kMark: {
      const Result<command::Mark> mark = channel.record();
      if (!mark) return mark.error();
      return mark->sequence;
    }
    case Kind::kFence: {
      const Action& marked = program_.actions[action.other];
      return channel.fence({marked.channel, sequences_[action.other]});
    }
    default:
      return append_failing(channel, action);
  }
}

Result<std::uint64_t> CommandClient::append_failing(Channel& channel, const Action& action) {
  const Handle handle{action.handle};
  switch (action.value) {
    case 0:
      return channel.release(handle);
    case 1:
      return channel.copy_out(outputs_[next_], handle, 0);
    case 2:
      return channel.launch({handle}, {});
    case 3:
      return channel.load(handle, "what nobody has");
    default:
      return channel.fill(handle, 0, 1, 1);
  }
}

CommandClient::Went CommandClient::sync(const Action& action) {
  Channel& channel = channels_[action.channel];
  const Status end = channel.synchronize(std::chrono::nanoseconds(0));
  if (end.ok()) return Went::kOn;
  if (session_->has_ended() || end.code() == Code::kDeadlineExceeded || context_is_lost()) return Went::kWaits;
  wrong(fmt::format("a command failed that was not to: {}", end.message()));
  return Went::kFailed;
}

CommandClient::Went CommandClient::recover(const Action& action) {
  const Action& failed = program_.actions[action.other];
  const std::uint64_t sequence = sequences_[action.other];
  Channel& channel = channels_[action.channel];
  const Status end = channel.wait(sequence, Stage::kComplete, std::chrono::nanoseconds(0));
  if (session_->has_ended() || end.code() == Code::kDeadlineExceeded || context_is_lost()) return Went::kWaits;
  if (end.code() != Code::kAborted) {
    wrong(fmt::format("command {} of channel {} was to fail, and ended so: {}", sequence, action.channel,
                      end.to_string()));
    return Went::kFailed;
  }
  judge_failure(failed, sequence);
  for (std::size_t i = action.other + 1; i < next_; ++i) {
    if (program_.actions[i].channel != action.channel || sequences_[i] == 0) continue;
    if (channel.wait(sequences_[i], Stage::kComplete, std::chrono::nanoseconds(0)).code() != Code::kAborted) {
      wrong(fmt::format("command {} of channel {} was passed over, and is not said to be", sequences_[i],
                        action.channel));
    }
  }
  if (!wrong_.empty()) return Went::kFailed;
  // With no credits left it would wait.
  if (channel.last() - channel.reached(Stage::kExecuted) >= session_->limits().credits) return Went::kWaits;
  if (const Status fine = channel.recover(); !fine.ok()) {
    if (session_->has_ended()) return Went::kWaits;
    wrong(fmt::format("it does not recover: {}", fine.message()));
    return Went::kFailed;
  }
  ++recovered_;
  return Went::kOn;
}

void CommandClient::judge_failure(const Action& failed, std::uint64_t sequence) {
  static constexpr std::array<std::int32_t, Action::kWaysToFail> kResults{
      command::kInvalidHandle, command::kInvalidHandle, command::kInvalidHandle, command::kNoSuchName,
      command::kInvalidHandle};
  const std::optional<command::Failure> failure = channels_[failed.channel].failure();
  if (!failure) return wrong("a failure was told of, and is not there");
  if (failure->sequence != sequence || failure->scope != command::Scope::kCommand ||
      failure->result != kResults[failed.value] || failure->text.empty()) {
    wrong(fmt::format("command {} of channel {} failed; said is: command {}, scope {}, result {}, '{}'", sequence,
                      failed.channel, failure->sequence, static_cast<int>(failure->scope), failure->result,
                      failure->text));
  }
}

/// All is read back.
void CommandClient::judge_results() {
  judge_what_is_there();
  for (const Channel& channel : channels_) {
    if (channel.reached(Stage::kComplete) != channel.last()) wrong("it is done, and not all is complete");
  }
}

/// Whatever is said to be complete is right, and what was passed over is untouched.
void CommandClient::judge_what_is_there() {
  for (std::size_t i = 0; i < next_; ++i) {
    const Action& action = program_.actions[i];
    const bool passed_over = action.passed_over || action.kind == Kind::kFail;
    if (passed_over && sequences_[i] != 0) {
      const Status end = channels_[action.channel].wait(sequences_[i], Stage::kComplete, std::chrono::nanoseconds(0));
      if (end.ok()) return wrong(fmt::format("action {} did not run, and is said to have ended well", i));
    }
    if (passed_over) {
      if (std::ranges::all_of(outputs_[i], [](std::byte byte) { return byte == kUntouched; })) continue;
      return wrong(fmt::format("action {} was passed over, and wrote", i));
    }
    if (outputs_[i].empty()) continue;
    if (!channels_[action.channel].wait(sequences_[i], Stage::kComplete, std::chrono::nanoseconds(0)).ok()) continue;
    if (outputs_[i] != expected_.outputs[i]) {
      return wrong(
          fmt::format("what action {} reads of allocation {} is not what is there undisturbed", i, action.handle));
    }
  }
}

}  // namespace fairlead::simulation
