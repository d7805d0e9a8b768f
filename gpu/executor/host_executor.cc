#include "gpu/executor/host_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "gpu/executor/launch_limits.h"
#include "gpu/executor/refuse.h"

namespace fairlead::gpu {

using command::Call;
using command::ExecutorLimits;
using command::Handle;
using command::HostKernel;
using command::Launch;
using command::Outcome;
using command::ParameterKind;
using command::Pointer;
using command::Scope;

namespace {

std::size_t size_of(ParameterKind kind) noexcept {
  switch (kind) {
    case ParameterKind::kPointer:
      return sizeof(Pointer);
    case ParameterKind::kU64:
    case ParameterKind::kAddress:
      return 8;
    case ParameterKind::kU32:
    case ParameterKind::kF32:
      break;
  }
  return 4;
}

const ExecutorLimits kMost{};

/// Compared as the bytes that they are, in front of what pads them.
bool is_same(const Launch& a, const Launch& b) noexcept {
  constexpr std::size_t kBytes = offsetof(Launch, shared_bytes) + sizeof(Launch::shared_bytes);
  static_assert(kBytes == sizeof(Handle) + 2 * sizeof(command::Extent) + sizeof(Launch::shared_bytes));
  return std::memcmp(static_cast<const void*>(&a), static_cast<const void*>(&b), kBytes) == 0;
}

}  // namespace

ExecutorLimits HostExecutor::limits() const {
  ExecutorLimits limits;
  limits.name = "host";
  limits.memory_bytes = config_->memory_bytes;
  limits.graphs = true;
  return limits;
}

// ---- memory --------------------------------------------------------------------------------------------------------

Outcome HostExecutor::check_new(Handle handle, std::uint64_t bytes) const {
  if (handle.bits == 0 || bytes == 0) {
    return refuse(command::kInvalidValue, fmt::format("an allocation of {} bytes named {}", bytes, handle.bits));
  }
  if (allocations_.contains(handle.bits)) {
    return refuse(command::kInvalidValue, fmt::format("handle {} names an allocation already", handle.bits));
  }
  if (bytes > config_->memory_bytes - allocated_) {
    return refuse(command::kOutOfMemory, fmt::format("{} bytes beside {} of {} that the session may have", bytes,
                                                     allocated_, config_->memory_bytes));
  }
  if (allocations_.size() >= config_->allocations) {
    return refuse(command::kOutOfMemory, fmt::format("the session has {} allocations, its limit", allocations_.size()));
  }
  return {};
}

Outcome HostExecutor::allocate(Handle handle, std::uint64_t bytes) {
  if (Outcome fine = check_new(handle, bytes); !fine.ok()) return fine;
  auto* const memory = static_cast<std::byte*>(std::calloc(bytes, 1));
  if (memory == nullptr) return refuse(command::kOutOfMemory, fmt::format("the host has no {} bytes", bytes));
  allocations_.emplace(handle.bits, Allocation{Memory(memory, Free{nullptr}), bytes});
  allocated_ += bytes;
  return {};
}

Result<command::AddressRange> HostExecutor::reserve(std::uint64_t bytes, std::uint64_t wish) {
  if (range_ != nullptr) return Status(Code::kAlreadyExists, "the session has a range of addresses already");
  if (bytes == 0 || bytes > config_->memory_bytes) {
    return Status(Code::kResourceExhausted,
                  fmt::format("a range of {} bytes; a session has 1 to {}", bytes, config_->memory_bytes));
  }
  Result<std::unique_ptr<HostRange>> made = HostRange::reserve(bytes, wish);
  if (!made) return made.error();
  range_ = *std::move(made);
  again_ = nullptr;
  return range_->facts();
}

Outcome HostExecutor::allocate_at(Handle handle, std::uint64_t address, std::uint64_t bytes) {
  if (range_ == nullptr) return Executor::allocate_at(handle, address, bytes);
  if (Outcome fine = check_new(handle, bytes); !fine.ok()) return fine;
  Outcome outcome;
  std::byte* const memory = range_->place(handle, address, bytes, outcome);
  if (memory == nullptr) return outcome;
  allocations_.emplace(handle.bits, Allocation{Memory(memory, Free{range_.get()}), bytes});
  allocated_ += bytes;
  return outcome;
}

Outcome HostExecutor::release(Handle handle) {
  const auto found = allocations_.find(handle.bits);
  if (found == allocations_.end()) {
    return refuse(command::kInvalidHandle, fmt::format("handle {} names no allocation (any more)", handle.bits));
  }
  allocated_ -= found->second.bytes;
  allocations_.erase(found);
  graphs_.released(handle);
  return {};
}

std::byte* HostExecutor::find(Handle handle, std::uint64_t offset, std::uint64_t bytes, Outcome& why) {
  const auto found = allocations_.find(handle.bits);
  if (found == allocations_.end()) {
    why = refuse(command::kInvalidHandle, fmt::format("handle {} names no allocation (any more)", handle.bits));
    return nullptr;
  }
  const std::uint64_t size = found->second.bytes;
  if (offset > size || bytes > size - offset) {
    why = refuse(command::kInvalidValue,
                 fmt::format("{} bytes from {} on of allocation {}, which has {}", bytes, offset, handle.bits, size));
    return nullptr;
  }
  return found->second.memory.get() + offset;
}

Outcome HostExecutor::fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) {
  Outcome outcome;
  if (std::byte* const at = find(to, offset, bytes, outcome); at != nullptr) std::memset(at, value, bytes);
  return outcome;
}

Outcome HostExecutor::copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from) {
  Outcome outcome;
  std::byte* const at = find(to, offset, from.size(), outcome);
  if (at != nullptr && !from.empty()) std::memcpy(at, from.data(), from.size());
  return outcome;
}

Outcome HostExecutor::copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset) {
  Outcome outcome;
  const std::byte* const at = find(from, offset, to.size(), outcome);
  if (at != nullptr && !to.empty()) std::memcpy(to.data(), at, to.size());
  return outcome;
}

Outcome HostExecutor::copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                                  std::uint64_t bytes) {
  Outcome outcome;
  std::byte* const target = find(to, to_offset, bytes, outcome);
  const std::byte* const source = target != nullptr ? find(from, from_offset, bytes, outcome) : nullptr;
  if (source != nullptr) std::memmove(target, source, bytes);
  return outcome;
}

// ---- functions -----------------------------------------------------------------------------------------------------

const HostExecutor::Function* HostExecutor::function_of(Handle function) const noexcept {
  if (function.bits == latest_ && latest_function_ != nullptr) return latest_function_;
  const auto found = functions_.find(function.bits);
  if (found == functions_.end()) return nullptr;
  latest_ = function.bits;
  return latest_function_ = &found->second;
}

bool HostExecutor::is_short(Handle function) const noexcept {
  const Function* const found = function_of(function);
  return found == nullptr || found->kernel->is_short;
}

HostExecutor::Function HostExecutor::lay_out(const HostKernel& kernel) noexcept {
  Function function{.kernel = &kernel, .count = kernel.parameters.size()};
  std::size_t alignment = 1;
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    function.kinds[i] = kernel.parameters[i].kind;
    const std::size_t size = size_of(kernel.parameters[i].kind), own = std::min<std::size_t>(size, 8);
    function.offsets[i] = static_cast<std::uint32_t>((function.least + own - 1) / own * own);
    function.least = function.offsets[i] + size;
    function.points |=
        kernel.parameters[i].kind == ParameterKind::kPointer || kernel.parameters[i].kind == ParameterKind::kAddress;
    alignment = std::max(alignment, own);
  }
  function.most = (function.least + alignment - 1) / alignment * alignment;
  return function;
}

Outcome HostExecutor::load(Handle function, std::string_view name) {
  const auto& kernels = config_->kernels;
  const auto found = std::ranges::find_if(kernels, [name](const HostKernel& kernel) { return kernel.name == name; });
  if (found == kernels.end()) {
    return refuse(command::kNoSuchName, fmt::format("there is no function named '{}'", name.substr(0, 100)));
  }
  if (function.bits == 0) return refuse(command::kInvalidValue, "handle 0 names nothing");
  if (functions_.size() >= config_->functions && !functions_.contains(function.bits)) {
    return refuse(command::kOutOfMemory,
                  fmt::format("the session has loaded {} functions, its limit", functions_.size()));
  }
  functions_[function.bits] = lay_out(*found);
  again_ = nullptr;
  return {};
}

inline void HostExecutor::Function::read(std::size_t i, std::span<const std::byte> parameters,
                                         Checked& checked) const noexcept {
  const std::byte* const from = parameters.data() + offsets[i];
  std::uint64_t number = 0;
  float real = 0;
  if (kinds[i] == ParameterKind::kU64 || kinds[i] == ParameterKind::kAddress) {
    std::memcpy(&number, from, 8);
  } else if (kinds[i] == ParameterKind::kU32) {  // little-endian
    std::memcpy(&number, from, 4);
  } else if (kinds[i] == ParameterKind::kF32) {
    std::memcpy(&real, from, 4);
  }
  Call::Argument& argument = checked.arguments[i];
  argument.pointer = nullptr;
  argument.number = number;
  argument.real = real;
  if (!points) return;
  checked.pointers[i] = {};
  if (kinds[i] == ParameterKind::kPointer) std::memcpy(&checked.pointers[i], from, sizeof(Pointer));
}

inline bool HostExecutor::read(const Function& function, std::span<const std::byte> parameters, Checked& checked,
                               Outcome& why) {
  for (std::size_t i = 0; i < function.count; ++i) function.read(i, parameters, checked);
  return !function.points || check_pointers(checked, why);
}

void HostExecutor::run(const HostKernel& kernel, const Call& call, Outcome& outcome) {
  const auto failed = [&](std::string_view why) {
    outcome = {command::kLaunchFailed, Scope::kContext, fmt::format("'{}' failed: {}", kernel.name, why)};
  };
  try {
    if (const Status end = kernel.run(call); !end.ok()) failed(end.message());
  } catch (const std::exception& error) {
    failed(error.what());
  }
}

Outcome HostExecutor::launch(const Launch& launch, std::span<const std::byte> parameters) {
  Outcome outcome;
  const bool again = again_ != nullptr && is_same(launch, as_) && again_->takes(parameters.size());
  if (!again) {
    again_ = nullptr;
    const Function* const function = function_of(launch.function);
    if (!begin_launch(function, launch, parameters.size(), launched_, outcome)) return outcome;
    again_ = function;
    as_ = launch;
  }
  if (read(*again_, parameters, launched_, outcome)) run(*launched_.kernel, launched_.call, outcome);
  return outcome;
}

bool HostExecutor::check(const Function* function, const Launch& launch, std::span<const std::byte> parameters,
                         Checked& checked, Outcome& why) {
  return begin_launch(function, launch, parameters.size(), checked, why) && read(*function, parameters, checked, why);
}

bool HostExecutor::begin_launch(const Function* function, const Launch& launch, std::size_t parameter_bytes,
                                Checked& checked, Outcome& why) const {
  if (function == nullptr || !fits(launch, kMost) || !function->takes(parameter_bytes)) {
    why = refusal(function, launch, parameter_bytes);
    return false;
  }
  checked.kernel = function->kernel;
  checked.call = {launch.grid, launch.block, std::span(checked.arguments).first(function->count), range_.get()};
  return true;
}

/// Why there is no such launch, which there is not.
Outcome HostExecutor::refusal(const Function* function, const Launch& launch, std::size_t parameter_bytes) {
  if (function == nullptr) {
    return refuse(command::kInvalidHandle, fmt::format("handle {} names no function", launch.function.bits));
  }
  if (!fits(launch, kMost)) {
    return refuse(command::kInvalidValue,
                  fmt::format("'{}' on a grid, blocks or shared memory past the limits", function->kernel->name));
  }
  return refuse(command::kInvalidValue, fmt::format("'{}' takes {} bytes of parameters, and was given {}",
                                                    function->kernel->name, function->least, parameter_bytes));
}

bool HostExecutor::check_pointers(Checked& checked, Outcome& why) {
  const HostKernel& kernel = *checked.kernel;
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    if (kernel.parameters[i].kind == ParameterKind::kAddress && !check_address(i, checked, why)) return false;
    if (kernel.parameters[i].kind != ParameterKind::kPointer) continue;
    const Pointer& pointer = checked.pointers[i];
    std::byte* const found = find(pointer.allocation, pointer.offset, kernel.extent(checked.call, i), why);
    if (found == nullptr) {
      const bool outside = why.result == command::kInvalidValue;
      why = refuse(outside ? command::kIllegalAddress : why.result,
                   fmt::format("parameter {} of '{}': {}", i, kernel.name, why.text));
      return false;
    }
    if (reinterpret_cast<std::uintptr_t>(found) % kernel.parameters[i].alignment != 0) {
      why = refuse(command::kIllegalAddress, fmt::format("parameter {} of '{}' is at {}, no multiple of {}", i,
                                                         kernel.name, pointer.offset, kernel.parameters[i].alignment));
      return false;
    }
    checked.arguments[i].pointer = found;
  }
  return true;
}

bool HostExecutor::check_address(std::size_t i, Checked& checked, Outcome& why) {
  const HostKernel& kernel = *checked.kernel;
  const std::uint64_t address = checked.arguments[i].number, bytes = kernel.extent(checked.call, i);
  if (address == 0 && bytes == 0) return true;
  std::byte* const found = range_ != nullptr ? range_->find(address, bytes) : nullptr;
  if (found == nullptr || address % kernel.parameters[i].alignment != 0) {
    why =
        refuse(command::kIllegalAddress,
               fmt::format("parameter {} of '{}': {} bytes at {:#x}, a multiple of {}, are not of one allocation in a "
                           "range of the session's",
                           i, kernel.name, bytes, address, kernel.parameters[i].alignment));
    return false;
  }
  checked.arguments[i].pointer = found;
  checked.pointers[i].allocation = range_->at(address).value_or(Handle());
  return true;
}

Outcome HostExecutor::user(std::uint16_t opcode, std::span<const std::byte> bytes) {
  return refuse(command::kNotSupported,
                fmt::format("the host executor has no use for command {} of {} bytes", opcode, bytes.size()));
}

}  // namespace fairlead::gpu

namespace fairlead::inline v0::command {

ExecutorFactory host_executors(HostExecutorConfig config) {
  return [shared = std::make_shared<const HostExecutorConfig>(std::move(config))](
             const Peer&) -> Result<std::unique_ptr<Executor>> {
    for (const HostKernel& kernel : shared->kernels) {
      const bool points = std::ranges::any_of(kernel.parameters, [](const auto& parameter) {
        return parameter.kind == ParameterKind::kPointer || parameter.kind == ParameterKind::kAddress;
      });
      if (kernel.parameters.size() > 16 || !kernel.run || (points && !kernel.extent)) {
        return Status(Code::kInvalidArgument,
                      fmt::format("kernel '{}' has {} parameters, of at most 16, or lacks run or extent", kernel.name,
                                  kernel.parameters.size()));
      }
    }
    return std::unique_ptr<Executor>(std::make_unique<gpu::HostExecutor>(shared));
  };
}

}  // namespace fairlead::inline v0::command
