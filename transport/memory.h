// Memory as devices take it: described, then registered for this end's own use, then granted, part by part, to peers.
//
// A registration makes bytes usable as the local side of operations; it gives peers nothing. A grant lets peers reach a
// part of a registration, with a key of its own: revoking it stops that key and nothing else. So all tensors of a model
// that lie in one allocation are one registration, with a grant for each that is published.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <variant>

#include "fairlead/memory.h"
#include "gpu/driver/driver_api.h"

namespace fairlead::gpu {
class Driver;
}  // namespace fairlead::gpu

namespace fairlead::datapath {

/// Of this process: anonymous, or whatever else it mapped.
struct HostMemory {
  /// Of a memfd that holds exactly the registered bytes, sealed so that others can map it, read-only: processes of this
  /// host may be given it. -1: there is none.
  int readable_fd = -1;
};
/// The same, on pages of this size, all of them reserved.
struct HugeMemory {
  std::size_t page_bytes = 0;
};
/// A mapping of a regular file, whose pages may go at any time. `fd`: the file, if it is still open, else -1; `offset`:
/// of the first byte in it.
struct FileMemory {
  int fd = -1;
  std::uint64_t offset = 0;
};
/// Memory of CUDA device number `ordinal`; the allocation that the bytes are a part of is `range`. The CPU must not
/// touch them.
struct CudaMemory {
  int ordinal = 0;
  std::span<std::byte> range;
  gpu::CuContext context = nullptr;               // in which it is copied
  std::shared_ptr<gpu::Driver> driver = nullptr;  // who knows it
};

using MemoryKind = std::variant<HostMemory, HugeMemory, FileMemory, CudaMemory>;

/// What is to be registered, or granted. Its owner keeps the bytes where they are until that is undone.
struct MemoryDescriptor {
  std::span<std::byte> bytes;
  MemoryKind kind = HostMemory{};
  /// Of a grant: what peers may do; of a registration: the most that will be granted. With Access::kLocalReadOnly the
  /// bytes are mapped read-only and only ever read.
  Access access = Access::kNone;
};

/// The same memory, these bytes of it alone.
[[nodiscard]] inline MemoryDescriptor part_of(MemoryDescriptor whole, std::span<std::byte> bytes, Access access) {
  if (auto* file = std::get_if<FileMemory>(&whole.kind)) {
    file->offset += static_cast<std::uint64_t>(bytes.data() - whole.bytes.data());
  }
  return {.bytes = bytes, .kind = whole.kind, .access = access};
}

/// A registered range, at one device. Opaque to the engine: `local` goes into LocalSegment, `handle` back to the
/// device.
struct Registration {
  std::uint64_t local = 0;
  std::uint64_t handle = 0;
};

/// What peers may reach, at one device. Opaque to both ends: peers add offsets to `address`, which is the first byte's.
struct Grant {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
  std::uint64_t handle = 0;
};

}  // namespace fairlead::datapath
