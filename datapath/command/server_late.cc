// What a device that works by itself did meanwhile: how far it is, what it copied out, and that it lost a session's
// context.
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/system/large_bytes.h"
#include "datapath/command/server_session.h"

namespace fairlead::datapath::command {

using fairlead::command::Outcome;

void ServerSession::follow(ServerChannel& channel) {
  ServerDevice& device = device_of(channel);
  if (device.lost || channel.complete() == channel.executed()) return;
  const fairlead::command::Progress now = device.executor->progress(channel.number());
  if (channel.reach(now.complete)) ++moves_;
  while (std::optional<PendingResults::Result> result = channel.results().pending.take(channel.complete())) {
    give_result(channel, result->sequence, result->message);
    give_large(std::move(result->message));
    if (channel.reply_is_full()) reply(channel);  // all that is under way may come at once
  }
  if (!now.lost.ok()) {
    ++counts_.failures;
    ++counts_.failures_by_scope[static_cast<std::size_t>(fairlead::command::Scope::kContext)];
    lose(device, now.lost);
  }
}

/// What had not come to its end in any channel of the device failed, from the first of it on.
void ServerSession::lose(ServerDevice& device, const Outcome& outcome) {
  if (device.lost) return;
  device.lost = outcome;
  moved_ = true;             // who waited for it waits no more
  now_.due |= device.bit();  // also a channel that stands still and has nothing under way: nothing else would run it
  const auto which = static_cast<std::size_t>(&device - devices_.data());
  for (ServerChannel* const channel : channels_.order_of(which).in_order()) {
    if (channel->complete() < channel->executed()) channel->fail(outcome, channel->complete() + 1);
  }
}

std::uint64_t ServerSession::kept_bytes() noexcept {
  std::uint64_t bytes = 0;
  for (ServerChannel* const channel : channels_.all()) bytes += channel->results().pending.bytes();
  return bytes;
}

void ServerSession::give_result(ServerChannel& channel, std::uint64_t sequence, std::vector<std::byte>& message) {
  send_result(channel, sequence, message);
  if (kept_) channel.results().unheard.add(sequence, std::exchange(message, {}));
}

void ServerSession::send_result(ServerChannel& channel, std::uint64_t sequence, std::vector<std::byte>& message) {
  const Bytes bytes = Bytes(message).subspan(sizeof(MessageHeader));
  if (bytes.size() <= kMaxInline) return channel.add_data(sequence, bytes);
  const MessageHeader header{static_cast<std::uint8_t>(MessageType::kResult), 0, channel.number(), 1, sequence};
  std::memcpy(message.data(), &header, sizeof header);
  outlet_.send(TrafficClass::kBulk, message);
}

}  // namespace fairlead::datapath::command
