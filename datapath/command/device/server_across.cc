// Copies from one device of a session to another: out of the first into memory of this process, and from there in.
//
// A device that works by itself is given the first half on a stream that it has for the copying channel; the channel
// stands still until it is past that, and looks again as it does for its own device.
#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "datapath/command/server_session.h"

namespace fairlead::datapath::command {

using fairlead::command::kInvalidValue;
using fairlead::command::kNotReady;
using fairlead::command::Outcome;
using fairlead::command::Scope;

bool ServerSession::has_come_across(ServerChannel& channel, const CopyAcrossBody& body) {
  const std::uint64_t sequence = channel.executed() + 1;
  CopyAcross& across = channel.results().across.of(sequence);
  const auto ends = [&across](Outcome outcome) {
    across.outcome = std::move(outcome);
    return across.is_here = true;
  };
  if (across.is_here) return true;
  if (body.from_device >= devices_.size() || body.bytes > terms_.payload_bytes) {
    return ends({kInvalidValue, Scope::kCommand,
                 fmt::format("{} bytes from device {}; the session has {} devices, and one command copies at most {}",
                             body.bytes, body.from_device, devices_.size(), terms_.payload_bytes)});
  }
  // It would not wait for what is under way there: within a device there is another command.
  if (body.from_device == channel.device()) {
    return ends({kInvalidValue, Scope::kCommand, "within a device another command copies (kCopyWithin)"});
  }
  ServerDevice& source = devices_[body.from_device];
  if (!across.begun && !source.lost) {
    across.bytes.resize(body.bytes);
    if (source.late) source.executor->begin({channel.number(), sequence});
    Outcome outcome = source.executor->copy_out(across.bytes, {body.from}, body.from_offset);
    if (source.late && outcome.result == kNotReady && outcome.scope == Scope::kCommand) return false;
    if (outcome.scope >= Scope::kContext) lose(source, outcome);
    if (!outcome.ok() || !source.late) return ends(std::move(outcome));
    across.begun = true;
  }
  if (!source.lost) {
    const fairlead::command::Progress now = source.executor->progress(channel.number());
    if (!now.lost.ok()) {
      lose(source, now.lost);
    } else {
      return now.complete >= sequence ? ends({}) : false;
    }
  }
  return ends(*source.lost);
}

Outcome ServerSession::copy_across(ServerChannel& channel, const Record& record) {
  const auto body = body_of<CopyAcrossBody>(record);
  CopyAcross& across = channel.results().across.of(channel.executed() + 1);
  Outcome outcome = across.outcome;
  if (outcome.ok()) {
    outcome = device_of(channel).executor->copy_in({body.to}, body.to_offset, across.bytes);
    if (outcome.ok() || outcome.result == kNotReady) return outcome;
  } else if (outcome.scope >= Scope::kContext) {
    outcome.scope = Scope::kStream;  // this channel's device is as it was
  }
  outcome.text = fmt::format("a copy of {} bytes from device {} to device {}: {}", body.bytes, body.from_device,
                             channel.device(), outcome.text);
  return outcome;
}

}  // namespace fairlead::datapath::command
