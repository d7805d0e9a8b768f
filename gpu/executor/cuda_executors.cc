// What makes CUDA executors: the settings, and what the device allows.
#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "gpu/executor/cuda_executor.h"

namespace fairlead::inline v0::command {

Result<ExecutorFactory> cuda_executors(CudaExecutorConfig config) {
  const auto wrong = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  constexpr std::size_t kLeastStaging = std::size_t{4} << 20;
  if (config.staging_bytes < kLeastStaging) {
    return wrong(fmt::format("staging_bytes is {}, and must be at least {}", config.staging_bytes, kLeastStaging));
  }
  if (config.memory_bytes == 0) return wrong("memory_bytes is 0: a session needs memory of the device");
  for (CudaModule& module : config.images) {
    for (const CudaModule::Function& function : module.functions) {
      if (const auto layout = gpu::CudaLayout::of(function.parameters); !layout) {
        return wrong(fmt::format("function '{}': {}", function.name, layout.error().message()));
      }
    }
    module.image.push_back(std::byte{0});  // PTX ends with it
  }
  Result<std::shared_ptr<gpu::Driver>> opened = gpu::process_driver();
  if (!opened) return opened.error();
  const std::shared_ptr<gpu::Driver> driver = *std::move(opened);
  if (config.ordinal < 0 || static_cast<std::size_t>(config.ordinal) >= driver->devices().size()) {
    return wrong(
        fmt::format("there is no CUDA device {}; legal: 0 to {}", config.ordinal, driver->devices().size() - 1));
  }
  ExecutorLimits limits;
  limits.name = driver->devices()[static_cast<std::size_t>(config.ordinal)].name;
  limits.memory_bytes = config.memory_bytes;
  limits.modules = config.modules;
  limits.graphs = gpu::CudaGraphs::are_known(driver->api());
  const auto ask = [&](int attribute, std::uint32_t& limit) {
    gpu::CuDevice device = 0;
    int value = 0;
    const bool known = driver->api().device_get(&device, config.ordinal) == gpu::CuResult::kSuccess &&
                       driver->api().device_attribute(&value, attribute, device) == gpu::CuResult::kSuccess;
    if (known && value > 0) limit = static_cast<std::uint32_t>(value);
  };
  ask(gpu::kAttributeBlockThreads, limits.block_threads);
  ask(gpu::kAttributeSharedBytes, limits.shared_bytes);
  ask(gpu::kAttributeGrid[0], limits.grid.x);
  ask(gpu::kAttributeGrid[1], limits.grid.y);
  ask(gpu::kAttributeGrid[2], limits.grid.z);
  return ExecutorFactory([driver, limits, shared = std::make_shared<const CudaExecutorConfig>(std::move(config))](
                             const Peer&) -> Result<std::unique_ptr<Executor>> {
    Result<std::unique_ptr<gpu::CudaExecutor>> made = gpu::CudaExecutor::create(driver, shared, limits);
    if (!made) return made.error();
    return std::unique_ptr<Executor>(*std::move(made));
  });
}

}  // namespace fairlead::inline v0::command
