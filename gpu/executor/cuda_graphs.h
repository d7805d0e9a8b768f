// A session's graphs on a GPU: each is captured from the calls that its commands are, instantiated once, and launched
// on the stream of whoever asks.
//
// Launches of one graph run one after the other, whichever their streams: the driver sees to that. Owns them. Threads:
// one at a time, in the context.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "fairlead/command_service.h"
#include "gpu/executor/cuda_context.h"
#include "gpu/executor/cuda_functions.h"
#include "gpu/executor/cuda_memory.h"
#include "gpu/executor/graphs.h"

namespace fairlead::gpu {

class CudaGraphs {
 public:
  CudaGraphs(CudaContext& context, const CudaMemory& memory, const CudaFunctions& functions,
             const command::ExecutorLimits& limits)
      : context_(context), memory_(memory), functions_(functions), limits_(limits) {}

  /// Whether the driver has what graphs take.
  [[nodiscard]] static bool are_known(const DriverApi& api) noexcept {
    return api.capture_begin != nullptr && api.capture_end != nullptr && api.graph_destroy != nullptr &&
           api.graph_instantiate != nullptr && api.graph_exec_destroy != nullptr && api.graph_launch != nullptr;
  }

  command::Outcome make(command::Handle graph, std::span<const command::GraphCommand> commands);
  command::Outcome launch(command::Handle graph, CuStream stream);
  command::Outcome release(command::Handle graph);
  /// That memory is not there any more.
  void released(command::Handle allocation) { graphs_.released(allocation); }

 private:
  struct Destroy {
    CudaContext* context = nullptr;
    void operator()(CuGraphExec exec) const noexcept {
      if (!context->is_abandoned()) (void)context->check(context->api().graph_exec_destroy(exec), "cuGraphExecDestroy");
    }
  };
  using Exec = std::unique_ptr<CuGraphExecObject, Destroy>;

  [[nodiscard]] command::Outcome capture(command::Handle graph, std::span<const command::GraphCommand> commands,
                                         CuStream stream, GraphUses& uses, CuGraph& captured);
  [[nodiscard]] command::Outcome put(const command::GraphCommand& command, CuStream stream, std::size_t number,
                                     GraphUses& uses);
  [[nodiscard]] command::Outcome put_launch(const command::GraphCommand& command, CuStream stream, std::size_t number,
                                            GraphUses& uses);

  CudaContext& context_;
  const CudaMemory& memory_;
  const CudaFunctions& functions_;
  const command::ExecutorLimits limits_;
  Graphs<Exec> graphs_;
};

}  // namespace fairlead::gpu
