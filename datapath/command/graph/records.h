// The records of a graph as commands. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "datapath/command/codec.h"
#include "fairlead/command_service.h"

namespace fairlead::datapath::command {

/// Whether both are of one allocation, and some byte is in both.
[[nodiscard]] constexpr bool overlaps(const CopyWithinBody& body) noexcept {
  const std::uint64_t first = std::min(body.to_offset, body.from_offset);
  return body.to == body.from && std::max(body.to_offset, body.from_offset) - first < body.bytes;
}

/// Of one of the kinds that a graph takes, which is well formed. It refers to the record's bytes.
[[nodiscard]] inline fairlead::command::GraphCommand graph_command_of(const Record& record) noexcept {
  using Kind = fairlead::command::GraphCommand::Kind;
  fairlead::command::GraphCommand command;
  if (record.is(Opcode::kLaunch)) {
    const auto body = body_of<LaunchBody>(record);
    command.launch = {{body.function},
                      {body.grid[0], body.grid[1], body.grid[2]},
                      {body.block[0], body.block[1], body.block[2]},
                      body.shared_bytes};
    command.parameters = tail_of(record);
  } else if (record.is(Opcode::kFill)) {
    const auto body = body_of<FillBody>(record);
    command.kind = Kind::kFill;
    command.to = {body.handle};
    command.to_offset = body.offset;
    command.bytes = body.bytes;
    command.value = static_cast<std::uint8_t>(body.value);
  } else {
    const auto body = body_of<CopyWithinBody>(record);
    command.kind = Kind::kCopyWithin;
    command.to = {body.to};
    command.to_offset = body.to_offset;
    command.from = {body.from};
    command.from_offset = body.from_offset;
    command.bytes = body.bytes;
  }
  return command;
}

}  // namespace fairlead::datapath::command
