// Copies from another device: the public face, and what is refused without asking.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "datapath/command/client_session.h"

namespace fairlead::inline v0::command {

using datapath::command::ClientChannel;
using datapath::command::no_channel;
using datapath::command::of;
using datapath::command::Opcode;

Result<std::uint64_t> Channel::copy_across(Handle to, std::uint64_t to_offset, std::uint32_t from_device, Handle from,
                                           std::uint64_t from_offset, std::uint64_t bytes) {
  if (!valid()) return no_channel();
  ClientChannel& channel = *of(channel_);
  if (from_device == channel.options().device) return copy_within(to, to_offset, from, from_offset, bytes);
  if (channel.limits().version < datapath::command::kDevicesVersion) {
    return Status(Code::kVersionMismatch,
                  fmt::format("the service speaks version {} of the commands' protocol, which knows of one device",
                              channel.limits().version));
  }
  if (from_device >= channel.session().device_count()) {
    return Status(Code::kOutOfRange,
                  fmt::format("a copy from device {} to device {}; the session has {}, from 0 on", from_device,
                              channel.options().device, channel.session().device_count()));
  }
  for (std::uint64_t last = 0;;) {
    const std::uint64_t piece = std::min<std::uint64_t>(bytes, channel.limits().payload_bytes);
    const datapath::command::CopyAcrossBody body{to.bits, to_offset, from.bits, from_offset, piece, from_device};
    Result<std::uint64_t> sequence = channel.append({static_cast<std::uint16_t>(Opcode::kCopyAcross),
                                                     datapath::command::kMustKnow,
                                                     std::as_bytes(std::span(&body, 1)),
                                                     {}},
                                                    last);
    bytes -= piece;
    if (!sequence || bytes == 0) return sequence;
    last = *sequence;
    to_offset += piece;
    from_offset += piece;
  }
}

}  // namespace fairlead::inline v0::command
