#include "capi/executors.h"

#include "capi/handles.h"
#include "capi/structures.h"
#include "fairlead/cuda_executor.h"
#include "fairlead/host_executor.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

namespace {

// A fairlead_call* is the kernel's Call.
const fairlead_call* handle_of(const command::Call& call) { return reinterpret_cast<const fairlead_call*>(&call); }
const command::Call& call_of(const fairlead_call* call) { return *reinterpret_cast<const command::Call*>(call); }
const command::Call::Argument* argument(const fairlead_call* call, std::size_t i) {
  return call != nullptr && i < call_of(call).arguments.size() ? &call_of(call).arguments[i] : nullptr;
}

constexpr std::size_t kMostParameters = 16;  // command::HostKernel's
constexpr std::size_t kMostAlignment = 16;

/// A kernel of the program's. Errors: what would refuse every session of these executors.
Status kernel_of(const fairlead_host_kernel& from, command::HostKernel& to) {
  fairlead_host_kernel known = FAIRLEAD_INIT(fairlead_host_kernel);
  if (Status status = take(from, known, "fairlead_host_kernel"); !status.ok()) return status;
  to.name = text_of(known.name);
  if (known.run == nullptr) return {Code::kInvalidArgument, "kernel '" + to.name + "' has no function: set run"};
  if (known.parameter_count > kMostParameters) {
    return {Code::kInvalidArgument, "kernel '" + to.name + "' has " + std::to_string(known.parameter_count) +
                                        " parameters: at most " + std::to_string(kMostParameters) +
                                        " are possible; put what is more into memory, and give a pointer to it"};
  }
  if (known.parameter_count > 0 && known.parameters == nullptr)
    return missing("parameters of kernel '" + to.name + "'");
  const std::size_t alignment = known.alignment == 0 ? 1 : known.alignment;
  if (alignment > kMostAlignment || (alignment & (alignment - 1)) != 0) {
    return {Code::kInvalidArgument, "kernel '" + to.name + "' has the alignment " + std::to_string(alignment) +
                                        ": a power of two up to " + std::to_string(kMostAlignment) + " is expected"};
  }
  for (std::size_t i = 0; i < known.parameter_count; ++i) {
    if (Status status = check_enum(known.parameters[i], FAIRLEAD_PARAMETER_ADDRESS, "a parameter's kind");
        !status.ok()) {
      return status;
    }
    const bool points =
        known.parameters[i] == FAIRLEAD_PARAMETER_POINTER || known.parameters[i] == FAIRLEAD_PARAMETER_ADDRESS;
    if (points && known.extent == nullptr) {
      return {Code::kInvalidArgument, "kernel '" + to.name + "' has parameter " + std::to_string(i) +
                                          ", which points at memory, and nothing says how far: set extent"};
    }
    to.parameters.push_back({static_cast<command::ParameterKind>(known.parameters[i]), alignment});
  }
  if (known.extent != nullptr) {
    to.extent = [known](const command::Call& call, std::size_t i) {
      return known.extent(known.context, handle_of(call), i);
    };
  }
  to.run = [known](const command::Call& call) -> Status {
    const char* const failure = known.run(known.context, handle_of(call));
    return failure == nullptr ? Status() : Status(Code::kInternal, failure);
  };
  to.is_short = !known.takes_long;
  return {};
}

template <typename Number, typename Given>
void unless_zero(Given given, Number& setting) {
  if (given != 0) setting = static_cast<Number>(given);
}

}  // namespace

void* fairlead_call_pointer(const fairlead_call* call, size_t i) {
  const auto* const found = argument(call, i);
  return found != nullptr ? found->pointer : nullptr;
}
uint64_t fairlead_call_number(const fairlead_call* call, size_t i) {
  const auto* const found = argument(call, i);
  return found != nullptr ? found->number : 0;
}
float fairlead_call_real(const fairlead_call* call, size_t i) {
  const auto* const found = argument(call, i);
  return found != nullptr ? found->real : 0;
}
fairlead_extent fairlead_call_grid(const fairlead_call* call) {
  const command::Extent& grid = call_of(call).grid;
  return {grid.x, grid.y, grid.z};
}
fairlead_extent fairlead_call_block(const fairlead_call* call) {
  const command::Extent& block = call_of(call).block;
  return {block.x, block.y, block.z};
}
void* fairlead_call_at(const fairlead_call* call, uint64_t address, uint64_t bytes) {
  const command::Addresses* const addresses = call_of(call).addresses;
  return addresses != nullptr ? addresses->find(address, bytes) : nullptr;
}

fairlead_code fairlead_host_executors(const fairlead_host_executor_config* config, fairlead_executors** executors) {
  return outcome([&]() -> Status {
    if (executors == nullptr) return missing("executors");
    *executors = nullptr;
    fairlead_host_executor_config known = FAIRLEAD_INIT(fairlead_host_executor_config);
    if (config != nullptr) {
      if (Status status = take(*config, known, "fairlead_host_executor_config"); !status.ok()) return status;
    }
    command::HostExecutorConfig wanted;
    unless_zero(known.memory_bytes, wanted.memory_bytes);
    unless_zero(known.allocations, wanted.allocations);
    unless_zero(known.functions, wanted.functions);
    if (known.without_standard_kernels) wanted.kernels.clear();
    for (std::size_t i = 0; i < known.kernel_count; ++i) {
      if (known.kernels == nullptr || known.kernels[i] == nullptr) return missing("a kernel");
      if (Status status = kernel_of(*known.kernels[i], wanted.kernels.emplace_back()); !status.ok()) return status;
    }
    *executors = new fairlead_executors{command::host_executors(std::move(wanted))};
    return {};
  });
}

fairlead_code fairlead_cuda_executors(const fairlead_cuda_executor_config* config, fairlead_executors** executors) {
  return outcome([&]() -> Status {
    if (executors == nullptr) return missing("executors");
    *executors = nullptr;
    fairlead_cuda_executor_config known = FAIRLEAD_INIT(fairlead_cuda_executor_config);
    if (config != nullptr) {
      if (Status status = take(*config, known, "fairlead_cuda_executor_config"); !status.ok()) return status;
    }
    command::CudaExecutorConfig wanted;
    wanted.ordinal = known.ordinal;
    wanted.own_process = known.own_process;
    unless_zero(known.memory_bytes, wanted.memory_bytes);
    unless_zero(known.allocations, wanted.allocations);
    unless_zero(known.functions, wanted.functions);
    unless_zero(known.staging_bytes, wanted.staging_bytes);
    unless_zero(known.modules, wanted.modules);
    if (known.no_modules) wanted.modules = 0;
    return hand_over([&] { return command::cuda_executors(std::move(wanted)); }, executors);
  });
}

void fairlead_executors_release(fairlead_executors* executors) {
  (void)outcome([&]() -> Status {
    delete executors;
    return {};
  });
}

int fairlead_serve_session(const fairlead_executors* executors) {
  return value_of(1, [&] { return executors != nullptr ? command::serve_session(executors->factory) : 1; });
}
