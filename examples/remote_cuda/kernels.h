// What kernels take. CUDA's cuLaunchKernel is given addresses of values and knows their sizes from the code; a
// command's parameters are bytes, in which pointers are allocations and offsets. So a stack has to know what each
// kernel takes: here from the text that stands for a module, in general from what its compiler leaves.
#pragma once

#include <addresses.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct Kernel {
  enum class Kind { kPointer, kU32, kU64, kF32 };
  std::string name;
  std::vector<Kind> parameters;
};

/// One line for each kernel: name(pointer, u32, ...). Nothing: it is no such text.
std::optional<std::vector<Kernel>> parse_module(std::string_view image);

/// As command::pack() places them; `values` are addresses of values, as cuLaunchKernel takes them. Nothing: a pointer
/// that is not 0 and leads to no allocation.
std::optional<std::vector<std::byte>> pack_parameters(const Kernel& kernel, void* const* values,
                                                      const Addresses& addresses);
