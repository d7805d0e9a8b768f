// The device of simulated services: the host, or the host as if it worked by itself, and a log of every command that it
// ran.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "command_plan.h"
#include "fairlead/executor_around.h"
#include "fairlead/host_executor.h"
#include "world.h"

namespace fairlead::simulation {

/// What came to a session's devices, by channel: a number for each command, of what it is and how it ended.
struct DeviceLog {
  std::vector<std::vector<std::uint64_t>> channels;
  std::map<std::uint32_t, std::uint64_t> lost_from = {};  // of a device that was lost: the first that it was at
  bool operator==(const DeviceLog& other) const { return channels == other.channels; }
};

/// What all devices of a world have in common.
struct DeviceWorld {
  World* world = nullptr;
  bool late = false;  // they work by themselves: commands are complete later, and bytes are copied out then
  int live = 0;       // that are there
  std::uint64_t graphs_run = 0, graphs_updated = 0, placed = 0;
};

class LoggedDevice final : public command::ExecutorAround {
 public:
  using Handle = command::Handle;
  using Outcome = command::Outcome;
  using Bytes = std::span<const std::byte>;

  /// `lost`: from when it is set on, what the session has on it is lost.
  LoggedDevice(std::unique_ptr<command::Executor> host, std::shared_ptr<DeviceLog> log,
               std::shared_ptr<const bool> lost, DeviceWorld& world);
  ~LoggedDevice() override { --all_.live; }

  Outcome allocate(Handle h, std::uint64_t n) override;
  Outcome release(Handle h) override;
  Outcome fill(Handle h, std::uint64_t at, std::uint64_t n, std::uint8_t value) override;
  Outcome copy_in(Handle h, std::uint64_t at, Bytes from) override;
  Outcome copy_out(std::span<std::byte> to, Handle h, std::uint64_t at) override;
  Outcome copy_within(Handle h, std::uint64_t at, Handle from, std::uint64_t from_at, std::uint64_t n) override;
  Outcome load(Handle h, std::string_view name) override;
  Outcome launch(const command::Launch& launch, Bytes parameters) override;
  /// A program's own commands have an opcode of their channel's, and the device takes all of them.
  Outcome user(std::uint16_t opcode, Bytes bytes) override;

  Outcome make_graph(Handle graph, std::span<const command::GraphCommand> commands, std::uint64_t bytes) override;
  Outcome launch_graph(Handle graph) override;
  Outcome release_graph(Handle graph) override;
  Outcome update_graph(Handle graph, std::uint32_t number, const command::Launch& launch, Bytes parameters) override;
  Result<command::AddressRange> reserve(std::uint64_t bytes, std::uint64_t wish) override;
  Outcome allocate_at(Handle h, std::uint64_t address, std::uint64_t n) override;

  [[nodiscard]] bool is_asynchronous() const noexcept override { return all_.late; }
  void begin(const command::Place& place) noexcept override;
  Outcome fence(const command::Place& mark) override;
  command::Progress progress(std::uint32_t channel) override;

  [[nodiscard]] static constexpr std::uint16_t opcode_of(std::uint16_t channel) {
    return static_cast<std::uint16_t>(0x9000 + channel);
  }

 private:
  /// A command that the device is at, and what it copies out when it is past it.
  struct Begun {
    std::uint64_t sequence = 0;
    Clock::time_point complete_at{};
    std::span<std::byte> to{};
    std::vector<std::byte> bytes{};
  };
  struct Queue {
    std::deque<Begun> begun;
    std::uint64_t complete = 0;
  };
  /// Another device copies what this one is still at: whoever owns it stands at a fence meanwhile.
  [[nodiscard]] bool is_early(Handle of);
  /// Runs it, unless it is put off or all is lost.
  template <typename Run, typename... Numbers>
  Outcome note(Handle handle, Run run, Numbers... numbers);

  const std::shared_ptr<DeviceLog> log_;
  const std::shared_ptr<const bool> lost_;
  DeviceWorld& all_;
  std::map<std::uint32_t, Queue> queues_;  // by channel
  command::Place place_;
  std::uint64_t base_ = 0;  // of the range
};

/// Executors of the host that have mix(in, out, n), which does not the same if it is done twice.
[[nodiscard]] command::ExecutorFactory plain_devices();

/// What a program comes to where nothing happens to it: the log, and what each of its actions copies out.
struct Expected {
  DeviceLog log;
  std::vector<std::vector<std::byte>> outputs;
};
[[nodiscard]] Expected run_undisturbed(const Program& program);

}  // namespace fairlead::simulation
