// The greeting of a session at the server: what the client wishes, the devices that it gets, and what it is told.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "datapath/command/server_session.h"

namespace fairlead::datapath::command {

namespace {

std::string list_of(std::uint32_t devices) {
  std::string list;
  for (; devices != 0; devices &= devices - 1) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", std::countr_zero(devices));
  }
  return list;
}

/// Those of `mine` that are wished for.
Result<std::uint32_t> chosen_of(std::uint64_t wish, std::uint32_t mine) {
  if (wish == kAllDevices) return mine;
  if (wish == kAnyDevice) return mine & (~mine + 1);
  const std::uint64_t others = wish & ~std::uint64_t{mine};
  if (others == 0) return static_cast<std::uint32_t>(wish);
  return Status(Code::kPermissionDenied, fmt::format("it has no device {} for this client, which may use {}",
                                                     std::countr_zero(others), list_of(mine)));
}

DeviceFacts facts_of(const ServerDevice& device, const ServerSession::Terms& terms) {
  DeviceFacts told{{}, device.limits.name};
  WelcomeDevice& facts = told.facts;
  facts.number = device.number;
  facts.memory_bytes = device.limits.memory_bytes;
  facts.block_threads = device.limits.block_threads;
  facts.shared_bytes = device.limits.shared_bytes;
  facts.grid[0] = device.limits.grid.x;
  facts.grid[1] = device.limits.grid.y;
  facts.grid[2] = device.limits.grid.z;
  facts.modules = device.limits.modules;
  facts.range_alignment = device.range.alignment;
  facts.range_base = device.range.base;
  facts.range_bytes = device.range.bytes;
  facts.least_priority = device.limits.priorities.least;
  facts.greatest_priority = device.limits.priorities.greatest;
  if (!device.limits.graphs) return told;
  facts.graph_records = terms.graph_records;
  facts.graph_bytes = terms.graph_bytes;
  return told;
}

}  // namespace

/// The first failure is why there is no session.
Status ServerSession::begin_devices(std::uint32_t chosen, std::uint16_t version, const HelloMore& wish) {
  const bool several = !std::has_single_bit(chosen);
  const auto named = [several](std::uint32_t number, const Status& why) {
    return several ? Status(why.code(), fmt::format("device {}: {}", number, why.message())) : why;
  };
  for (std::uint64_t base = wish.range_wish; chosen != 0; chosen &= chosen - 1) {
    const auto number = static_cast<std::uint32_t>(std::countr_zero(chosen));
    Result<std::unique_ptr<fairlead::command::Executor>> made = make_(number);
    if (!made) return named(number, made.error());
    ServerDevice& device = devices_.emplace_back(
        ServerDevice{number, ServerGraphs(terms_.graph_records, terms_.graph_bytes), *std::move(made)});
    if (wish.range_bytes != 0) {
      const Result<fairlead::command::AddressRange> reserved = device.executor->reserve(wish.range_bytes, base);
      if (!reserved) return named(number, reserved.error());
      device.range = *reserved;
      device.limits = device.executor->limits();
      if (base != 0) base += range_step(wish.range_bytes);
    }
    if (device.late && version < kLateVersion) {
      return {Code::kVersionMismatch,
              fmt::format("the client speaks version {} of the commands' protocol, which knows no device that works by "
                          "itself; version {} does",
                          version, kLateVersion)};
    }
  }
  return {};
}

void ServerSession::greet(Bytes body) {
  const auto hello = command::take<Hello>(body);
  if (!hello) return end(Code::kDataLoss, "the hello is cut short");
  const std::uint16_t version = std::min(hello->newest, kNewestVersion);
  if (version < std::max(hello->oldest, kOldestVersion)) {
    return end(Code::kVersionMismatch,
               fmt::format("the client speaks versions {} to {} of the commands' protocol, the service {} to {}",
                           hello->oldest, hello->newest, kOldestVersion, kNewestVersion));
  }
  const auto wish = version >= kGraphVersion ? command::take<HelloMore>(body) : std::nullopt;
  const auto asked = version >= kResumeVersion ? command::take<HelloLast>(body) : std::nullopt;
  const auto which = version >= kDevicesVersion ? command::take<HelloDevices>(body) : std::nullopt;
  const Result<std::uint32_t> chosen = chosen_of(which.value_or(HelloDevices()).wish, terms_.devices);
  if (!chosen) return end(chosen.error().code(), chosen.error().message());
  if (const Status begun = begin_devices(*chosen, version, wish.value_or(HelloMore())); !begun.ok()) {
    devices_.clear();  // a session that is refused has not begun, and keeps nothing until its peer has gone
    return end(begun.code(), begun.message());
  }
  now_.all = *chosen;
  std::vector<DeviceFacts> devices;
  for (const ServerDevice& device : devices_) devices.push_back(facts_of(device, terms_));
  const WelcomeDevice& first = devices.front().facts;
  Welcome welcome;
  welcome.version = version;
  welcome.channels = static_cast<std::uint16_t>(terms_.channels);
  welcome.credits = terms_.credits;
  welcome.payload_credit = terms_.payload_credit;
  welcome.memory_bytes = first.memory_bytes;
  welcome.payload_bytes = std::min(std::max<std::uint32_t>(hello->payload_bytes, kMaxInline), terms_.payload_bytes);
  welcome.parameter_bytes = kMaxParameters;
  welcome.block_threads = first.block_threads;
  welcome.shared_bytes = first.shared_bytes;
  std::ranges::copy(first.grid, welcome.grid);
  welcome.modules = first.modules;
  if (version < kGraphVersion) return outlet_.send(TrafficClass::kCommands, welcome_message(welcome));
  const WelcomeMore more{first.graph_records, first.range_alignment, first.graph_bytes, first.range_base,
                         first.range_bytes};
  std::optional<WelcomeLast> last;
  if (version >= kChannelVersion) last = {first.least_priority, first.greatest_priority};
  std::optional<WelcomeKept> kept;
  kept_ = asked && asked->keep == 1 && terms_.keep_ms != 0;
  if (kept_) kept = {terms_.key.id, terms_.key.secret, terms_.keep_ms, terms_.held_results / 4};
  if (version < kDevicesVersion) {
    return outlet_.send(TrafficClass::kCommands, welcome_message(welcome, more, last, kept));
  }
  outlet_.send(TrafficClass::kCommands, welcome_message(welcome, more, last, kept.value_or(WelcomeKept()), devices));
}

}  // namespace fairlead::datapath::command
