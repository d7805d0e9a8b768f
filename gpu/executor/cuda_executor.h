// The executor whose device is a GPU (fairlead/cuda_executor.h): a session's context, memory, functions, and a stream
// for each of its channels.
//
// No command waits for the device; what a command puts on its channel's stream is complete when progress() says so.
// Owns all of it; its end waits for what runs and frees that. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fairlead/cuda_executor.h"
#include "gpu/executor/cuda_context.h"
#include "gpu/executor/cuda_functions.h"
#include "gpu/executor/cuda_graphs.h"
#include "gpu/executor/cuda_memory.h"
#include "gpu/executor/cuda_staging.h"
#include "gpu/executor/cuda_stream.h"

namespace fairlead::gpu {

class CudaExecutor final : public command::Executor {
 public:
  /// Each image of `config` ends with a byte 0 more. Errors: why a session can have no share of the device.
  static Result<std::unique_ptr<CudaExecutor>> create(std::shared_ptr<Driver> driver,
                                                      std::shared_ptr<const command::CudaExecutorConfig> config,
                                                      const command::ExecutorLimits& limits);
  ~CudaExecutor() override;

  [[nodiscard]] command::ExecutorLimits limits() const override { return limits_; }
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
  /// All are: they are handed over.
  [[nodiscard]] bool is_short(command::Handle) const noexcept override { return true; }
  command::Outcome load_module(command::Handle module, std::span<const std::byte> image) override;
  command::Outcome load_from(command::Handle function, command::Handle module, std::string_view name,
                             std::span<const command::Parameter> parameters) override;

  Result<command::AddressRange> reserve(std::uint64_t bytes, std::uint64_t wish) override;
  command::Outcome allocate_at(command::Handle handle, std::uint64_t address, std::uint64_t bytes) override;
  command::Outcome make_graph(command::Handle graph, std::span<const command::GraphCommand> commands,
                              std::uint64_t bytes) override;
  command::Outcome launch_graph(command::Handle graph) override;
  command::Outcome release_graph(command::Handle graph) override;
  command::Outcome update_graph(command::Handle graph, std::uint32_t number, const command::Launch& launch,
                                std::span<const std::byte> parameters) override;

  void prioritize(std::uint32_t channel, std::int32_t priority) override;
  [[nodiscard]] bool is_asynchronous() const noexcept override { return true; }
  void begin(const command::Place& place) noexcept override;
  command::Outcome fence(const command::Place& mark) override;
  command::Progress progress(std::uint32_t channel) override;

 private:
  CudaExecutor(std::unique_ptr<CudaContext> context, std::unique_ptr<CudaMemory> memory,
               std::unique_ptr<PinnedMemory> staging, std::shared_ptr<const command::CudaExecutorConfig> config,
               const command::ExecutorLimits& limits)
      : config_(std::move(config)),
        limits_(limits),
        context_(std::move(context)),
        memory_(std::move(memory)),
        staging_(std::make_unique<CudaStaging>(std::move(staging))),
        functions_(std::make_unique<CudaFunctions>(*context_, *config_)),
        graphs_(std::make_unique<CudaGraphs>(*context_, *memory_, *functions_, limits_)) {}
  [[nodiscard]] CudaStream& stream_of(std::uint32_t channel);
  /// Not ok: nothing is to be put on the present channel's stream.
  [[nodiscard]] command::Outcome ready(const InContext& in);
  /// Pieces of staging memory for so many bytes of a copy on it; none: not now, or never.
  [[nodiscard]] std::vector<std::span<std::byte>> room(std::size_t bytes, command::Outcome& why);
  /// Of memory that was given; what was there before is cleared.
  command::Outcome clear(command::Handle handle, const CudaMemory::Given& given, std::uint64_t bytes);
  command::Outcome copy_overlapping(CuAddress to, CuAddress from, std::uint64_t bytes);
  /// The call has put something on the present channel's stream, unless it was refused.
  command::Outcome put(command::Outcome outcome);
  command::Outcome put(CuResult result, std::string_view call) { return put(context_->check(result, call)); }

  const std::shared_ptr<const command::CudaExecutorConfig> config_;
  const command::ExecutorLimits limits_;
  const std::unique_ptr<CudaContext> context_;
  std::unique_ptr<CudaMemory> memory_;
  std::unique_ptr<CudaStaging> staging_;
  std::unique_ptr<CudaFunctions> functions_;
  std::unique_ptr<CudaGraphs> graphs_;
  std::map<std::uint32_t, CudaStream> streams_;  // by channel
  CudaStream* on_ = nullptr;                     // the present command's
  std::uint32_t channel_ = 0;                    // of it
  std::uint64_t range_bytes_ = 0;                // of memory_, from its beginning on; 0: no range
};

}  // namespace fairlead::gpu
