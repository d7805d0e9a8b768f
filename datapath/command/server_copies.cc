// Copies in and out: from payload that came, or from the session's window, and to a message, or there.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/system/large_bytes.h"
#include "datapath/command/server_session.h"

namespace fairlead::datapath::command {

using fairlead::command::kInvalidValue;
using fairlead::command::Outcome;
using fairlead::command::Scope;

Outcome ServerSession::copy_in(ServerChannel& channel, const Record& record) {
  const auto body = body_of<CopyBody>(record);
  const bool is_inline = (record.flags & kInline) != 0;
  const Bytes bytes = is_inline ? tail_of(record) : channel.payload()->bytes;
  if (bytes.size() == body.bytes) return device_of(channel).executor->copy_in({body.handle}, body.offset, bytes);
  return {kInvalidValue, Scope::kCommand,
          fmt::format("a copy of {} bytes came with {} of payload", body.bytes, bytes.size())};
}

/// Whoever waits for the command reads them there.
Outcome ServerSession::copy_to_window(ServerChannel& channel, const Record& record) {
  const auto body = body_of<CopyToWindowBody>(record);
  if (body.copy.bytes > kMaxPlaced || !lies_within({body.at, body.copy.bytes}, window_.size())) {
    return {kInvalidValue, Scope::kCommand,
            fmt::format("a copy of {} bytes to {} of the session's window, which has {}; one has at most {}",
                        body.copy.bytes, body.at, window_.size(), kMaxPlaced)};
  }
  return device_of(channel).executor->copy_out(window_.subspan(body.at, body.copy.bytes), {body.copy.handle},
                                               body.copy.offset);
}

Outcome ServerSession::copy_out(ServerChannel& channel, const Record& record) {
  if ((record.flags & kPlaced) != 0) return copy_to_window(channel, record);
  const auto body = body_of<CopyBody>(record);
  if (body.bytes > terms_.payload_bytes) {
    return {kInvalidValue, Scope::kCommand,
            fmt::format("one command copies at most {} bytes out, not {}", terms_.payload_bytes, body.bytes)};
  }
  if (scratch_.capacity() == 0) scratch_ = take_large(sizeof(MessageHeader) + body.bytes);
  scratch_.resize(sizeof(MessageHeader) + body.bytes);
  const std::span<std::byte> bytes = std::span(scratch_).subspan(sizeof(MessageHeader));
  Outcome outcome = device_of(channel).executor->copy_out(bytes, {body.handle}, body.offset);
  if (!outcome.ok()) return outcome;
  if (device_of(channel).late) {
    channel.results().pending.add(channel.executed() + 1, std::exchange(scratch_, {}));
  } else {
    give_result(channel, channel.executed() + 1, scratch_);
  }
  return outcome;
}

}  // namespace fairlead::datapath::command
