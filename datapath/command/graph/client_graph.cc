// Graphs at the client: how they are written, and what is refused without asking.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "datapath/command/client_session.h"
#include "datapath/command/graph/launch_check.h"
#include "datapath/command/graph/records.h"
#include "fairlead/command_graph.h"

namespace fairlead::inline v0::command {

using datapath::command::Bytes;
using datapath::command::ClientChannel;
using datapath::command::no_channel;
using datapath::command::of;
using datapath::command::Opcode;

namespace {

Status wrong(std::string text) { return {Code::kInvalidArgument, std::move(text)}; }

template <typename Body>
Bytes bytes_of(const Body& body) {
  return std::as_bytes(std::span(&body, 1));
}

/// ok, or why the service of that session has no graphs.
Status check_graphs(const Limits& limits) {
  if (limits.version < datapath::command::kGraphVersion) {
    return {Code::kVersionMismatch,
            fmt::format("the service speaks version {} of the commands' protocol, which knows no graphs; version {} "
                        "does: give their commands one by one, or update the service",
                        limits.version, datapath::command::kGraphVersion)};
  }
  if (limits.graph_records != 0) return {};
  return {Code::kUnimplemented, "the service's device takes no graphs: give their commands one by one"};
}

/// Of each launch: what the session does not allow.
Status check_launches(const Graph& graph, const Limits& limits) {
  Bytes rest = graph.bytes();
  for (std::uint32_t number = 1; number <= graph.records(); ++number) {
    const auto record = datapath::command::take_record(rest);
    if (!record || !record->is(Opcode::kLaunch)) continue;
    const GraphCommand command = datapath::command::graph_command_of(*record);
    const Status fine = datapath::command::check_launch(command.launch, command.parameters.size(), limits);
    if (!fine.ok()) return wrong(fmt::format("command {} of the graph: {}", number, fine.message()));
  }
  return {};
}

Result<std::uint64_t> append(const std::shared_ptr<ChannelBody>& channel, Opcode opcode, Handle graph) {
  if (channel == nullptr) return no_channel();
  if (Status fine = check_graphs(of(channel)->limits()); !fine.ok()) return fine;
  if (graph.bits == 0) return wrong("handle 0 names no graph");
  const datapath::command::GraphHandleBody body{graph.bits};
  return of(channel)->append({static_cast<std::uint16_t>(opcode), datapath::command::kMustKnow, bytes_of(body), {}});
}

}  // namespace

// ---- Graph ---------------------------------------------------------------------------------------------------------

Result<std::uint32_t> Graph::launch(const Launch& launch, std::span<const std::byte> parameters) {
  // What the session allows is known when it is uploaded.
  constexpr std::uint32_t kAny = std::numeric_limits<std::uint32_t>::max();
  const Limits widest{.parameter_bytes = datapath::command::kMaxParameters,
                      .block_threads = kAny,
                      .shared_bytes = kAny,
                      .grid = {kAny, kAny, kAny}};
  if (Status fine = datapath::command::check_launch(launch, parameters.size(), widest); !fine.ok()) return fine;
  datapath::command::put_record(bytes_, Opcode::kLaunch, 0,
                                datapath::command::LaunchBody{launch.function.bits,
                                                              {launch.grid.x, launch.grid.y, launch.grid.z},
                                                              {launch.block.x, launch.block.y, launch.block.z},
                                                              launch.shared_bytes,
                                                              static_cast<std::uint32_t>(parameters.size())},
                                parameters);
  return ++records_;
}

Result<std::uint32_t> Graph::fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) {
  if (to.bits == 0) return wrong("handle 0 names no memory to fill");
  datapath::command::put_record(bytes_, Opcode::kFill, 0, datapath::command::FillBody{to.bits, offset, bytes, value});
  return ++records_;
}

Result<std::uint32_t> Graph::copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                                         std::uint64_t bytes) {
  if (to.bits == 0 || from.bits == 0) return wrong("handle 0 names no memory to copy");
  const datapath::command::CopyWithinBody body{to.bits, to_offset, from.bits, from_offset, bytes};
  if (datapath::command::overlaps(body)) {
    return wrong(fmt::format("{} bytes from {} and to {} of allocation {} overlap, which a graph does not copy", bytes,
                             from_offset, to_offset, to.bits));
  }
  datapath::command::put_record(bytes_, Opcode::kCopyWithin, 0, body);
  return ++records_;
}

// ---- Channel -------------------------------------------------------------------------------------------------------

Result<std::uint64_t> Channel::upload(Handle handle, const Graph& graph) {
  if (!valid()) return no_channel();
  const Limits& limits = of(channel_)->limits();
  if (Status fine = check_graphs(limits); !fine.ok()) return fine;
  const std::uint64_t most = std::min<std::uint64_t>(limits.payload_bytes, limits.graph_bytes);
  if (handle.bits == 0 || graph.records() == 0 || graph.records() > limits.graph_records || graph.size() > most) {
    return wrong(
        fmt::format("a graph of {} commands in {} bytes named {}; the handle is not 0, and there are 1 to {} "
                    "commands in at most {} bytes: make several of it",
                    graph.records(), graph.size(), handle.bits, limits.graph_records, most));
  }
  if (Status fine = check_launches(graph, limits); !fine.ok()) return fine;
  const datapath::command::GraphBody body{handle.bits, graph.size(), graph.records()};
  return of(channel_)->append_with_bytes(
      {static_cast<std::uint16_t>(Opcode::kGraph), datapath::command::kMustKnow, bytes_of(body), {}}, graph.bytes());
}

Result<std::uint64_t> Channel::update_graph(Handle graph, std::uint32_t number, const Launch& launch,
                                            std::span<const std::byte> parameters) {
  if (!valid()) return no_channel();
  const Limits& limits = of(channel_)->limits();
  if (Status fine = check_graphs(limits); !fine.ok()) return fine;
  if (limits.version < datapath::command::kChannelVersion) {
    return Status(Code::kVersionMismatch,
                  fmt::format("the service speaks version {} of the commands' protocol, in which graphs stay as they "
                              "are; version {} does: upload another graph, or update the service",
                              limits.version, datapath::command::kChannelVersion));
  }
  if (graph.bits == 0 || number == 0 || number > limits.graph_records || launch.function.bits != 0) {
    return wrong(
        fmt::format("command {} of graph {}, and function {}; neither of the first is 0, commands are counted "
                    "from 1 to at most {}, and the function stays: leave it out",
                    number, graph.bits, launch.function.bits, limits.graph_records));
  }
  if (Status fine = datapath::command::check_extents(launch, parameters.size(), limits); !fine.ok()) return fine;
  const datapath::command::UpdateGraphBody body{graph.bits,
                                                number,
                                                static_cast<std::uint32_t>(parameters.size()),
                                                {launch.grid.x, launch.grid.y, launch.grid.z},
                                                {launch.block.x, launch.block.y, launch.block.z},
                                                launch.shared_bytes,
                                                0};
  return of(channel_)->append(
      {static_cast<std::uint16_t>(Opcode::kUpdateGraph), datapath::command::kMustKnow, bytes_of(body), parameters});
}

Result<std::uint64_t> Channel::launch_graph(Handle graph) { return append(channel_, Opcode::kLaunchGraph, graph); }
Result<std::uint64_t> Channel::release_graph(Handle graph) { return append(channel_, Opcode::kReleaseGraph, graph); }

}  // namespace fairlead::inline v0::command
