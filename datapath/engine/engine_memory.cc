// The engine's memory: of its pool, the application's own, and files.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/guarded.h"
#include "datapath/engine/engine_impl.h"
#include "datapath/engine/handles.h"
#include "memreg/limits.h"
#include "memreg/mapped_file.h"

namespace fairlead::datapath {
namespace {

/// Whether there are no holes in it, and its ends can be read. What is between and cannot be read fails the transfers
/// that touch it; to touch every page here would bring all of a large file into memory.
bool is_memory(std::span<std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (begin == 0 || begin + bytes.size() < begin) return false;
  const std::uintptr_t first = begin & ~(page - 1);
  // It starts no writing, and looks for holes mapping by mapping.
  if (::msync(reinterpret_cast<void*>(first), begin + bytes.size() - first, MS_ASYNC) != 0) return false;  // NOLINT
  install_fault_handlers();
  return readable(bytes.data(), 1) && readable(&bytes.back(), 1);
}

Status check_memory(std::span<std::byte> bytes) {
  if (bytes.empty()) return {Code::kInvalidArgument, "cannot register 0 bytes"};
  if (is_memory(bytes)) return {};
  return {Code::kInvalidArgument,
          fmt::format("cannot register {} bytes at {}: not all of it is memory that this process may read",
                      bytes.size(), static_cast<void*>(bytes.data()))};
}

/// ok, or why no memory has such an access.
Status check_access(Access access) {
  constexpr Access kAll = Access::kRemoteReadWrite | Access::kLocalReadOnly | Access::kRemoteAtomic;
  if (!allows(kAll, access)) {
    return {Code::kInvalidArgument,
            fmt::format("access {} is none; combine kRemoteRead, kRemoteWrite, kRemoteAtomic, kLocalReadOnly",
                        static_cast<int>(access))};
  }
  for (const auto& [changes, name] :
       {std::pair{Access::kRemoteWrite, "kRemoteWrite"}, {Access::kRemoteAtomic, "kRemoteAtomic"}}) {
    if (!allows(access, changes | Access::kLocalReadOnly)) continue;
    return {Code::kInvalidArgument,
            fmt::format("access {} and kLocalReadOnly contradict each other; leave one out", name)};
  }
  return {};
}

/// Calls `release` when it goes, but in a forked child: there the memory is the parent's.
std::shared_ptr<void> keeper_of(std::shared_ptr<RegionTable> table, std::function<void()> release) {
  if (!release) return nullptr;
  return {nullptr, [table = std::move(table), release = std::move(release)](void*) {
            if (!table->inherited()) release();
          }};
}

}  // namespace

Result<Memory> EngineImpl::register_memory(std::span<std::byte> bytes, Access access, std::function<void()> release) {
  if (Status good = check_access(access); !good.ok()) return good;
  if (Status good = check_memory(bytes); !good.ok()) return good;
  Result<std::shared_ptr<RegisteredRange>> range = commons_.regions->add({.bytes = bytes, .access = access});
  if (!range) return range.error();
  auto keeper = keeper_of(commons_.regions, std::move(release));
  return make_memory(std::make_shared<RegionImpl>(std::move(*range), bytes, access, std::move(keeper)), bytes);
}

Result<std::vector<Memory>> EngineImpl::register_memory(std::span<const std::span<std::byte>> ranges, Access access) {
  if (Status good = check_access(access); !good.ok()) return good;
  std::vector<std::size_t> order(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    order[i] = i;
    if (Status good = check_memory(ranges[i]); !good.ok()) {
      return Status(good.code(), fmt::format("range {} of {}: {}", i, ranges.size(), good.message()));
    }
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::less<>()(ranges[a].data(), ranges[b].data()); });
  std::vector<Memory> memories(ranges.size());
  for (std::size_t begin = 0; begin < order.size();) {
    // As far as each begins within, or right behind, what is there already.
    std::byte* const first = ranges[order[begin]].data();
    std::byte* last = first;
    std::size_t end = begin;
    for (; end < order.size() && (end == begin || ranges[order[end]].data() <= last); ++end) {
      last = std::max(last, ranges[order[end]].data() + ranges[order[end]].size());
    }
    Result<std::shared_ptr<RegisteredRange>> range = commons_.regions->add({.bytes = {first, last}, .access = access});
    if (!range) {
      return Status(range.error().code(),
                    fmt::format("range {} of {}: {}", order[begin], ranges.size(), range.error().message()));
    }
    for (; begin < end; ++begin) {
      const std::span<std::byte> bytes = ranges[order[begin]];
      memories[order[begin]] = make_memory(std::make_shared<RegionImpl>(*range, bytes, access, nullptr), bytes);
    }
  }
  return memories;
}

Result<Memory> EngineImpl::map_file(const std::string& path, Access access) {
  if (Status good = check_access(access); !good.ok()) return good;
  const bool writable = allows(access, Access::kRemoteWrite) || allows(access, Access::kRemoteAtomic);
  Result<memreg::MappedFile> opened = memreg::MappedFile::open(
      path, writable ? memreg::MappedFile::Mode::kReadWrite : memreg::MappedFile::Mode::kReadOnly);
  if (!opened) return opened.error();
  auto file = std::make_shared<memreg::MappedFile>(std::move(*opened));
  if (file->bytes().empty()) return Status(Code::kInvalidArgument, fmt::format("file '{}' is empty", path));
  const Access registered = writable ? access : access | Access::kLocalReadOnly;
  Result<std::shared_ptr<RegisteredRange>> range = commons_.regions->add({file->bytes(), FileMemory{}, registered});
  if (!range) return range.error();
  return make_memory(std::make_shared<RegionImpl>(std::move(*range), file->bytes(), registered, file), file->bytes());
}

Status EngineImpl::check_given(std::string_view name, const Memory& memory, const std::vector<std::string>& audience) {
  if (!memory.valid()) return {Code::kInvalidArgument, fmt::format("cannot {}: the memory is not valid", name)};
  if (!region_of(memory)->range().is_of(*commons_.regions)) {
    return {Code::kInvalidArgument,
            fmt::format("cannot {}: the memory is registered with another engine; register it with this one", name)};
  }
  if (const Status known = commons_.principals.check_audience(audience); !known.ok()) {
    return {known.code(), fmt::format("cannot {}: {}", name, known.message())};
  }
  return {};
}

Status EngineImpl::publish(std::string_view name, const Memory& memory, Access access, std::optional<TensorSpec> tensor,
                           std::vector<std::string> audience) {
  if (const Status may = check_given(fmt::format("publish '{}'", name), memory, audience); !may.ok()) return may;
  return commons_.regions->publish(name, share_of(memory), memory.bytes(), access, tensor, std::move(audience));
}

/// Sessions that know of it are told.
void EngineImpl::tell_withdrawn(std::uint64_t id) {
  for (const auto& lane : lanes_) {
    lane->lane().submit([lane = lane.get(), id] {
      for (const auto& session : lane->sessions()) session->tell_withdrawn(id);
    });
  }
}

Status EngineImpl::unpublish(std::string_view name) {
  const Result<std::uint64_t> gone = commons_.regions->unpublish(name);
  if (!gone) return gone.error();
  tell_withdrawn(*gone);
  return {};
}

Result<std::string> EngineImpl::export_memory(const Memory& memory, Access access, std::vector<std::string> audience) {
  if (const Status may = check_given("export", memory, audience); !may.ok()) return may;
  const Result<Capability> made =
      commons_.regions->export_region(share_of(memory), memory.bytes(), access, std::move(audience));
  if (!made) return made.error();
  return to_text(*made);
}

Status EngineImpl::unexport(std::string_view capability) {
  const std::optional<Capability> parsed = parse_capability(capability);
  if (!parsed) {
    return {
        Code::kInvalidArgument,
        fmt::format("a capability is the text that Engine::export_ gives; these {} bytes are none", capability.size())};
  }
  if (const Status gone = commons_.regions->unexport(*parsed); !gone.ok()) return gone;
  tell_withdrawn(parsed->region);
  return {};
}

}  // namespace fairlead::datapath
