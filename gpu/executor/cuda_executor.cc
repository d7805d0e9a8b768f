#include "gpu/executor/cuda_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "gpu/executor/refuse.h"

namespace fairlead::gpu {

using command::ExecutorLimits;
using command::Handle;
using command::Launch;
using command::Outcome;
using command::Place;
using command::Progress;
using command::Scope;

// ---- life ----------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<CudaExecutor>> CudaExecutor::create(std::shared_ptr<Driver> driver,
                                                           std::shared_ptr<const command::CudaExecutorConfig> config,
                                                           const ExecutorLimits& limits) {
  Result<std::unique_ptr<CudaContext>> made = CudaContext::create(std::move(driver), config->ordinal);
  if (!made) return made.error();
  std::unique_ptr<CudaContext> context = *std::move(made);
  const InContext in(*context);  // ends before the context does
  if (!in.entered().ok()) return Status(Code::kUnavailable, in.entered().text);
  Result<std::unique_ptr<CudaMemory>> memory = CudaMemory::reserve(*context, config->memory_bytes, config->allocations);
  if (!memory) return memory.error();
  Result<std::unique_ptr<PinnedMemory>> staging =
      PinnedMemory::allocate(context->driver(), context->handle(), config->staging_bytes, "staging_bytes");
  if (!staging) return staging.error();
  ExecutorLimits all = limits;
  if (const Outcome known = context->priorities(all.priorities); !known.ok()) {
    return Status(Code::kUnavailable, known.text);
  }
  return std::unique_ptr<CudaExecutor>(
      new CudaExecutor(std::move(context), *std::move(memory), *std::move(staging), std::move(config), all));
}

CudaExecutor::~CudaExecutor() {
  const InContext in(*context_);
  // What is lost, or cannot be waited for, is freed with the context.
  const bool is_over =
      in.entered().ok() && context_->check(context_->api().context_synchronize(), "cuCtxSynchronize").ok();
  if (!is_over) {
    context_->abandon();
    staging_->leave_to_context();
  }
  streams_.clear();
  graphs_.reset();
  functions_.reset();
  memory_.reset();
  staging_.reset();
}

CudaStream& CudaExecutor::stream_of(std::uint32_t channel) {
  return streams_.try_emplace(channel, *context_, *staging_).first->second;
}

void CudaExecutor::prioritize(std::uint32_t channel, std::int32_t priority) {
  stream_of(channel).set_priority(priority);
}

void CudaExecutor::begin(const Place& place) noexcept {
  if (on_ == nullptr || channel_ != place.channel) {
    on_ = &stream_of(place.channel);
    channel_ = place.channel;
  }
  on_->begin(place.sequence);
}

Outcome CudaExecutor::ready(const InContext& in) { return in.entered().ok() ? on_->open() : in.entered(); }

Outcome CudaExecutor::put(Outcome outcome) {
  if (outcome.ok()) on_->worked();
  return outcome;
}

// ---- memory --------------------------------------------------------------------------------------------------------

Outcome CudaExecutor::allocate(Handle handle, std::uint64_t bytes) {
  const InContext in(*context_);
  if (!in.entered().ok()) return in.entered();
  CudaMemory::Given given;
  Outcome outcome = memory_->allocate(handle, bytes, given);
  return outcome.ok() ? clear(handle, given, bytes) : outcome;
}

Outcome CudaExecutor::allocate_at(Handle handle, std::uint64_t address, std::uint64_t bytes) {
  if (range_bytes_ == 0) return Executor::allocate_at(handle, address, bytes);
  const InContext in(*context_);
  if (!in.entered().ok()) return in.entered();
  CudaMemory::Given given;
  Outcome outcome = memory_->allocate_at(handle, address, bytes, range_bytes_, given);
  return outcome.ok() ? clear(handle, given, bytes) : outcome;
}

/// The session's memory is one piece: its place is the range's.
Result<command::AddressRange> CudaExecutor::reserve(std::uint64_t bytes, std::uint64_t wish) {
  if (bytes == 0 || bytes > config_->memory_bytes) {
    return Status(Code::kResourceExhausted,
                  fmt::format("a range of {} bytes; a session has 1 to {}", bytes, config_->memory_bytes));
  }
  if (config_->own_process && CudaPiece::maps(*context_->driver(), config_->ordinal)) {
    const InContext in(*context_);
    if (!in.entered().ok()) return Status(Code::kUnavailable, in.entered().text);
    if (Status moved = memory_->move(*context_, config_->ordinal, bytes, wish); !moved.ok()) return moved;
  }
  range_bytes_ = CudaMemory::rounded(bytes);
  return command::AddressRange{memory_->base(), range_bytes_, CudaMemory::kAlignment};
}

Outcome CudaExecutor::clear(Handle handle, const CudaMemory::Given& given, std::uint64_t bytes) {
  if (!given.is_used) return {};
  Outcome outcome = on_->open();
  // Who had it may still be at it, in any channel.
  for (auto& [channel, other] : streams_) {
    if (outcome.ok()) outcome = on_->wait_for(other);
  }
  if (outcome.ok()) outcome = put(context_->api().fill(given.at, 0, bytes, on_->handle()), "cuMemsetD8Async");
  if (!outcome.ok()) (void)memory_->release(handle);
  return outcome;
}

Outcome CudaExecutor::release(Handle handle) {
  Outcome outcome = context_->lost().ok() ? memory_->release(handle) : context_->lost();
  if (outcome.ok()) graphs_->released(handle);
  return outcome;
}

Outcome CudaExecutor::fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) {
  const InContext in(*context_);
  Outcome outcome = ready(in);
  const CuAddress at = outcome.ok() ? memory_->find(to, offset, bytes, outcome) : 0;
  if (at == 0 || bytes == 0) return outcome;
  return put(context_->api().fill(at, value, bytes, on_->handle()), "cuMemsetD8Async");
}

std::vector<std::span<std::byte>> CudaExecutor::room(std::size_t bytes, Outcome& why) {
  const std::size_t share = staging_->size() / 2;
  if (bytes > share) {
    why = refuse(command::kInvalidValue, fmt::format("one command copies at most {} bytes on this device, not {}; "
                                                     "staging_bytes sets that",
                                                     share, bytes));
    return {};
  }
  std::vector<std::span<std::byte>> pieces;
  if (on_->held_bytes() + bytes <= share) pieces = staging_->take(bytes);
  if (pieces.empty()) {
    why = refuse(command::kNotReady, "copies that are under way hold the staging memory");
    on_->put_off();
  }
  return pieces;
}

Outcome CudaExecutor::copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from) {
  const InContext in(*context_);
  Outcome outcome = ready(in);
  CuAddress at = outcome.ok() ? memory_->find(to, offset, from.size(), outcome) : 0;
  if (at == 0 || from.empty()) return outcome;
  for (const std::span<std::byte> piece : room(from.size(), outcome)) {
    if (outcome.ok()) {
      std::memcpy(piece.data(), from.data(), piece.size());
      outcome = put(context_->api().copy_to_device(at, piece.data(), piece.size(), on_->handle()), "cuMemcpyHtoDAsync");
      at += piece.size();
      from = from.subspan(piece.size());
      if (outcome.ok()) {
        on_->hold(piece, {});
        continue;
      }
    }
    staging_->give(piece);
  }
  return outcome;
}

Outcome CudaExecutor::copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset) {
  const InContext in(*context_);
  Outcome outcome = ready(in);
  CuAddress at = outcome.ok() ? memory_->find(from, offset, to.size(), outcome) : 0;
  if (at == 0 || to.empty()) return outcome;
  for (const std::span<std::byte> piece : room(to.size(), outcome)) {
    if (outcome.ok()) {
      outcome = put(context_->api().copy_to_host(piece.data(), at, piece.size(), on_->handle()), "cuMemcpyDtoHAsync");
      at += piece.size();
      if (outcome.ok()) {
        on_->hold(piece, to.first(piece.size()));
        to = to.subspan(piece.size());
        continue;
      }
    }
    staging_->give(piece);
  }
  if (!outcome.ok() && outcome.result != command::kNotReady) on_->let_go_of_targets();
  return outcome;
}

Outcome CudaExecutor::copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                                  std::uint64_t bytes) {
  const InContext in(*context_);
  Outcome outcome = ready(in);
  const CuAddress target = outcome.ok() ? memory_->find(to, to_offset, bytes, outcome) : 0;
  const CuAddress source = target != 0 ? memory_->find(from, from_offset, bytes, outcome) : 0;
  if (source == 0 || bytes == 0 || source == target) return outcome;
  if (std::max(source, target) - std::min(source, target) < bytes) return copy_overlapping(target, source, bytes);
  return put(context_->api().copy_within(target, source, bytes, on_->handle()), "cuMemcpyDtoDAsync");
}

/// Piece by piece through other memory, from the end that is written into the source last.
Outcome CudaExecutor::copy_overlapping(CuAddress to, CuAddress from, std::uint64_t bytes) {
  CuAddress between = 0;
  Outcome outcome = on_->scratch(between);
  const std::uint64_t pieces = (bytes + CudaStream::kScratch - 1) / CudaStream::kScratch;
  for (std::uint64_t i = 0; i < pieces && outcome.ok(); ++i) {
    const std::uint64_t at = (to < from ? i : pieces - 1 - i) * CudaStream::kScratch;
    const std::uint64_t piece = std::min<std::uint64_t>(CudaStream::kScratch, bytes - at);
    outcome = put(context_->api().copy_within(between, from + at, piece, on_->handle()), "cuMemcpyDtoDAsync");
    if (!outcome.ok()) break;
    outcome = put(context_->api().copy_within(to + at, between, piece, on_->handle()), "cuMemcpyDtoDAsync");
  }
  return outcome;
}

// ---- functions -----------------------------------------------------------------------------------------------------

Outcome CudaExecutor::load(Handle function, std::string_view name) {
  const InContext in(*context_);
  return in.entered().ok() ? functions_->load(function, name) : in.entered();
}

Outcome CudaExecutor::load_module(Handle module, std::span<const std::byte> image) {
  const InContext in(*context_);
  return in.entered().ok() ? functions_->load_module(module, image) : in.entered();
}

Outcome CudaExecutor::load_from(Handle function, Handle module, std::string_view name,
                                std::span<const command::Parameter> parameters) {
  const InContext in(*context_);
  return in.entered().ok() ? functions_->load(function, module, name, parameters) : in.entered();
}

Outcome CudaExecutor::launch(const Launch& launch, std::span<const std::byte> parameters) {
  const InContext in(*context_);
  Outcome outcome = ready(in);
  if (!outcome.ok()) return outcome;
  const CudaFunctions::Function* const function = functions_->find(launch.function);
  if (function == nullptr) return CudaFunctions::unknown(launch.function);
  return put(functions_->launch(*function, launch, parameters, *memory_, on_->handle()));
}

Outcome CudaExecutor::make_graph(Handle graph, std::span<const command::GraphCommand> commands, std::uint64_t bytes) {
  if (!limits_.graphs) return Executor::make_graph(graph, commands, bytes);
  const InContext in(*context_);
  return in.entered().ok() ? graphs_->make(graph, commands) : in.entered();
}

Outcome CudaExecutor::launch_graph(Handle graph) {
  if (!limits_.graphs) return Executor::launch_graph(graph);
  const InContext in(*context_);
  Outcome outcome = ready(in);
  return outcome.ok() ? put(graphs_->launch(graph, on_->handle())) : outcome;
}

Outcome CudaExecutor::release_graph(Handle graph) {
  if (!limits_.graphs) return Executor::release_graph(graph);
  const InContext in(*context_);
  return in.entered().ok() ? graphs_->release(graph) : in.entered();
}

Outcome CudaExecutor::update_graph(Handle graph, std::uint32_t number, const Launch& launch,
                                   std::span<const std::byte> parameters) {
  if (!limits_.graphs) return Executor::update_graph(graph, number, launch, parameters);
  const InContext in(*context_);
  return in.entered().ok() ? graphs_->update(graph, number, launch, parameters) : in.entered();
}

Outcome CudaExecutor::user(std::uint16_t opcode, std::span<const std::byte> bytes) {
  return refuse(command::kNotSupported,
                fmt::format("the CUDA executor has no use for command {} of {} bytes", opcode, bytes.size()));
}

// ---- streams -------------------------------------------------------------------------------------------------------

Outcome CudaExecutor::fence(const Place& mark) {
  const InContext in(*context_);
  Outcome outcome = ready(in);
  const auto other = streams_.find(mark.channel);
  if (!outcome.ok() || other == streams_.end()) return outcome;
  return on_->wait_for(other->second, mark.sequence);
}

Progress CudaExecutor::progress(std::uint32_t channel) {
  const auto found = streams_.find(channel);
  if (found == streams_.end()) return {0, context_->lost()};
  CudaStream& stream = found->second;
  if (!context_->lost().ok()) return {stream.complete(), context_->lost()};
  if (stream.is_idle()) {
    (void)stream.poll();  // what puts nothing on a stream is complete behind it
    return {stream.complete(), {}};
  }
  const InContext in(*context_);
  Outcome looked = in.entered().ok() ? stream.poll() : in.entered();
  return {stream.complete(), std::move(looked)};
}

}  // namespace fairlead::gpu
