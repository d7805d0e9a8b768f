#include "datapath/command/metered_executor.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::datapath::command {

Result<std::unique_ptr<fairlead::command::Executor>> MeteredExecutor::make(
    const fairlead::command::ExecutorFactory& factory, const Peer& peer, std::shared_ptr<TenantMeter> tenant,
    Where where) {
  Result<std::unique_ptr<fairlead::command::Executor>> made = factory(peer);
  if (!made) return made;
  return std::unique_ptr<fairlead::command::Executor>(
      std::make_unique<MeteredExecutor>(*std::move(made), std::move(tenant), where));
}

MeteredExecutor::~MeteredExecutor() {
  end_inner();  // what it had is free before others may have it
  device_.give_back(range_bytes_, slot_);
  for (const Sizes* const sizes : {&allocations_, &graphs_}) {
    for (const auto& [handle, bytes] : *sizes) device_.give_back(bytes, slot_);
  }
}

fairlead::command::ExecutorLimits MeteredExecutor::limits() const {
  fairlead::command::ExecutorLimits limits = inner().limits();
  const std::uint64_t most = tenant_->most_memory.load();
  if (most != 0) limits.memory_bytes = std::min(limits.memory_bytes, most);
  return limits;
}

/// Not ok: the tenant has no room for so many.
MeteredExecutor::Outcome MeteredExecutor::take(std::uint64_t bytes) {
  if (device_.reserve_memory(bytes, tenant_->most_memory.load(), slot_)) return {};
  tenant_->rejections.fetch_add(1);
  return {fairlead::command::kOutOfMemory, fairlead::command::Scope::kCommand,
          fmt::format("{} bytes beside {} of {} that the tenant may have on this device", bytes, device_.memory(),
                      tenant_->most_memory.load())};
}

/// What was done with those bytes, that were taken for it.
MeteredExecutor::Outcome MeteredExecutor::taken(Outcome outcome, Sizes& sizes, Handle handle, std::uint64_t bytes) {
  if (outcome.ok()) {
    sizes.emplace(handle.bits, bytes);
  } else {
    device_.give_back(bytes, slot_);
  }
  return outcome;
}

MeteredExecutor::Outcome MeteredExecutor::given_back(Outcome outcome, Sizes& sizes, Handle handle) {
  const auto found = outcome.ok() ? sizes.find(handle.bits) : sizes.end();
  if (found == sizes.end()) return outcome;
  device_.give_back(found->second, slot_);
  sizes.erase(found);
  return outcome;
}

Result<fairlead::command::AddressRange> MeteredExecutor::reserve(std::uint64_t bytes, std::uint64_t wish) {
  if (Outcome room = take(bytes); !room.ok()) return Status(Code::kResourceExhausted, "a range of " + room.text);
  Result<fairlead::command::AddressRange> range = inner().reserve(bytes, wish);
  if (!range) {
    device_.give_back(bytes, slot_);
    return range;
  }
  range_bytes_ = bytes;
  return range;
}

MeteredExecutor::Outcome MeteredExecutor::allocate(Handle handle, std::uint64_t bytes) {
  if (Outcome room = take(bytes); !room.ok()) return room;
  return taken(inner().allocate(handle, bytes), allocations_, handle, bytes);
}

MeteredExecutor::Outcome MeteredExecutor::release(Handle handle) {
  return given_back(inner().release(handle), allocations_, handle);
}

MeteredExecutor::Outcome MeteredExecutor::make_graph(Handle graph,
                                                     std::span<const fairlead::command::GraphCommand> commands,
                                                     std::uint64_t bytes) {
  if (Outcome room = take(bytes); !room.ok()) return room;
  return taken(inner().make_graph(graph, commands, bytes), graphs_, graph, bytes);
}

MeteredExecutor::Outcome MeteredExecutor::release_graph(Handle graph) {
  return given_back(inner().release_graph(graph), graphs_, graph);
}

MeteredExecutor::Outcome MeteredExecutor::copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from) {
  Outcome outcome = inner().copy_in(to, offset, from);
  if (outcome.ok()) device_.bytes_in.fetch_add(from.size(), std::memory_order_relaxed);
  return outcome;
}

MeteredExecutor::Outcome MeteredExecutor::copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset) {
  Outcome outcome = inner().copy_out(to, from, offset);
  if (outcome.ok()) device_.bytes_out.fetch_add(to.size(), std::memory_order_relaxed);
  return outcome;
}

}  // namespace fairlead::datapath::command
