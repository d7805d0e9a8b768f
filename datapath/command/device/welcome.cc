#include "datapath/command/device/welcome.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fairlead::datapath::command {

using fairlead::command::Limits;

namespace {

bool is_legal(const Welcome& said, const WelcomeLast& last) noexcept {
  return last.greatest_priority <= 0 && last.least_priority >= 0 && said.version >= kOldestVersion &&
         said.version <= kNewestVersion && said.channels != 0 && said.credits != 0 &&
         said.payload_bytes >= kMaxInline && said.payload_bytes <= kMaxPayload &&
         said.payload_credit >= said.payload_bytes && said.parameter_bytes <= kMaxParameters;
}

Limits limits_of(const Limits& common, const DeviceFacts& device) {
  const WelcomeDevice& facts = device.facts;
  Limits limits = common;
  limits.memory_bytes = facts.memory_bytes;
  limits.block_threads = facts.block_threads;
  limits.shared_bytes = facts.shared_bytes;
  limits.grid = {facts.grid[0], facts.grid[1], facts.grid[2]};
  limits.modules = facts.modules;
  limits.graph_records = facts.graph_records;
  limits.graph_bytes = facts.graph_bytes;
  limits.range = {facts.range_base, facts.range_bytes, facts.range_alignment};
  limits.least_priority = facts.least_priority;
  limits.greatest_priority = facts.greatest_priority;
  limits.device_number = facts.number;
  limits.device_name = device.name;
  return limits;
}

}  // namespace

DeviceFacts only_device(const Welcome& said, const WelcomeMore& more, const WelcomeLast& last) {
  return {{.memory_bytes = said.memory_bytes,
           .block_threads = said.block_threads,
           .shared_bytes = said.shared_bytes,
           .grid = {said.grid[0], said.grid[1], said.grid[2]},
           .modules = said.modules,
           .graph_records = more.graph_records,
           .range_alignment = more.range_alignment,
           .graph_bytes = more.graph_bytes,
           .range_base = more.range_base,
           .range_bytes = more.range_bytes,
           .least_priority = last.least_priority,
           .greatest_priority = last.greatest_priority},
          {}};
}

std::optional<WelcomeRead> read_welcome(Bytes body, bool asked_to_keep) {
  const auto said = take<Welcome>(body);
  const auto more = said && said->version >= kGraphVersion ? take<WelcomeMore>(body) : WelcomeMore();
  const auto last = more && said->version >= kChannelVersion ? take<WelcomeLast>(body) : WelcomeLast();
  if (!said || !more || !last || !is_legal(*said, *last)) return std::nullopt;
  const bool knows_devices = said->version >= kDevicesVersion;
  const bool may_keep = asked_to_keep && said->version >= kResumeVersion;
  auto kept = knows_devices || may_keep ? take<WelcomeKept>(body) : std::nullopt;
  if (knows_devices && !kept) return std::nullopt;
  if (!may_keep || (kept && kept->keep_ms == 0)) kept.reset();
  const Limits common{.version = said->version,
                      .channels = said->channels,
                      .credits = said->credits,
                      .parameter_bytes = said->parameter_bytes,
                      .payload_bytes = said->payload_bytes,
                      .payload_credit = said->payload_credit,
                      .kept_for = std::chrono::milliseconds(kept ? std::min(kept->keep_ms, kMostSaid) : 0)};
  if (!knows_devices) return WelcomeRead{{limits_of(common, only_device(*said, *more, *last))}, kept};
  const auto devices = take_devices(body);
  if (!devices) return std::nullopt;
  WelcomeRead read{{}, kept};
  for (const DeviceFacts& each : *devices) read.devices.push_back(limits_of(common, each));
  return read;
}

}  // namespace fairlead::datapath::command
