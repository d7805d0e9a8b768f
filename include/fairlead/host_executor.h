// An executor whose device is this host: memory is host memory, kernels are C++ functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fairlead/command_service.h"
#include "fairlead/export.h"

namespace fairlead::inline v0::command {

/// What a kernel takes, in the order of pack(). Pointers are a command::Pointer in the parameters, a pointer in Call.
/// An address is 8 bytes (Channel::address_of), and a pointer in Call; 0 that reaches over nothing is a null one.
enum class ParameterKind : std::uint8_t { kPointer, kU32, kU64, kF32, kAddress };

/// The memory behind a session's addresses.
class FAIRLEAD_EXPORT Addresses {
 public:
  virtual ~Addresses() = default;
  /// Null: they are not all of one allocation of the session's.
  [[nodiscard]] virtual std::byte* find(std::uint64_t address, std::uint64_t bytes) const noexcept = 0;
};

/// One call of a kernel: its parameters, checked.
class FAIRLEAD_EXPORT Call {
 public:
  /// By their place among all parameters; each must be of that kind.
  template <typename T>
  [[nodiscard]] T* pointer(std::size_t i) const noexcept {
    return reinterpret_cast<T*>(arguments[i].pointer);
  }
  [[nodiscard]] std::uint32_t u32(std::size_t i) const noexcept {
    return static_cast<std::uint32_t>(arguments[i].number);
  }
  [[nodiscard]] std::uint64_t u64(std::size_t i) const noexcept { return arguments[i].number; }
  [[nodiscard]] float f32(std::size_t i) const noexcept { return arguments[i].real; }
  /// What stands at an address that was found in memory, checked as pointers are. Null: it is not all of one allocation
  /// of the session's, or not aligned.
  template <typename T>
  [[nodiscard]] T* at(std::uint64_t address, std::size_t count = 1) const noexcept {
    if (addresses == nullptr || address % alignof(T) != 0 || count > ~std::size_t{0} / sizeof(T)) return nullptr;
    return reinterpret_cast<T*>(addresses->find(address, count * sizeof(T)));
  }

  struct Argument {
    std::byte* pointer = nullptr;
    std::uint64_t number = 0;
    float real = 0;
  };
  Extent grid, block;
  std::span<const Argument> arguments;
  const Addresses* addresses = nullptr;  // of the session's range, if it has one
};

/// A kernel: it runs once for a launch, over the whole grid, on the executor's thread.
struct HostKernel {
  std::string name;
  struct Parameter {
    ParameterKind kind = ParameterKind::kPointer;
    std::size_t alignment = 1;  // of a pointer and an address: that of what it points at, a power of two up to 16
  };
  std::vector<Parameter> parameters;  // at most 16
  /// How many bytes the pointer or address `i` reaches over, with these numbers; ~0 refuses the launch. The launch goes
  /// ahead only if each lies within its allocation. Empty: the kernel has no pointers.
  std::function<std::uint64_t(const Call& call, std::size_t i)> extent;
  /// Not ok: the launch failed, and with it the context, as of a device that faulted.
  std::function<Status(const Call& call)> run;
  bool is_short = true;  // it ends within some microseconds
};

/// vector_add(a, b, out, n), saxpy(a, x, y, n), sgemm(a, b, c, m, n, k), reduce(in, out, n), softmax(in, out, rows,
/// columns), image_filter(in, out, width, height, kernel of 3x3), nothing(): of floats, sizes u32.
[[nodiscard]] FAIRLEAD_EXPORT std::vector<HostKernel> standard_kernels();

struct HostExecutorConfig {
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  // of a session
  std::size_t allocations = 4096;                       // of a session
  std::size_t functions = 1024;                         // of a session that are loaded
  std::vector<HostKernel> kernels = standard_kernels();
};

/// An executor for each session, all with these kernels.
[[nodiscard]] FAIRLEAD_EXPORT ExecutorFactory host_executors(HostExecutorConfig config = {});

}  // namespace fairlead::inline v0::command
