// An executor that passes all on to another: a base for those that add to it, as a meter does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "fairlead/command_service.h"

namespace fairlead::inline v0::command {

/// Owns the other. Who derives from it overrides what it changes, and reaches the other by inner().
class ExecutorAround : public Executor {
 public:
  explicit ExecutorAround(std::unique_ptr<Executor> inner) noexcept : inner_(std::move(inner)) {}

  [[nodiscard]] ExecutorLimits limits() const override { return inner_->limits(); }
  Outcome allocate(Handle handle, std::uint64_t bytes) override { return inner_->allocate(handle, bytes); }
  Outcome release(Handle handle) override { return inner_->release(handle); }
  Outcome fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) override {
    return inner_->fill(to, offset, bytes, value);
  }
  Outcome copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from) override {
    return inner_->copy_in(to, offset, from);
  }
  Outcome copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset) override {
    return inner_->copy_out(to, from, offset);
  }
  Outcome copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                      std::uint64_t bytes) override {
    return inner_->copy_within(to, to_offset, from, from_offset, bytes);
  }
  Outcome load(Handle function, std::string_view name) override { return inner_->load(function, name); }
  Outcome launch(const Launch& launch, std::span<const std::byte> parameters) override {
    return inner_->launch(launch, parameters);
  }
  Outcome user(std::uint16_t opcode, std::span<const std::byte> bytes) override { return inner_->user(opcode, bytes); }
  [[nodiscard]] bool is_short(Handle function) const noexcept override { return inner_->is_short(function); }
  Outcome load_module(Handle module, std::span<const std::byte> image) override {
    return inner_->load_module(module, image);
  }
  Outcome load_from(Handle function, Handle module, std::string_view name,
                    std::span<const Parameter> parameters) override {
    return inner_->load_from(function, module, name, parameters);
  }
  Outcome make_graph(Handle graph, std::span<const GraphCommand> commands, std::uint64_t bytes) override {
    return inner_->make_graph(graph, commands, bytes);
  }
  Outcome launch_graph(Handle graph) override { return inner_->launch_graph(graph); }
  Outcome release_graph(Handle graph) override { return inner_->release_graph(graph); }
  Outcome update_graph(Handle graph, std::uint32_t number, const Launch& launch,
                       std::span<const std::byte> parameters) override {
    return inner_->update_graph(graph, number, launch, parameters);
  }
  Result<AddressRange> reserve(std::uint64_t bytes, std::uint64_t wish) override {
    return inner_->reserve(bytes, wish);
  }
  Outcome allocate_at(Handle handle, std::uint64_t address, std::uint64_t bytes) override {
    return inner_->allocate_at(handle, address, bytes);
  }
  void prioritize(std::uint32_t channel, std::int32_t priority) override { inner_->prioritize(channel, priority); }
  [[nodiscard]] bool is_asynchronous() const noexcept override { return inner_->is_asynchronous(); }
  void begin(const Place& place) noexcept override { inner_->begin(place); }
  Outcome fence(const Place& mark) override { return inner_->fence(mark); }
  Progress progress(std::uint32_t channel) override { return inner_->progress(channel); }

 protected:
  [[nodiscard]] Executor& inner() const noexcept { return *inner_; }
  /// Ends the other now; nothing is called afterwards.
  void end_inner() noexcept { inner_.reset(); }

 private:
  std::unique_ptr<Executor> inner_;
};

}  // namespace fairlead::inline v0::command
