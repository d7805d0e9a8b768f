// Graphs on the host: their commands are checked once, and run in order.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "gpu/executor/host_executor.h"
#include "gpu/executor/refuse.h"

namespace fairlead::gpu {

using command::GraphCommand;
using command::Handle;
using command::Outcome;

Outcome HostExecutor::make_graph(Handle graph, std::span<const GraphCommand> commands, std::uint64_t /*bytes*/) {
  if (Outcome fine = graphs_.check_new(graph); !fine.ok()) return fine;
  std::vector<Step> steps(commands.size());
  GraphUses uses;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    Outcome outcome = check(commands[i], i + 1, steps[i], uses);
    if (!outcome.ok()) return in_graph(std::move(outcome), i + 1, graph);
  }
  graphs_.add(graph, std::move(steps), std::move(uses));
  return {};
}

void HostExecutor::put_launch(const Checked& checked, std::size_t number, Step& step, GraphUses& uses) {
  step.kernel = checked.kernel;
  step.call = checked.call;
  step.arguments.assign(checked.call.arguments.begin(), checked.call.arguments.end());
  step.call.arguments = step.arguments;
  for (std::size_t i = 0; i < step.arguments.size(); ++i) {
    if (checked.pointers[i].allocation.bits != 0) uses.add(checked.pointers[i].allocation, number);
  }
}

Outcome HostExecutor::update_graph(Handle graph, std::uint32_t number, const command::Launch& launch,
                                   std::span<const std::byte> parameters) {
  Outcome outcome;
  std::vector<Step>* const steps = graphs_.find_to_update(graph, outcome);
  if (steps == nullptr) return outcome;
  if (number == 0 || number > steps->size() || (*steps)[number - 1].kernel == nullptr) return no_launch(number, graph);
  Step& step = (*steps)[number - 1];
  Checked checked;
  const Function function = lay_out(*step.kernel);
  if (!check(&function, launch, parameters, checked, outcome)) {
    return in_graph(std::move(outcome), number, graph);
  }
  GraphUses uses;
  put_launch(checked, number, step, uses);
  graphs_.update(graph, number, uses);
  return outcome;
}

Outcome HostExecutor::check(const GraphCommand& command, std::size_t number, Step& step, GraphUses& uses) {
  Outcome outcome;
  if (command.kind == GraphCommand::Kind::kLaunch) {
    Checked checked;
    if (check(function_of(command.launch.function), command.launch, command.parameters, checked, outcome))
      put_launch(checked, number, step, uses);
    return outcome;
  }
  step.to = find(command.to, command.to_offset, command.bytes, outcome);
  step.bytes = command.bytes;
  step.value = command.value;
  uses.add(command.to, number);
  if (outcome.ok() && command.kind == GraphCommand::Kind::kCopyWithin) {
    step.from = find(command.from, command.from_offset, command.bytes, outcome);
    uses.add(command.from, number);
  }
  return outcome;
}

Outcome HostExecutor::launch_graph(Handle graph) {
  Outcome outcome;
  const std::vector<Step>* const steps = graphs_.find(graph, outcome);
  for (std::size_t i = 0; steps != nullptr && i < steps->size(); ++i) {
    const Step& step = (*steps)[i];
    if (step.kernel == nullptr) {
      if (step.from != nullptr) {
        std::memmove(step.to, step.from, step.bytes);
      } else {
        std::memset(step.to, step.value, step.bytes);
      }
    } else {
      run(*step.kernel, step.call, outcome);
      if (!outcome.ok()) return in_graph(std::move(outcome), i + 1, graph);
    }
  }
  return outcome;
}

}  // namespace fairlead::gpu
