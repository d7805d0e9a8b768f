// A session's graphs on a GPU: each is captured from the calls that its commands are, instantiated once, and launched
// on the stream of whoever asks. What was captured is kept beside it, for launches in it that are changed.
//
// Launches of one graph run one after the other, whichever their streams: the driver sees to that. Owns them. Threads:
// one at a time, in the context.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

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
  command::Outcome update(command::Handle graph, std::uint32_t number, const command::Launch& launch,
                          std::span<const std::byte> parameters);
  /// That memory is not there any more.
  void released(command::Handle allocation) { graphs_.released(allocation); }

 private:
  struct Destroy {
    Destroy() : context(nullptr) {}
    explicit Destroy(CudaContext* of) : context(of) {}
    void operator()(CuGraphExec exec) const noexcept {
      if (!context->is_abandoned()) (void)context->check(context->api().graph_exec_destroy(exec), "cuGraphExecDestroy");
    }
    /// It is of no context, so it does not go with one.
    void operator()(CuGraph graph) const noexcept {
      (void)context->check(context->api().graph_destroy(graph), "cuGraphDestroy");
    }
    CudaContext* context;
  };
  /// A launch: the node that it became, null where the driver does not say, and what of.
  struct Launched {
    std::size_t number = 0;
    CuGraphNode node = nullptr;
    std::shared_ptr<const CudaFunctions::Function> function;
  };
  struct Made {
    std::unique_ptr<CuGraphObject, Destroy> captured;
    std::unique_ptr<CuGraphExecObject, Destroy> exec;
    std::vector<Launched> launches;  // by number
  };

  [[nodiscard]] bool knows_nodes() const noexcept {
    return context_.api().capture_info != nullptr && context_.api().graph_exec_set_launch != nullptr;
  }
  /// What becomes of the commands, in `made` and `uses`.
  [[nodiscard]] command::Outcome capture(command::Handle graph, std::span<const command::GraphCommand> commands,
                                         CuStream stream, GraphUses& uses, Made& made);
  [[nodiscard]] command::Outcome put(const command::GraphCommand& command, CuStream stream, std::size_t number,
                                     GraphUses& uses, Made& made);
  [[nodiscard]] command::Outcome put_launch(const command::GraphCommand& command, CuStream stream, std::size_t number,
                                            GraphUses& uses, Made& made);
  [[nodiscard]] command::Outcome find_node(CuStream stream, Launched& launched);

  CudaContext& context_;
  const CudaMemory& memory_;
  const CudaFunctions& functions_;
  const command::ExecutorLimits limits_;
  Graphs<Made> graphs_;
};

}  // namespace fairlead::gpu
