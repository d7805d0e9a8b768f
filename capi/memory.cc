#include <span>

#include "capi/handles.h"
#include "capi/structures.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

namespace {

std::span<std::byte> bytes_of(const void* data, std::size_t size) {
  return {static_cast<std::byte*>(const_cast<void*>(data)), size};
}

std::vector<std::span<std::byte>> ranges_of(const fairlead_bytes* ranges, std::size_t count) {
  std::vector<std::span<std::byte>> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = bytes_of(ranges[i].data, ranges[i].size);
  return all;
}

std::function<void()> release_of(fairlead_release release, void* context) {
  if (release == nullptr) return {};
  return [release, context] { release(context); };
}

/// What the functions that give one memory have in common.
template <typename Do>
fairlead_code memory_by(fairlead_engine* engine, fairlead_memory** memory, Do&& act) {
  return outcome([&]() -> Status {
    clear(memory);
    if (engine == nullptr) return missing("engine");
    if (memory == nullptr) return missing("memory");
    return hand_over([&] { return act(*engine->engine); }, memory);
  });
}

/// And those that give several.
template <typename Do>
fairlead_code memories_by(fairlead_engine* engine, const fairlead_bytes* ranges, std::size_t count,
                          fairlead_memory** memory, Do&& act) {
  return outcome([&]() -> Status {
    if (memory != nullptr) std::fill_n(memory, count, nullptr);
    if (engine == nullptr) return missing("engine");
    if (count > 0 && ranges == nullptr) return missing("ranges");
    if (count > 0 && memory == nullptr) return missing("memory");
    const auto all = ranges_of(ranges, count);
    return hand_over_all(act(*engine->engine, std::span<const std::span<std::byte>>(all)), memory);
  });
}

}  // namespace

fairlead_code fairlead_engine_allocate(fairlead_engine* engine, size_t bytes, const fairlead_allocate_options* options,
                                       fairlead_memory** memory) {
  return memory_by(engine, memory, [&](Engine& of) -> Result<Memory> {
    fairlead_allocate_options known = FAIRLEAD_INIT(fairlead_allocate_options);
    if (options != nullptr) {
      if (Status status = take(*options, known, "fairlead_allocate_options"); !status.ok()) return status;
    }
    AllocateOptions wanted;
    wanted.alignment = known.alignment;
    if (known.has_audience) {
      if (Status status = names_of(known.audience, known.audience_count, wanted.audience.emplace()); !status.ok())
        return status;
    }
    if (known.has_node) wanted.node = known.node;
    wanted.shared = known.shared;
    return of.allocate(bytes, wanted);
  });
}

void fairlead_engine_trim_pool(fairlead_engine* engine) {
  (void)outcome([&]() -> Status {
    if (engine != nullptr) engine->engine->trim_pool();
    return {};
  });
}

fairlead_code fairlead_engine_register(fairlead_engine* engine, void* data, size_t bytes, uint32_t access,
                                       fairlead_release release, void* context, fairlead_memory** memory) {
  return memory_by(engine, memory, [&](Engine& of) -> Result<Memory> {
    if (Status status = check_access(access); !status.ok()) return status;
    return of.register_memory(bytes_of(data, bytes), static_cast<Access>(access), release_of(release, context));
  });
}

fairlead_code fairlead_engine_register_many(fairlead_engine* engine, const fairlead_bytes* ranges, size_t count,
                                            uint32_t access, fairlead_memory** memory) {
  return memories_by(engine, ranges, count, memory, [&](Engine& of, auto all) -> Result<std::vector<Memory>> {
    if (Status status = check_access(access); !status.ok()) return status;
    return of.register_memory(all, static_cast<Access>(access));
  });
}

fairlead_code fairlead_engine_cached_memory(fairlead_engine* engine, const fairlead_bytes* ranges, size_t count,
                                            fairlead_memory** memory) {
  return memories_by(engine, ranges, count, memory, [](Engine& of, auto all) { return of.cached_memory(all); });
}

fairlead_code fairlead_engine_declare_memory(fairlead_engine* engine, void* data, size_t bytes, bool at_once) {
  return outcome([&] {
    return engine != nullptr ? engine->engine->declare_memory(bytes_of(data, bytes), at_once) : missing("engine");
  });
}

fairlead_code fairlead_engine_withdraw_memory(fairlead_engine* engine, const void* begin) {
  return outcome([&] {
    return engine != nullptr ? engine->engine->withdraw_memory(static_cast<const std::byte*>(begin))
                             : missing("engine");
  });
}

fairlead_code fairlead_engine_register_cuda(fairlead_engine* engine, void* data, size_t bytes, int device,
                                            uint32_t access, fairlead_release release, void* context,
                                            fairlead_memory** memory) {
  return memory_by(engine, memory, [&](Engine& of) -> Result<Memory> {
    if (Status status = check_access(access); !status.ok()) return status;
    return of.register_memory(
        bytes_of(data, bytes),
        CudaOptions{.device = device, .access = static_cast<Access>(access), .release = release_of(release, context)});
  });
}

fairlead_code fairlead_engine_map_file(fairlead_engine* engine, const char* path, uint32_t access,
                                       fairlead_memory** memory) {
  return memory_by(engine, memory, [&](Engine& of) -> Result<Memory> {
    if (Status status = check_access(access); !status.ok()) return status;
    return of.map_file(std::string(text_of(path)), static_cast<Access>(access));
  });
}

// ---- ours

void* fairlead_memory_data(const fairlead_memory* memory) {
  return memory != nullptr ? memory->memory.data() : nullptr;
}
size_t fairlead_memory_size(const fairlead_memory* memory) { return memory != nullptr ? memory->memory.size() : 0; }

fairlead_code fairlead_memory_slice(const fairlead_memory* memory, size_t offset, size_t bytes,
                                    fairlead_memory** slice) {
  return outcome([&]() -> Status {
    if (slice == nullptr) return missing("slice");
    *slice = nullptr;
    if (memory == nullptr) return missing("memory");
    Memory part = memory->memory.slice(offset, bytes);
    if (!part.valid()) {
      return {Code::kOutOfRange, "memory of " + std::to_string(memory->memory.size()) + " bytes has no " +
                                     std::to_string(bytes) + " bytes at " + std::to_string(offset)};
    }
    *slice = new fairlead_memory{std::move(part)};
    return {};
  });
}

fairlead_code fairlead_memory_shared_file(const fairlead_memory* memory, int* fd, size_t* offset) {
  return outcome([&]() -> Status {
    if (fd != nullptr) *fd = -1;
    if (offset != nullptr) *offset = 0;
    if (memory == nullptr) return missing("memory");
    if (fd == nullptr || offset == nullptr) return missing("fd or offset");
    const auto file = memory->memory.shared_file();
    if (!file) return {Code::kNotFound, "this memory is not shared: allocate it with fairlead_allocate_options.shared"};
    *fd = file->fd;
    *offset = file->offset;
    return {};
  });
}

void fairlead_memory_release(fairlead_memory* memory) {
  (void)outcome([&]() -> Status {
    delete memory;
    return {};
  });
}

// ---- a peer's

uint64_t fairlead_remote_memory_size(const fairlead_remote_memory* memory) { return memory_of(memory).size(); }
uint64_t fairlead_remote_memory_offset(const fairlead_remote_memory* memory) { return memory_of(memory).offset(); }
size_t fairlead_remote_memory_name(const fairlead_remote_memory* memory, char* text, size_t size) {
  return put_text(memory_of(memory).name(), text, size);
}
uint32_t fairlead_remote_memory_access(const fairlead_remote_memory* memory) {
  return static_cast<uint32_t>(memory_of(memory).access());
}
bool fairlead_remote_memory_withdrawn(const fairlead_remote_memory* memory) { return memory_of(memory).withdrawn(); }

fairlead_code fairlead_remote_memory_tensor(const fairlead_remote_memory* memory, fairlead_tensor* tensor) {
  return outcome([&]() -> Status {
    if (memory == nullptr) return missing("memory");
    const auto& spec = memory->memory.tensor();
    if (!spec) return {Code::kNotFound, "no tensor was published as '" + memory->memory.name() + "', but bytes"};
    return give_tensor(*spec, tensor);
  });
}

fairlead_code fairlead_remote_memory_slice(const fairlead_remote_memory* memory, uint64_t offset, uint64_t bytes,
                                           fairlead_remote_memory** slice) {
  return outcome([&]() -> Status {
    if (slice == nullptr) return missing("slice");
    *slice = nullptr;
    if (memory == nullptr) return missing("memory");
    RemoteMemory part = memory->memory.slice(offset, bytes);
    if (!part.valid()) {
      return {Code::kOutOfRange, "'" + memory->memory.name() + "', " + std::to_string(memory->memory.size()) +
                                     " bytes, has no " + std::to_string(bytes) + " bytes at " + std::to_string(offset)};
    }
    *slice = new fairlead_remote_memory{std::move(part)};
    return {};
  });
}

void fairlead_remote_memory_release(fairlead_remote_memory* memory) {
  (void)outcome([&]() -> Status {
    delete memory;
    return {};
  });
}
