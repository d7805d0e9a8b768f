// The executor whose device is this host (fairlead/host_executor.h): a session's allocations and functions.
//
// Allocations come zeroed, so nobody reads what another left. Owns them; its end frees them. Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fairlead/host_executor.h"
#include "gpu/executor/graphs.h"
#include "gpu/executor/host_range.h"

namespace fairlead::gpu {

class HostExecutor final : public command::Executor {
 public:
  explicit HostExecutor(std::shared_ptr<const command::HostExecutorConfig> config) : config_(std::move(config)) {}

  [[nodiscard]] command::ExecutorLimits limits() const override;
  command::Outcome allocate(command::Handle handle, std::uint64_t bytes) override;
  command::Outcome release(command::Handle handle) override;
  command::Outcome fill(command::Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) override;
  command::Outcome copy_in(command::Handle to, std::uint64_t offset, std::span<const std::byte> from) override;
  command::Outcome copy_out(std::span<std::byte> to, command::Handle from, std::uint64_t offset) override;
  command::Outcome copy_within(command::Handle to, std::uint64_t to_offset, command::Handle from,
                               std::uint64_t from_offset, std::uint64_t bytes) override;
  command::Outcome load(command::Handle function, std::string_view name) override;
  command::Outcome launch(const command::Launch& launch, std::span<const std::byte> parameters) override;
  command::Outcome user(std::uint16_t opcode, std::span<const std::byte> bytes) override;
  [[nodiscard]] bool is_short(command::Handle function) const noexcept override;
  Result<command::AddressRange> reserve(std::uint64_t bytes, std::uint64_t wish) override;
  command::Outcome allocate_at(command::Handle handle, std::uint64_t address, std::uint64_t bytes) override;
  command::Outcome make_graph(command::Handle graph, std::span<const command::GraphCommand> commands,
                              std::uint64_t bytes) override;
  command::Outcome launch_graph(command::Handle graph) override;
  command::Outcome release_graph(command::Handle graph) override { return graphs_.release(graph); }
  command::Outcome update_graph(command::Handle graph, std::uint32_t number, const command::Launch& launch,
                                std::span<const std::byte> parameters) override;

 private:
  static constexpr std::size_t kMaxParameters = 16;
  struct Free {
    HostRange* range;  // that it is in; null: none
    void operator()(std::byte* memory) const noexcept {
      if (range != nullptr) {
        range->give(memory);
      } else {
        std::free(memory);
      }
    }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  struct Allocation {
    Memory memory;
    std::uint64_t bytes = 0;
  };
  /// [offset, offset + bytes) of it, or null and in `why` what is wrong.
  [[nodiscard]] std::byte* find(command::Handle handle, std::uint64_t offset, std::uint64_t bytes,
                                command::Outcome& why);
  struct Checked;
  /// A kernel, and where its parameters are.
  struct Function {
    const command::HostKernel* kernel = nullptr;
    std::size_t count = 0;  // of parameters
    std::array<command::ParameterKind, kMaxParameters> kinds{};
    std::array<std::uint32_t, kMaxParameters> offsets{};
    std::size_t least = 0, most = 0;  // bytes of all; what is more than the least is padding
    bool points = false;              // some are pointers or addresses

    [[nodiscard]] bool takes(std::size_t bytes) const noexcept { return bytes >= least && bytes <= most; }
    inline void read(std::size_t i, std::span<const std::byte> parameters, Checked& checked) const noexcept;
  };
  [[nodiscard]] static Function lay_out(const command::HostKernel& kernel) noexcept;
  [[nodiscard]] const Function* function_of(command::Handle function) const noexcept;
  /// A launch that was checked, or is being.
  struct Checked {
    const command::HostKernel* kernel = nullptr;
    command::Call call;  // its arguments are these:
    std::array<command::Call::Argument, kMaxParameters> arguments;
    std::array<command::Pointer, kMaxParameters> pointers;  // of the parameters that are pointers, or addresses
  };
  /// False, and in `why` what is wrong. Null: there is no such function.
  [[nodiscard]] bool check(const Function* function, const command::Launch& launch,
                           std::span<const std::byte> parameters, Checked& checked, command::Outcome& why);
  // In two steps: what does not depend on the parameters, and the parameters.
  [[nodiscard]] bool begin_launch(const Function* function, const command::Launch& launch, std::size_t parameter_bytes,
                                  Checked& checked, command::Outcome& why) const;
  [[nodiscard]] inline bool read(const Function& function, std::span<const std::byte> parameters, Checked& checked,
                                 command::Outcome& why);
  [[nodiscard]] static command::Outcome refusal(const Function* function, const command::Launch& launch,
                                                std::size_t parameter_bytes);
  [[nodiscard]] bool check_pointers(Checked& checked, command::Outcome& why);
  [[nodiscard]] bool check_address(std::size_t i, Checked& checked, command::Outcome& why);
  static void run(const command::HostKernel& kernel, const command::Call& call, command::Outcome& outcome);

  /// A command of a graph, checked: a kernel, or bytes that are copied or filled.
  struct Step {
    const command::HostKernel* kernel = nullptr;
    command::Call call;
    std::vector<command::Call::Argument> arguments;  // of it
    std::byte* to = nullptr;
    const std::byte* from = nullptr;  // null: `value`
    std::uint64_t bytes = 0;
    std::uint8_t value = 0;
  };
  static void put_launch(const Checked& checked, std::size_t number, Step& step, GraphUses& uses);
  [[nodiscard]] command::Outcome check(const command::GraphCommand& command, std::size_t number, Step& step,
                                       GraphUses& uses);

  /// Not ok: there is to be no such allocation.
  [[nodiscard]] command::Outcome check_new(command::Handle handle, std::uint64_t bytes) const;

  const std::shared_ptr<const command::HostExecutorConfig> config_;
  std::unique_ptr<HostRange> range_;  // if it has one
  std::unordered_map<std::uint64_t, Allocation> allocations_;
  std::uint64_t allocated_ = 0;
  std::unordered_map<std::uint64_t, Function> functions_;  // its entries stay where they are
  // What was looked for last is mostly looked for again.
  mutable std::uint64_t latest_ = 0;
  mutable const Function* latest_function_ = nullptr;
  // The launch that runs. What was launched last is mostly launched again, with other parameters, and begun already.
  Checked launched_;
  const Function* again_ = nullptr;  // of that launch; null: it is not to be gone on with
  command::Launch as_{};
  Graphs<std::vector<Step>> graphs_;
};

}  // namespace fairlead::gpu
