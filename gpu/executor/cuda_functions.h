// A session's modules and functions on a GPU, and what a launch's parameters become for the device.
//
// A function's layout says where in the client's bytes each parameter stands and which are pointers; it is compared
// with what the driver says of the function, where that can (CUDA 12.4). A launch hands the driver a block of bytes
// with its length, never a list whose length only the function knows. Owns the modules. Threads: one at a time, in the
// context.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fairlead/cuda_executor.h"
#include "gpu/executor/cuda_context.h"
#include "gpu/executor/cuda_memory.h"

namespace fairlead::gpu {

/// Where a function's parameters stand.
class CudaLayout {
 public:
  static constexpr std::size_t kMost = 256;    // parameters
  static constexpr std::size_t kBytes = 4096;  // of all of them

  /// Errors: kInvalidArgument, which names the parameter.
  static Result<CudaLayout> of(std::span<const command::Parameter> parameters);

  struct Place {
    std::uint32_t from = 0, to = 0;  // in what the client packs; in what the device gets
    std::uint32_t bytes = 0;         // there
    bool is_pointer = false;
  };
  [[nodiscard]] const std::vector<Place>& places() const noexcept { return places_; }
  [[nodiscard]] std::size_t device_bytes() const noexcept { return device_bytes_; }

  using Block = std::array<std::byte, kBytes>;
  /// The client's parameters as the device takes them, addresses in the place of pointers.
  [[nodiscard]] command::Outcome translate(std::span<const std::byte> packed, const CudaMemory& memory,
                                           Block& block) const;
  /// Those that pointers are of, in what was translated.
  template <typename Used>
  void each_allocation(std::span<const std::byte> packed, Used used) const {
    for (const Place& place : places_) {
      if (!place.is_pointer) continue;
      command::Pointer pointer;
      std::memcpy(&pointer, packed.data() + place.from, sizeof pointer);
      if (pointer.allocation.bits != 0) used(pointer.allocation);
    }
  }

 private:
  std::vector<Place> places_;
  std::size_t packed_bytes_ = 0, alignment_ = 1, device_bytes_ = 0;
};

class CudaFunctions {
 public:
  CudaFunctions(CudaContext& context, const command::CudaExecutorConfig& config)
      : context_(context), config_(config), own_(config.images.size()) {}
  ~CudaFunctions();
  CudaFunctions(const CudaFunctions&) = delete;
  CudaFunctions& operator=(const CudaFunctions&) = delete;

  struct Function {
    std::string name;
    CuFunction function = nullptr;
    CudaLayout layout;
  };
  /// A byte 0 follows `image`.
  command::Outcome load_module(command::Handle module, std::span<const std::byte> image);
  command::Outcome load(command::Handle function, command::Handle module, std::string_view name,
                        std::span<const command::Parameter> parameters);
  /// One of the server's.
  command::Outcome load(command::Handle function, std::string_view name);
  /// Null: the handle names none.
  [[nodiscard]] const Function* find(command::Handle function) const noexcept { return shared(function).get(); }
  /// The same, for who keeps it though the handle may name another one.
  [[nodiscard]] const std::shared_ptr<const Function>& shared(command::Handle function) const noexcept;
  [[nodiscard]] static command::Outcome unknown(command::Handle function);
  /// Puts it on the stream.
  [[nodiscard]] command::Outcome launch(const Function& function, const command::Launch& launch,
                                        std::span<const std::byte> parameters, const CudaMemory& memory,
                                        CuStream stream) const;
  /// What a launch of a graph that can be launched is from now on.
  [[nodiscard]] command::Outcome set(const Function& function, const command::Launch& launch,
                                     std::span<const std::byte> parameters, const CudaMemory& memory, CuGraphExec exec,
                                     CuGraphNode node) const;

 private:
  /// Has `call` made with the parameters as the driver takes them in the last argument of a launch.
  template <typename Call>
  [[nodiscard]] command::Outcome with_parameters(const Function& function, std::span<const std::byte> parameters,
                                                 const CudaMemory& memory, std::string_view name, Call call) const;
  command::Outcome load_image(std::span<const std::byte> image, CuModule& module);
  command::Outcome add(command::Handle handle, CuModule module, std::string_view name,
                       std::span<const command::Parameter> parameters);
  [[nodiscard]] command::Outcome compare(const Function& function) const;

  CudaContext& context_;
  const command::CudaExecutorConfig& config_;
  std::vector<CuModule> own_;  // of config_.images; null: not loaded yet
  std::unordered_map<std::uint64_t, CuModule> modules_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Function>> functions_;
};

}  // namespace fairlead::gpu
