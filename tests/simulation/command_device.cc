#include "command_device.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "datapath/command/graph/records.h"
#include "fairlead/command.h"

namespace fairlead::simulation {

using command::Call;
using command::Handle;
using command::Outcome;
using command::ParameterKind;
using command::Pointer;

// ---- a device ------------------------------------------------------------------------------------------------------

namespace {

using Bytes = std::span<const std::byte>;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return (a ^ b) * 0x9e3779b97f4a7c15 + (a >> 29); }

std::uint64_t hash(Bytes bytes) {
  std::uint64_t value = bytes.size();
  for (const std::byte byte : bytes) value = mix(value, static_cast<std::uint64_t>(byte));
  return value;
}

}  // namespace

LoggedDevice::LoggedDevice(std::unique_ptr<command::Executor> host, std::shared_ptr<DeviceLog> log,
                           std::shared_ptr<const bool> lost, DeviceWorld& world)
    : ExecutorAround(std::move(host)), log_(std::move(log)), lost_(std::move(lost)), all_(world) {
  ++all_.live;
}

template <typename Run, typename... Numbers>
Outcome LoggedDevice::note(Handle handle, Run run, Numbers... numbers) {
  if (*lost_ && !all_.late) return {command::kLaunchFailed, command::Scope::kContext, "the device is lost"};
  if (all_.late && all_.world->chance(0.1)) {
    queues_[place_.channel].begun.pop_back();
    return {command::kNotReady, command::Scope::kCommand, "not now"};
  }
  Outcome outcome = run();
  if (all_.late && !outcome.ok()) queues_[place_.channel].begun.back().bytes.clear();  // what was refused does nothing
  std::uint64_t value = mix(handle.bits, static_cast<std::uint64_t>(outcome.result));
  ((value = mix(value, static_cast<std::uint64_t>(numbers))), ...);
  const std::size_t channel = channel_of(handle.bits);
  if (log_->channels.size() <= channel) log_->channels.resize(channel + 1);
  log_->channels[channel].push_back(value);
  return outcome;
}

bool LoggedDevice::is_early(Handle of) {
  const std::size_t channel = channel_of(of.bits);
  if (!all_.late || channel == place_.channel) return false;
  return std::ranges::any_of(queues_[static_cast<std::uint32_t>(channel)].begun,
                             [this](const Begun& begun) { return begun.complete_at > all_.world->now(); });
}

Outcome LoggedDevice::allocate(Handle h, std::uint64_t n) {
  return note(h, [&] { return inner().allocate(h, n); }, 1, n);
}
Outcome LoggedDevice::release(Handle h) {
  return note(h, [&] { return inner().release(h); }, 2);
}
Outcome LoggedDevice::fill(Handle h, std::uint64_t at, std::uint64_t n, std::uint8_t value) {
  return note(h, [&] { return inner().fill(h, at, n, value); }, 3, at, n, value);
}
Outcome LoggedDevice::copy_in(Handle h, std::uint64_t at, Bytes from) {
  return note(h, [&] { return inner().copy_in(h, at, from); }, 4, at, hash(from));
}
Outcome LoggedDevice::copy_out(std::span<std::byte> to, Handle h, std::uint64_t at) {
  const auto run = [&]() -> Outcome {
    if (!all_.late) return inner().copy_out(to, h, at);
    std::vector<std::byte> bytes(to.size());
    Outcome outcome = inner().copy_out(bytes, h, at);
    Begun& begun = queues_[place_.channel].begun.back();
    begun.to = to;
    begun.bytes = std::move(bytes);
    return outcome;
  };
  return note(h, run, 5, at, to.size(), is_early(h));
}
Outcome LoggedDevice::copy_within(Handle h, std::uint64_t at, Handle from, std::uint64_t from_at, std::uint64_t n) {
  return note(h, [&] { return inner().copy_within(h, at, from, from_at, n); }, 6, at, from.bits, from_at, n);
}
Outcome LoggedDevice::load(Handle h, std::string_view name) {
  return note(h, [&] { return inner().load(h, name); }, 7, name.size());
}
Outcome LoggedDevice::launch(const command::Launch& launch, Bytes parameters) {
  return note(launch.function, [&] { return inner().launch(launch, parameters); }, 8, hash(parameters));
}
Outcome LoggedDevice::user(std::uint16_t opcode, Bytes bytes) {
  const Handle channel{handle_of(static_cast<std::uint16_t>(opcode - opcode_of(0)), 0)};
  return note(channel, [] { return Outcome(); }, 9, hash(bytes));
}

Outcome LoggedDevice::make_graph(Handle graph, std::span<const command::GraphCommand> commands, std::uint64_t bytes) {
  return note(graph, [&] { return inner().make_graph(graph, commands, bytes); }, 10, commands.size(), bytes);
}
Outcome LoggedDevice::launch_graph(Handle graph) {
  ++all_.graphs_run;
  return note(graph, [&] { return inner().launch_graph(graph); }, 11);
}
Outcome LoggedDevice::release_graph(Handle graph) {
  return note(graph, [&] { return inner().release_graph(graph); }, 12);
}
Outcome LoggedDevice::update_graph(Handle graph, std::uint32_t number, const command::Launch& launch,
                                   Bytes parameters) {
  ++all_.graphs_updated;
  return note(
      graph, [&] { return inner().update_graph(graph, number, launch, parameters); }, 13, number, hash(parameters));
}
Result<command::AddressRange> LoggedDevice::reserve(std::uint64_t bytes, std::uint64_t wish) {
  Result<command::AddressRange> range = inner().reserve(bytes, wish);
  if (range) base_ = range->base;
  return range;
}
Outcome LoggedDevice::allocate_at(Handle h, std::uint64_t address, std::uint64_t n) {
  ++all_.placed;
  return note(h, [&] { return inner().allocate_at(h, address, n); }, 14, address - base_, n);
}

void LoggedDevice::begin(const command::Place& place) noexcept {
  place_ = place;
  auto& begun = queues_[place.channel].begun;
  Clock::time_point at = all_.world->now() + microseconds(all_.world->below(300));
  if (!begun.empty()) at = std::max(at, begun.back().complete_at);
  begun.push_back({place.sequence, at});
}

/// What it waits for was run when it was begun: only that it is complete no earlier is left to be done.
Outcome LoggedDevice::fence(const command::Place& mark) {
  const auto& other = queues_[mark.channel].begun;
  Begun& here = queues_[place_.channel].begun.back();
  for (const Begun& begun : other) {
    if (begun.sequence <= mark.sequence) here.complete_at = std::max(here.complete_at, begun.complete_at);
  }
  return {};
}

command::Progress LoggedDevice::progress(std::uint32_t channel) {
  Queue& queue = queues_[channel];
  if (*lost_) {
    if (!queue.begun.empty()) log_->lost_from.emplace(channel, queue.begun.front().sequence);
    return {queue.complete, {command::kLaunchFailed, command::Scope::kContext, "the device is lost"}};
  }
  for (; !queue.begun.empty() && queue.begun.front().complete_at <= all_.world->now(); queue.begun.pop_front()) {
    const Begun& past = queue.begun.front();
    if (!past.bytes.empty()) std::memcpy(past.to.data(), past.bytes.data(), past.bytes.size());
    queue.complete = past.sequence;
  }
  return {queue.complete, {}};
}

// ---- undisturbed ---------------------------------------------------------------------------------------------------

command::ExecutorFactory plain_devices() {
  command::HostExecutorConfig config;
  config.memory_bytes = kMostMemory;
  config.kernels = {{"mix",
                     {{ParameterKind::kPointer}, {ParameterKind::kPointer}, {ParameterKind::kU32}},
                     [](const Call& call, std::size_t) { return std::uint64_t{call.u32(2)}; },
                     [](const Call& call) -> Status {
                       const auto* const in = call.pointer<std::uint8_t>(0);
                       auto* const out = call.pointer<std::uint8_t>(1);
                       for (std::uint32_t i = 0; i < call.u32(2); ++i) {
                         out[i] = static_cast<std::uint8_t>(out[i] * 31 + in[i] + 1);
                       }
                       return {};
                     },
                     true}};
  return command::host_executors(std::move(config));
}

namespace {

void upload(command::Executor& device, Handle handle, const command::Graph& graph) {
  std::vector<command::GraphCommand> commands;
  for (Bytes rest = graph.bytes(); !rest.empty();) {
    commands.push_back(datapath::command::graph_command_of(*datapath::command::take_record(rest)));
  }
  device.make_graph(handle, commands, graph.size());
}

/// One of the devices that a session has, and where its range begins.
struct Device {
  std::unique_ptr<command::Executor> executor;
  std::uint64_t base = 0;
};

void apply(std::span<const Device> devices, const Action& action, const Program& program,
           std::vector<std::byte>& output) {
  using Kind = Action::Kind;
  const auto& [executor, base] = devices[program.device_of(action.channel)];
  command::Executor& device = *executor;
  const Handle handle{action.handle};
  switch (action.kind) {
    case Kind::kAllocate:
      if (program.has_range) {
        device.allocate_at(handle, base + action.at, action.bytes);
      } else {
        device.allocate(handle, action.bytes);
      }
      return;
    case Kind::kUpload:
      return upload(device, handle, graph_of(program.graphs[action.other]));
    case Kind::kUpdateGraph:
      device.update_graph(handle, action.number, {}, mix_parameters(action.target, action.other, action.bytes));
      return;
    case Kind::kLaunchGraph:
      device.launch_graph(handle);
      return;
    case Kind::kReleaseGraph:
      device.release_graph(handle);
      return;
    case Kind::kRelease:
      device.release(handle);
      return;
    case Kind::kFill:
      device.fill(handle, action.at, action.bytes, action.value);
      return;
    case Kind::kCopyIn:
      device.copy_in(handle, action.at, bytes_of(action));
      return;
    case Kind::kCopyOut:
      output.resize(action.bytes);
      device.copy_out(output, handle, action.at);
      return;
    case Kind::kCopyWithin:
      device.copy_within(handle, action.at, {action.other}, action.other_at, action.bytes);
      return;
    case Kind::kCopyAcross: {
      std::vector<std::byte> bytes(action.bytes);
      const auto from = static_cast<std::uint16_t>(channel_of(action.other));
      devices[program.device_of(from)].executor->copy_out(bytes, {action.other}, action.other_at);
      device.copy_in(handle, action.at, bytes);
      return;
    }
    case Kind::kLoad:
      device.load(handle, "mix");
      return;
    case Kind::kLaunch:
      device.launch({{handle_of(action.channel, kFunction)}},
                    command::pack(Pointer{{action.other}}, Pointer{handle}, static_cast<std::uint32_t>(action.bytes)));
      return;
    case Kind::kUser:
      device.user(LoggedDevice::opcode_of(action.channel), bytes_of(action));
      return;
    case Kind::kFail: {
      std::array<std::byte, 16> nowhere{};
      switch (action.value) {
        case 0:
          device.release(handle);
          return;
        case 1:
          device.copy_out(nowhere, handle, 0);
          return;
        case 2:
          device.launch({handle}, {});
          return;
        case 3:
          device.load(handle, "what nobody has");
          return;
        default:
          device.fill(handle, 0, 1, 1);
          return;
      }
    }
    case Kind::kMark:
    case Kind::kFence:
    case Kind::kRecover:
    case Kind::kSync:
      return;
  }
}

}  // namespace

Expected run_undisturbed(const Program& program) {
  static const command::ExecutorFactory plain = plain_devices();
  DeviceWorld world;
  const auto log = std::make_shared<DeviceLog>();
  std::vector<Device> devices(program.devices);
  for (auto& [executor, base] : devices) {
    executor = std::make_unique<LoggedDevice>(*plain(Peer()), log, std::make_shared<const bool>(false), world);
    if (program.has_range) base = executor->reserve(kRangeBytes, 0)->base;
  }
  Expected expected;
  expected.outputs.resize(program.actions.size());
  for (std::size_t i = 0; i < program.actions.size(); ++i) {
    if (!program.actions[i].passed_over) apply(devices, program.actions[i], program, expected.outputs[i]);
  }
  expected.log = *log;
  return expected;
}

}  // namespace fairlead::simulation
