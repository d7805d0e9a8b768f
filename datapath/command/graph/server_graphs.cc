#include "datapath/command/graph/server_graphs.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "datapath/command/graph/records.h"

namespace fairlead::datapath::command {

using fairlead::command::GraphCommand;
using fairlead::command::Scope;

namespace {

fairlead::command::Outcome refuse(std::int32_t result, std::string text) {
  return {result, Scope::kCommand, std::move(text)};
}

/// What is wrong with it as a part of a graph; null: nothing.
const char* fault_of(const Record& record) noexcept {
  if (!record.is(Opcode::kLaunch) && !record.is(Opcode::kFill) && !record.is(Opcode::kCopyWithin)) {
    return "is of a kind that a graph does not take: it takes launches, fills and copies within";
  }
  if (!is_well_formed(record)) return "is malformed";
  if (record.is(Opcode::kCopyWithin) && overlaps(body_of<CopyWithinBody>(record))) {
    return "copies within memory that overlaps, which a graph does not";
  }
  return nullptr;
}

}  // namespace

ServerGraphs::Outcome ServerGraphs::make(Executor& executor, const GraphBody& body, Bytes records) {
  using fairlead::command::kInvalidValue;
  if (body.bytes != records.size()) {
    return refuse(kInvalidValue,
                  fmt::format("a graph of {} bytes came with {} of payload", body.bytes, records.size()));
  }
  if (body.handle == 0 || sizes_.contains(body.handle)) {
    return refuse(kInvalidValue, fmt::format("handle {} names a graph already, or nothing", body.handle));
  }
  if (body.records > most_records_ - all_.records || body.bytes > most_bytes_ - all_.bytes) {
    return refuse(fairlead::command::kOutOfMemory,
                  fmt::format("a graph of {} commands in {} bytes beside {} in {}, of {} in {} that the session may "
                              "have (ServiceConfig::graph_records, graph_bytes); release some",
                              body.records, body.bytes, all_.records, all_.bytes, most_records_, most_bytes_));
  }
  std::vector<GraphCommand> commands;
  for (Bytes rest = records; !rest.empty();) {
    const std::optional<Record> record = take_record(rest);
    const char* const fault = record ? fault_of(*record) : "is cut short";
    if (fault != nullptr) {
      return refuse(kInvalidValue, fmt::format("command {} of graph {} {}", commands.size() + 1, body.handle, fault));
    }
    commands.push_back(graph_command_of(*record));
  }
  if (commands.empty() || commands.size() != body.records) {
    return refuse(kInvalidValue, fmt::format("graph {} has {} commands, and was said to have {}; it has at least 1",
                                             body.handle, commands.size(), body.records));
  }
  Outcome outcome = executor.make_graph({body.handle}, commands, body.bytes);
  if (!outcome.ok()) return outcome;
  sizes_[body.handle] = {body.records, body.bytes};
  all_ = {all_.records + body.records, all_.bytes + body.bytes};
  return outcome;
}

ServerGraphs::Outcome ServerGraphs::release(Executor& executor, std::uint64_t handle) {
  Outcome outcome = executor.release_graph({handle});
  const auto found = outcome.ok() ? sizes_.find(handle) : sizes_.end();
  if (found == sizes_.end()) return outcome;
  all_ = {all_.records - found->second.records, all_.bytes - found->second.bytes};
  sizes_.erase(found);
  return outcome;
}

}  // namespace fairlead::datapath::command
