// Fences between channels of a session, also of several devices.
//
// On one device that works by itself a fence is handed over. No device waits for another's: there the channel stands
// still until the other device is past the mark.
#include <fmt/format.h>

#include <cstdint>

#include "datapath/command/server_session.h"

namespace fairlead::datapath::command {

using fairlead::command::kInvalidValue;
using fairlead::command::Outcome;
using fairlead::command::Scope;

bool ServerSession::waits_for(const ServerChannel& channel, const FenceBody& mark) {
  if (mark.channel >= terms_.channels || mark.channel == channel.number()) return false;
  const ServerChannel* const other = channels_.find(mark.channel);
  if (other != nullptr && other->device() == channel.device()) return other->executed() < mark.sequence;
  // One that is not there yet may be of any device.
  const bool waits = other == nullptr || other->executed() < mark.sequence ||
                     (other->complete() < mark.sequence && other->passed_over(mark.sequence) == nullptr);
  if (waits) fenced_ |= device_of(channel).bit();
  return waits;
}

Outcome ServerSession::fence(const ServerChannel& channel, const Record& record) {
  const auto body = body_of<FenceBody>(record);
  const ServerChannel* const other = channels_.find(body.channel);
  if (other == nullptr) {
    return {kInvalidValue, Scope::kCommand, fmt::format("a fence on channel {}, which there is not", body.channel)};
  }
  if (const fairlead::command::Failure* const why = other->passed_over(body.sequence)) {
    return {why->result, Scope::kStream,
            fmt::format("command {} of channel {}, which it waited for, did not run: {}", body.sequence, body.channel,
                        why->text)};
  }
  if (other->executed() < body.sequence) {
    return {kInvalidValue, Scope::kCommand,
            fmt::format("a fence on command {} of its own channel, which comes later", body.sequence)};
  }
  ServerDevice& device = device_of(channel);
  if (!device.late || other->device() != channel.device()) return {};
  return device.executor->fence({static_cast<std::uint32_t>(body.channel), body.sequence});
}

}  // namespace fairlead::datapath::command
