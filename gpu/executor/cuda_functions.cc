#include "gpu/executor/cuda_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "gpu/executor/cuda_image.h"
#include "gpu/executor/refuse.h"

namespace fairlead::gpu {

using command::Handle;
using command::Outcome;
using command::Parameter;
using command::Pointer;

namespace {

std::size_t aligned(std::size_t at, std::size_t alignment) noexcept {
  return (at + alignment - 1) / alignment * alignment;
}

}  // namespace

// ---- layouts -------------------------------------------------------------------------------------------------------

Result<CudaLayout> CudaLayout::of(std::span<const Parameter> parameters) {
  const auto wrong = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  if (parameters.size() > kMost) return wrong(fmt::format("{} parameters, of at most {}", parameters.size(), kMost));
  CudaLayout layout;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& each = parameters[i];
    const bool is_legal = each.bytes != 0 && each.bytes <= kBytes && std::has_single_bit(each.alignment) &&
                          each.alignment <= 16 && each.bytes % each.alignment == 0;
    const bool fits = !each.is_pointer || (each.bytes == sizeof(Pointer) && each.alignment == alignof(Pointer));
    if (!is_legal || !fits) {
      return wrong(
          fmt::format("parameter {} is said to have {} bytes at a multiple of {}{}; layout() says what is "
                      "legal",
                      i, each.bytes, each.alignment, each.is_pointer ? ", as a pointer" : ""));
    }
    Place place{.bytes = each.is_pointer ? static_cast<std::uint32_t>(sizeof(CuAddress)) : each.bytes,
                .is_pointer = each.is_pointer};
    place.from = static_cast<std::uint32_t>(aligned(layout.packed_bytes_, each.alignment));
    place.to = static_cast<std::uint32_t>(aligned(layout.device_bytes_, each.alignment));
    layout.packed_bytes_ = place.from + each.bytes;
    layout.device_bytes_ = place.to + place.bytes;
    layout.alignment_ = std::max<std::size_t>(layout.alignment_, each.alignment);
    layout.places_.push_back(place);
  }
  if (layout.packed_bytes_ > kBytes) {
    return wrong(fmt::format("{} bytes of parameters, of at most {}", layout.packed_bytes_, kBytes));
  }
  return layout;
}

Outcome CudaLayout::translate(std::span<const std::byte> packed, const CudaMemory& memory, Block& block) const {
  // What follows may only be padding.
  if (packed.size() < packed_bytes_ || packed.size() > aligned(packed_bytes_, alignment_)) {
    return refuse(command::kInvalidValue,
                  fmt::format("it takes {} bytes of parameters, and was given {}", packed_bytes_, packed.size()));
  }
  std::memset(block.data(), 0, device_bytes_);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    if (!place.is_pointer) {
      std::memcpy(block.data() + place.to, packed.data() + place.from, place.bytes);
      continue;
    }
    Pointer pointer;
    std::memcpy(&pointer, packed.data() + place.from, sizeof pointer);
    CuAddress address = 0;
    if (pointer.allocation.bits != 0 || pointer.offset != 0) {
      Outcome why;
      address = memory.find(pointer.allocation, pointer.offset, 0, why);
      const bool outside = why.result == command::kInvalidValue;
      if (address == 0) {
        return refuse(outside ? command::kIllegalAddress : why.result, fmt::format("parameter {}: {}", i, why.text));
      }
    }
    std::memcpy(block.data() + place.to, &address, sizeof address);
  }
  return {};
}

// ---- modules -------------------------------------------------------------------------------------------------------

CudaFunctions::~CudaFunctions() {
  if (context_.is_abandoned()) return;
  for (const auto& [handle, module] : modules_) static_cast<void>(context_.api().module_unload(module));
  for (const CuModule module : own_) {
    if (module != nullptr) static_cast<void>(context_.api().module_unload(module));
  }
}

Outcome CudaFunctions::load_image(std::span<const std::byte> image, CuModule& module) {
  if (const Status whole = check_image(image); !whole.ok()) {
    return refuse(static_cast<std::int32_t>(CuResult::kInvalidImage), whole.message());
  }
  char log[512] = "";
  int names[] = {kJitErrorLog, kJitErrorLogBytes};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): so the driver takes numbers
  void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
  const CuResult result = context_.api().module_load(&module, image.data(), 2, names, values);
  Outcome outcome = context_.check(result, "cuModuleLoadDataEx");
  if (!outcome.ok() && log[0] != '\0') outcome.text += fmt::format("; the driver says: {}", log);
  return outcome;
}

Outcome CudaFunctions::load_module(Handle module, std::span<const std::byte> image) {
  if (module.bits == 0 || modules_.contains(module.bits)) {
    return refuse(command::kInvalidValue, fmt::format("handle {} names a module already, or nothing", module.bits));
  }
  if (modules_.size() >= config_.modules) {
    return refuse(command::kOutOfMemory, fmt::format("the session has {} modules, its limit", modules_.size()));
  }
  CuModule loaded = nullptr;
  Outcome outcome = load_image(image, loaded);
  if (outcome.ok()) modules_[module.bits] = loaded;
  return outcome;
}

// ---- functions -----------------------------------------------------------------------------------------------------

const std::shared_ptr<const CudaFunctions::Function>& CudaFunctions::shared(Handle function) const noexcept {
  static const std::shared_ptr<const Function> none;
  const auto found = functions_.find(function.bits);
  return found != functions_.end() ? found->second : none;
}

Outcome CudaFunctions::unknown(Handle function) {
  return refuse(command::kInvalidHandle, fmt::format("handle {} names no function", function.bits));
}

template <typename Call>
Outcome CudaFunctions::with_parameters(const Function& function, std::span<const std::byte> parameters,
                                       const CudaMemory& memory, std::string_view name, Call call) const {
  alignas(16) CudaLayout::Block block;
  Outcome outcome = function.layout.translate(parameters, memory, block);
  if (outcome.ok()) {
    std::size_t bytes = function.layout.device_bytes();
    // NOLINTBEGIN(performance-no-int-to-ptr): so the driver tells them apart
    void* extra[] = {reinterpret_cast<void*>(kLaunchParameters), block.data(),
                     reinterpret_cast<void*>(kLaunchParameterBytes), &bytes, nullptr};
    // NOLINTEND(performance-no-int-to-ptr)
    outcome = context_.check(call(bytes != 0 ? extra : nullptr), name);
  }
  if (!outcome.ok() && outcome.scope == command::Scope::kCommand) {
    outcome.text = fmt::format("'{}': {}", function.name, outcome.text);
  }
  return outcome;
}

Outcome CudaFunctions::launch(const Function& function, const command::Launch& launch,
                              std::span<const std::byte> parameters, const CudaMemory& memory, CuStream stream) const {
  const command::Extent &grid = launch.grid, &threads = launch.block;
  return with_parameters(function, parameters, memory, "cuLaunchKernel", [&](void** extra) {
    return context_.api().launch(function.function, grid.x, grid.y, grid.z, threads.x, threads.y, threads.z,
                                 launch.shared_bytes, stream, nullptr, extra);
  });
}

Outcome CudaFunctions::set(const Function& function, const command::Launch& launch,
                           std::span<const std::byte> parameters, const CudaMemory& memory, CuGraphExec exec,
                           CuGraphNode node) const {
  const command::Extent &grid = launch.grid, &threads = launch.block;
  return with_parameters(function, parameters, memory, "cuGraphExecKernelNodeSetParams", [&](void** extra) {
    const CuLaunchNode wanted{function.function,
                              {grid.x, grid.y, grid.z},
                              {threads.x, threads.y, threads.z},
                              launch.shared_bytes,
                              nullptr,
                              extra};
    return context_.api().graph_exec_set_launch(exec, node, &wanted);
  });
}

Outcome CudaFunctions::load(Handle function, Handle module, std::string_view name,
                            std::span<const Parameter> parameters) {
  const auto found = modules_.find(module.bits);
  if (found == modules_.end()) {
    return refuse(command::kInvalidHandle, fmt::format("handle {} names no module", module.bits));
  }
  return add(function, found->second, name, parameters);
}

Outcome CudaFunctions::load(Handle function, std::string_view name) {
  for (std::size_t i = 0; i < own_.size(); ++i) {
    const auto& functions = config_.images[i].functions;
    const auto found = std::ranges::find_if(functions, [name](const auto& each) { return each.name == name; });
    if (found == functions.end()) continue;
    if (own_[i] == nullptr) {
      const std::vector<std::byte>& image = config_.images[i].image;
      if (Outcome loaded = load_image(std::span(image).first(image.size() - 1), own_[i]); !loaded.ok()) {
        own_[i] = nullptr;
        return loaded;
      }
    }
    return add(function, own_[i], name, found->parameters);
  }
  return refuse(command::kNoSuchName,
                fmt::format("there is no function named '{}' among those that the service brings along; load_module() "
                            "first",
                            name.substr(0, 100)));
}

Outcome CudaFunctions::add(Handle handle, CuModule module, std::string_view name,
                           std::span<const Parameter> parameters) {
  if (handle.bits == 0) return refuse(command::kInvalidValue, "handle 0 names nothing");
  if (functions_.size() >= config_.functions && !functions_.contains(handle.bits)) {
    return refuse(command::kOutOfMemory,
                  fmt::format("the session has loaded {} functions, its limit", functions_.size()));
  }
  Result<CudaLayout> layout = CudaLayout::of(parameters);
  if (!layout) return refuse(command::kInvalidValue, layout.error().message());
  Function function{std::string(name), nullptr, *std::move(layout)};
  Outcome outcome = context_.check(context_.api().module_function(&function.function, module, function.name.c_str()),
                                   "cuModuleGetFunction");
  if (!outcome.ok()) {
    if (outcome.result == command::kNoSuchName) outcome.text += fmt::format(": '{}'", name.substr(0, 100));
    return outcome;
  }
  outcome = compare(function);
  if (outcome.ok()) functions_.insert_or_assign(handle.bits, std::make_shared<const Function>(std::move(function)));
  return outcome;
}

/// What was declared with what the driver knows.
Outcome CudaFunctions::compare(const Function& function) const {
  const auto ask = context_.api().function_parameter;
  if (ask == nullptr) return {};  // the length is compared at the launch
  const std::vector<CudaLayout::Place>& places = function.layout.places();
  for (std::size_t i = 0; i <= places.size(); ++i) {
    std::size_t at = 0, bytes = 0;
    const CuResult result = ask(function.function, i, &at, &bytes);
    const bool exists = result != CuResult::kInvalidValue;
    if (exists) {
      if (Outcome known = context_.check(result, "cuFuncGetParamInfo"); !known.ok()) return known;
    }
    if (exists != (i < places.size())) {
      return refuse(command::kInvalidValue, fmt::format("'{}' takes {} parameters than the {} that were declared",
                                                        function.name, exists ? "more" : "fewer", places.size()));
    }
    if (exists && (at != places[i].to || bytes != places[i].bytes)) {
      return refuse(command::kInvalidValue,
                    fmt::format("parameter {} of '{}' has {} bytes at {}, not {} at {} as was declared", i,
                                function.name, bytes, at, places[i].bytes, places[i].to));
    }
  }
  return {};
}

}  // namespace fairlead::gpu
