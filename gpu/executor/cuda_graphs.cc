#include "gpu/executor/cuda_graphs.h"

#include <fmt/format.h>

#include <algorithm>
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
  Made made;
  outcome = capture(graph, commands, stream, uses, made);
  if (outcome.ok()) {
    CuGraphExec exec = nullptr;
    outcome =
        context_.check(context_.api().graph_instantiate(&exec, made.captured.get(), 0), "cuGraphInstantiateWithFlags");
    made.exec = {exec, Destroy{&context_}};
  }
  // Nothing changes in it. A fault of something else may show here.
  if (made.launches.empty() || !knows_nodes()) made.captured.reset();
  (void)context_.check(context_.api().stream_destroy(stream), "cuStreamDestroy");
  if (outcome.ok()) outcome = context_.lost();
  if (outcome.ok()) graphs_.add(graph, std::move(made), std::move(uses));
  return outcome;
}

Outcome CudaGraphs::release(Handle graph) {
  Outcome outcome = graphs_.release(graph);
  return outcome.ok() ? context_.lost() : outcome;
}

Outcome CudaGraphs::capture(Handle graph, std::span<const GraphCommand> commands, CuStream stream, GraphUses& uses,
                            Made& made) {
  Outcome outcome = context_.check(context_.api().capture_begin(stream, kCaptureRelaxed), "cuStreamBeginCapture");
  if (!outcome.ok()) return outcome;
  for (std::size_t i = 0; i < commands.size() && outcome.ok(); ++i) {
    outcome = put(commands[i], stream, i + 1, uses, made);
    if (!outcome.ok() && outcome.scope == command::Scope::kCommand) {
      outcome = in_graph(std::move(outcome), i + 1, graph);
    }
  }
  // Also what failed is to end; then whatever it says is of no interest.
  CuGraph captured = nullptr;
  Outcome ended = context_.check(context_.api().capture_end(stream, &captured), "cuStreamEndCapture");
  made.captured = {captured, Destroy{&context_}};
  return outcome.ok() ? ended : outcome;
}

Outcome CudaGraphs::put(const GraphCommand& command, CuStream stream, std::size_t number, GraphUses& uses, Made& made) {
  if (command.kind == GraphCommand::Kind::kLaunch) return put_launch(command, stream, number, uses, made);
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

Outcome CudaGraphs::put_launch(const GraphCommand& command, CuStream stream, std::size_t number, GraphUses& uses,
                               Made& made) {
  const std::shared_ptr<const CudaFunctions::Function>& function = functions_.shared(command.launch.function);
  if (function == nullptr) return CudaFunctions::unknown(command.launch.function);
  if (!fits(command.launch, limits_)) {
    return refuse(command::kInvalidValue,
                  fmt::format("'{}' on a grid, blocks or shared memory past the limits", function->name));
  }
  Outcome outcome = functions_.launch(*function, command.launch, command.parameters, memory_, stream);
  if (outcome.ok()) {
    function->layout.each_allocation(command.parameters, [&](Handle used) { uses.add(used, number); });
    made.launches.push_back({number, nullptr, function});
    if (knows_nodes()) outcome = find_node(stream, made.launches.back());
  }
  return outcome;
}

/// Of a capture of one stream alone each node has the last one before it.
Outcome CudaGraphs::find_node(CuStream stream, Launched& launched) {
  int status = 0;
  unsigned long long id = 0;
  CuGraph graph = nullptr;
  const CuGraphNode* last = nullptr;
  std::size_t count = 0;
  Outcome outcome = context_.check(context_.api().capture_info(stream, &status, &id, &graph, &last, &count),
                                   "cuStreamGetCaptureInfo");
  if (outcome.ok() && count == 1) launched.node = *last;
  return outcome;
}

Outcome CudaGraphs::update(Handle graph, std::uint32_t number, const command::Launch& launch,
                           std::span<const std::byte> parameters) {
  Outcome outcome;
  Made* const made = graphs_.find_to_update(graph, outcome);
  if (made == nullptr) return outcome;
  const auto launched = std::ranges::lower_bound(made->launches, number, {}, &Launched::number);
  if (launched == made->launches.end() || launched->number != number) return no_launch(number, graph);
  if (launched->node == nullptr) {
    return refuse(command::kNotSupported,
                  "this driver does not change launches of graphs (CUDA 11.3 or later does): upload another graph");
  }
  if (!fits(launch, limits_)) {
    return refuse(command::kInvalidValue, fmt::format("command {} of graph {}: '{}' on a grid, blocks or shared memory "
                                                      "past the limits",
                                                      number, graph.bits, launched->function->name));
  }
  outcome = functions_.set(*launched->function, launch, parameters, memory_, made->exec.get(), launched->node);
  if (!outcome.ok()) {
    return outcome.scope == command::Scope::kCommand ? in_graph(std::move(outcome), number, graph) : outcome;
  }
  GraphUses uses;
  launched->function->layout.each_allocation(parameters, [&](Handle used) { uses.add(used, number); });
  graphs_.update(graph, number, uses);
  return outcome;
}

Outcome CudaGraphs::launch(Handle graph, CuStream stream) {
  Outcome outcome;
  const Made* const made = graphs_.find(graph, outcome);
  if (made == nullptr) return outcome;
  return context_.check(context_.api().graph_launch(made->exec.get(), stream), "cuGraphLaunch");
}

}  // namespace fairlead::gpu
