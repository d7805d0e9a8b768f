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

#include "fairlead/host_executor.h"

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

 private:
  static constexpr std::size_t kMaxParameters = 16;
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  struct Allocation {
    std::unique_ptr<std::byte[], Free> memory;
    std::uint64_t bytes = 0;
  };
  /// [offset, offset + bytes) of it, or null and in `why` what is wrong.
  [[nodiscard]] std::byte* find(command::Handle handle, std::uint64_t offset, std::uint64_t bytes,
                                command::Outcome& why);
  /// A kernel, and where its parameters are.
  struct Function {
    const command::HostKernel* kernel = nullptr;
    std::array<std::uint32_t, kMaxParameters> offsets{};
    std::size_t least = 0, most = 0;  // bytes of all; what is more than the least is padding
    bool has_pointers = false;
  };
  [[nodiscard]] static Function lay_out(const command::HostKernel& kernel) noexcept;
  [[nodiscard]] const Function* function_of(command::Handle function) const noexcept;
  // False, and in `why` what is wrong.
  [[nodiscard]] bool read_parameters(const Function& function, command::Call& call,
                                     std::span<const std::byte> parameters, command::Outcome& why);
  [[nodiscard]] bool check_pointers(const command::HostKernel& kernel, const command::Call& call,
                                    command::Outcome& why);

  const std::shared_ptr<const command::HostExecutorConfig> config_;
  std::unordered_map<std::uint64_t, Allocation> allocations_;
  std::uint64_t allocated_ = 0;
  std::unordered_map<std::uint64_t, Function> functions_;  // its entries stay where they are
  // What was launched last is mostly launched again.
  mutable std::uint64_t latest_ = 0;
  mutable const Function* latest_function_ = nullptr;
  // Of the launch that runs.
  std::array<command::Call::Argument, kMaxParameters> arguments_;
  std::array<command::Pointer, kMaxParameters> pointers_;
};

}  // namespace fairlead::gpu
