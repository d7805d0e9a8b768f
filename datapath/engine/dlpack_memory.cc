// Tensors that change owners between a framework and registered memory.
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "base/tensor_reach.h"
#include "datapath/engine/handles.h"
#include "datapath/region/regions.h"
#include "fairlead/dlpack.h"

namespace fairlead::inline v0 {
namespace {

/// What share_dlpack() gives: the first member is what the framework sees.
struct Shared {
  DLManagedTensor managed{};
  Memory memory;
  TensorSpec tensor;
};

/// The bytes that the elements take, of a tensor whose offset is an address and that was checked.
std::span<std::byte> bytes_of(const TensorSpec& tensor) {
  const auto [low, high] = *reach_of(tensor);
  const __int128 size = element_size(tensor.dtype);
  const auto begin = static_cast<std::uintptr_t>(static_cast<__int128>(tensor.offset) + low * size);
  return {reinterpret_cast<std::byte*>(begin), static_cast<std::size_t>((high - low + 1) * size)};  // NOLINT
}

}  // namespace

Result<TensorMemory> adopt_dlpack(Engine& engine, DLManagedTensor* tensor, Access access) {
  if (tensor == nullptr) return {Code::kInvalidArgument, "there is no DLPack tensor to take over (null)"};
  Result<TensorSpec> spec = from_dlpack(tensor->dl_tensor, nullptr);
  if (!spec) return spec.error();
  if (Status fits = spec->check(std::numeric_limits<std::uint64_t>::max()); !fits.ok()) return fits;
  if (spec->element_count() == 0) {
    return {Code::kInvalidArgument, "DLPack tensor " + spec->to_string() + " has no elements to register"};
  }
  const std::span<std::byte> bytes = bytes_of(*spec);
  Result<Memory> memory = engine.register_memory(bytes, access, [tensor] {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  });
  if (!memory) return memory.error();
  spec->offset -= reinterpret_cast<std::uintptr_t>(bytes.data());
  return TensorMemory{std::move(*memory), *spec};
}

Result<DLManagedTensor*> share_dlpack(const Memory& memory, const TensorSpec& tensor) {
  if (!memory.valid()) return {Code::kInvalidArgument, "there is no memory to share: it is not valid"};
  const datapath::RegionImpl& region = *datapath::region_of(memory);
  if (region.range().is_cuda()) {
    return {Code::kUnimplemented,
            fmt::format("the memory at {} is a GPU's, which is not given as a tensor of the CPU's; "
                        "its own framework has it, or copy it",
                        fmt::ptr(memory.data()))};
  }
  if (allows(region.access(), Access::kLocalReadOnly)) {
    return {Code::kPermissionDenied,
            fmt::format("the memory at {} is read-only, which a DLManagedTensor cannot say; copy "
                        "it to memory of allocate()",
                        fmt::ptr(memory.data()))};
  }
  if (Status fits = tensor.check(memory.size()); !fits.ok()) return fits;
  auto shared = std::make_unique<Shared>();
  shared->memory = memory;
  shared->tensor = tensor;
  const Result<DLTensor> view = to_dlpack(shared->tensor, memory.data());
  if (!view) return view.error();
  shared->managed = {*view, shared.get(),
                     [](DLManagedTensor* self) { delete static_cast<Shared*>(self->manager_ctx); }};
  return &shared.release()->managed;
}

}  // namespace fairlead::inline v0
