#include "tests/gpu/cuda_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "tests/gpu/kernel_parameters.h"

namespace fairlead::gpu::testing {
namespace {

using command::Call;
using command::HostKernel;
using command::ParameterKind;

bool is_pointer(ParameterKind kind) { return kind == ParameterKind::kPointer || kind == ParameterKind::kAddress; }

/// What the device holds.
class DeviceAddresses final : public command::Addresses {
 public:
  explicit DeviceAddresses(const CudaDouble::Launched& launched) : launched_(launched) {}
  [[nodiscard]] std::byte* find(std::uint64_t address, std::uint64_t bytes) const noexcept override {
    return launched_.memory(address, bytes);
  }

 private:
  const CudaDouble::Launched& launched_;
};

CuResult run(const HostKernel& kernel, const CudaDouble::Launched& launched) {
  std::vector<Call::Argument> arguments(kernel.parameters.size());
  std::vector<CuAddress> addresses(kernel.parameters.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::size_t bytes = bytes_of(kernel.parameters[i].kind);
    at = (at + bytes - 1) / bytes * bytes;
    const std::byte* const from = launched.parameters.data() + at;
    at += bytes;
    if (kernel.parameters[i].kind == ParameterKind::kF32) {
      std::memcpy(&arguments[i].real, from, bytes);
    } else {
      std::memcpy(is_pointer(kernel.parameters[i].kind) ? &addresses[i] : &arguments[i].number, from, bytes);
      if (kernel.parameters[i].kind == ParameterKind::kAddress) arguments[i].number = addresses[i];
    }
  }
  const DeviceAddresses device(launched);
  const Call call{{launched.grid[0], launched.grid[1], launched.grid[2]},
                  {launched.block[0], launched.block[1], launched.block[2]},
                  arguments,
                  &device};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is_pointer(kernel.parameters[i].kind) || (addresses[i] == 0 && kernel.extent(call, i) == 0)) continue;
    arguments[i].pointer = launched.memory(addresses[i], kernel.extent(call, i));
    if (arguments[i].pointer == nullptr || addresses[i] % kernel.parameters[i].alignment != 0) {
      return CuResult::kIllegalAddress;
    }
  }
  return kernel.run(call).ok() ? CuResult::kSuccess : CuResult::kLaunchFailed;
}

}  // namespace

command::CudaModule add_kernels(CudaDouble& cuda, std::vector<HostKernel> kernels, const std::string& name) {
  const std::string text = ".version 7.0\n.target sm_70\n// of the double's: " + name + "\n";
  command::CudaModule module;
  const auto bytes = std::as_bytes(std::span(text));
  module.image.assign(bytes.begin(), bytes.end());
  module.functions = functions_of(kernels);
  std::vector<CudaDouble::Kernel> all;
  for (HostKernel& kernel : kernels) {
    CudaDouble::Kernel made{kernel.name, {}, {}};
    for (const HostKernel::Parameter& each : kernel.parameters) {
      made.parameters.push_back(bytes_of(each.kind));
    }
    made.run = [kernel = std::make_shared<const HostKernel>(std::move(kernel))](const CudaDouble::Launched& launched) {
      return run(*kernel, launched);
    };
    all.push_back(std::move(made));
  }
  cuda.add_image(text, std::move(all));
  return module;
}

}  // namespace fairlead::gpu::testing
