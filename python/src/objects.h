// The C++ API's handles as Python holds them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairlead/engine.h"
#include "fairlead/metrics.h"
#include "python/src/binding.h"

namespace fairlead::python {

/// An engine, which lives as long as anything of it that Python holds, and what waits for it in event loops.
class EngineState {
 public:
  explicit EngineState(Engine made) : engine(std::move(made)) {}
  ~EngineState();
  /// Metrics first: they are of the engine.
  void shut_down();
  /// Whose figures there are to show.
  [[nodiscard]] Engine& shown() noexcept { return taken ? *taken : engine; }
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  /// Whether a transfer that is posted now is one that an event loop can wait for: this thread runs one, and it has
  /// been told of the engine.
  bool attach_running_loop();

  Engine engine;
  std::shared_ptr<Engine> taken;         // by a service: what was in `engine` until then
  std::optional<Metrics> metrics;        // of the engine, so they go first
  py::object waits;                      // fairlead._waits.Waits
  std::atomic<std::uint64_t> posted{0};  // the tag of the last transfer
 private:
  PyObject* last_loop_ = nullptr;  // compared, never followed
};
using EngineRef = std::shared_ptr<EngineState>;

struct PyMemory {
  Memory memory;
  bool read_only = false;
  std::optional<int> cuda_device{};  // it lies there, where this process's own instructions do not reach

  /// Errors: BufferError.
  void check_host() const {
    if (cuda_device) {
      throw py::buffer_error("these bytes are of CUDA device " + std::to_string(*cuda_device) +
                             ", which the host cannot see: use the object that was registered");
    }
  }
};

/// A tensor in registered memory.
struct PyTensor {
  PyMemory memory;
  TensorSpec spec;
};

struct PyPeer {
  Peer peer;
  EngineRef engine;
};

/// A peer that waits to be asked for: it does not hold the engine, which nobody else might hold any more.
struct HeldPeer {
  Peer peer;
  std::weak_ptr<EngineState> engine;
};

struct PyTransfer {
  Transfer transfer;
  EngineRef engine;
  bool reported = false;  // an event loop is told when it is done
};

/// An object's bytes, as far as they can be seen: by the buffer protocol, or by DLPack.
struct Described {
  std::span<std::byte> bytes;
  bool read_only = false;
  bool contiguous = true;          // row-major, without gaps
  std::optional<int> cuda_device;  // it lies there
  std::optional<TensorSpec> spec;  // relative to the first byte; nothing: elements of a kind that has no dtype
  py::object owner;                // keeps the bytes where they are
};
/// Errors: TypeError (no way to see its bytes), ValueError (no bytes).
[[nodiscard]] Described describe(const py::object& object);
/// The same of what can be read from its first byte to its last; `what` takes it ("a message"). Errors besides:
/// ValueError (gaps, another order, or on a CUDA device).
[[nodiscard]] Described host_bytes_of(const py::object& object, std::string_view what);

/// Registers it in place; it is kept until nothing touches it any more.
[[nodiscard]] PyTensor register_object(Engine& engine, const py::object& object, Access access);

/// The memory of a Memory, a Tensor, or an object that is registered for this once.
[[nodiscard]] Memory local_of(Engine& engine, const py::object& local, bool written);
[[nodiscard]] PyTensor tensor_of(Engine& engine, const py::object& local, bool written);

/// Counters by name.
[[nodiscard]] py::dict dict_of(const PeerStats& stats);

[[nodiscard]] Access access_of(const std::string& words);
[[nodiscard]] std::string words_of(Access access);

/// "float32" as NumPy has it, or "F32" as safetensors has it. Errors: ValueError.
[[nodiscard]] DType dtype_of(const py::object& dtype);
[[nodiscard]] const char* numpy_name(DType dtype);  // "bfloat16" too, which NumPy lacks

}  // namespace fairlead::python
