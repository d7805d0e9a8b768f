#include "gpu/executor/cuda_graphs.h"

#include <fmt/format.h>

#include <utility>

#include "gpu/executor/launch_limits.h"

namespace fairlead::gpu {

using command::GraphCommand;
using command::Handle;
using command::Outcome;

Outcome CudaGraphs::make(Handle graph, std::span<const GraphCommand> commands) {
  if (Outcome fine = graphs_.check_new(graph); !fine.ok()) return fine;
  // Of its own: what is under way on the channel's has nothing to do with it.
  CuStream stream = nullptr;
  Outcome outcome = context_.check(context_.api().stream_create(&stream, kStreamNonBlocking), "cuStreamCreate");
  if (!outcome.ok()) return outcome;
  GraphUses uses;
  CuGraph captured = nullptr;
  CuGraphExec made = nullptr;
  outcome = capture(graph, commands, stream, uses, captured);
  if (outcome.ok()) {
    outcome = context_.check(context_.api().graph_instantiate(&made, captured, 0), "cuGraphInstantiateWithFlags");
  }
  // A fault of something else may show here.
  if (captured != nullptr) (void)context_.check(context_.api().graph_destroy(captured), "cuGraphDestroy");
  (void)context_.check(context_.api().stream_destroy(stream), "cuStreamDestroy");
  if (outcome.ok()) outcome = context_.lost();
  if (made == nullptr) return outcome;
  Exec exec(made, Destroy{&context_});
  if (outcome.ok()) graphs_.add(graph, std::move(exec), std::move(uses));
  return outcome;
}

Outcome CudaGraphs::release(Handle graph) {
  Outcome outcome = graphs_.release(graph);
  return outcome.ok() ? context_.lost() : outcome;
}

Outcome CudaGraphs::capture(Handle graph, std::span<const GraphCommand> commands, CuStream stream, GraphUses& uses,
                            CuGraph& captured) {
  Outcome outcome = context_.check(context_.api().capture_begin(stream, kCaptureRelaxed), "cuStreamBeginCapture");
  if (!outcome.ok()) return outcome;
  for (std::size_t i = 0; i < commands.size() && outcome.ok(); ++i) {
    outcome = put(commands[i], stream, i + 1, uses);
    if (!outcome.ok() && outcome.scope == command::Scope::kCommand) {
      outcome = in_graph(std::move(outcome), i + 1, graph);
    }
  }
  // Also what failed is to end; then whatever it says is of no interest.
  Outcome ended = context_.check(context_.api().capture_end(stream, &captured), "cuStreamEndCapture");
  return outcome.ok() ? ended : outcome;
}

Outcome CudaGraphs::put(const GraphCommand& command, CuStream stream, std::size_t number, GraphUses& uses) {
  if (command.kind == GraphCommand::Kind::kLaunch) return put_launch(command, stream, number, uses);
  Outcome outcome;
  const CuAddress to = memory_.find(command.to, command.to_offset, command.bytes, outcome);
  uses.add(command.to, number);
  if (command.kind == GraphCommand::Kind::kFill) {
    if (to == 0 || command.bytes == 0) return outcome;
    return context_.check(context_.api().fill(to, command.value, command.bytes, stream), "cuMemsetD8Async");
  }
  const CuAddress from = to != 0 ? memory_.find(command.from, command.from_offset, command.bytes, outcome) : 0;
  uses.add(command.from, number);
  if (from == 0 || command.bytes == 0) return outcome;
  return context_.check(context_.api().copy_within(to, from, command.bytes, stream), "cuMemcpyDtoDAsync");
}

Outcome CudaGraphs::put_launch(const GraphCommand& command, CuStream stream, std::size_t number, GraphUses& uses) {
  const CudaFunctions::Function* const function = functions_.find(command.launch.function);
  if (function == nullptr) return CudaFunctions::unknown(command.launch.function);
  if (!fits(command.launch, limits_)) {
    return refuse(command::kInvalidValue,
                  fmt::format("'{}' on a grid, blocks or shared memory past the limits", function->name));
  }
  Outcome outcome = functions_.launch(*function, command.launch, command.parameters, memory_, stream);
  if (outcome.ok()) {
    function->layout.each_allocation(command.parameters, [&](Handle used) { uses.add(used, number); });
  }
  return outcome;
}

Outcome CudaGraphs::launch(Handle graph, CuStream stream) {
  Outcome outcome;
  const Exec* const exec = graphs_.find(graph, outcome);
  if (exec == nullptr) return outcome;
  return context_.check(context_.api().graph_launch(exec->get(), stream), "cuGraphLaunch");
}

}  // namespace fairlead::gpu
