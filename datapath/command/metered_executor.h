// A session's executor, and what its tenant pays for: memory up to the tenant's limit, and bytes that are copied.
//
// Owns the executor. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>

#include "datapath/command/meter.h"
#include "fairlead/command_service.h"

namespace fairlead::datapath::command {

class MeteredExecutor final : public fairlead::command::Executor {
 public:
  using Outcome = fairlead::command::Outcome;
  using Handle = fairlead::command::Handle;

  /// `own`: where the session's memory is counted as well; null: nowhere.
  MeteredExecutor(std::unique_ptr<fairlead::command::Executor> of, std::shared_ptr<TenantMeter> tenant,
                  std::shared_ptr<SessionMeter> own = nullptr)
      : of_(std::move(of)), tenant_(std::move(tenant)), own_(std::move(own)) {}
  ~MeteredExecutor() override;

  [[nodiscard]] fairlead::command::ExecutorLimits limits() const override;
  Outcome allocate(Handle handle, std::uint64_t bytes) override;
  Outcome release(Handle handle) override;
  Outcome fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) override {
    return of_->fill(to, offset, bytes, value);
  }
  Outcome copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from) override;
  Outcome copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset) override;
  Outcome copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                      std::uint64_t bytes) override {
    return of_->copy_within(to, to_offset, from, from_offset, bytes);
  }
  Outcome load(Handle function, std::string_view name) override { return of_->load(function, name); }
  Outcome launch(const fairlead::command::Launch& launch, std::span<const std::byte> parameters) override {
    return of_->launch(launch, parameters);
  }
  Outcome user(std::uint16_t opcode, std::span<const std::byte> bytes) override { return of_->user(opcode, bytes); }
  [[nodiscard]] bool is_short(Handle function) const noexcept override { return of_->is_short(function); }
  Outcome load_module(Handle module, std::span<const std::byte> image) override {
    return of_->load_module(module, image);
  }
  Outcome load_from(Handle function, Handle module, std::string_view name,
                    std::span<const fairlead::command::Parameter> parameters) override {
    return of_->load_from(function, module, name, parameters);
  }
  [[nodiscard]] bool is_asynchronous() const noexcept override { return of_->is_asynchronous(); }
  void begin(const fairlead::command::Place& place) noexcept override { of_->begin(place); }
  Outcome fence(const fairlead::command::Place& mark) override { return of_->fence(mark); }
  fairlead::command::Progress progress(std::uint32_t channel) override { return of_->progress(channel); }

 private:
  void count(std::uint64_t bytes) noexcept {
    if (own_ != nullptr) own_->memory.fetch_add(bytes, std::memory_order_relaxed);
  }
  void give_back(std::uint64_t bytes) noexcept {
    if (own_ != nullptr) own_->memory.fetch_sub(bytes, std::memory_order_relaxed);
    tenant_->give_back(bytes);
  }

  std::unique_ptr<fairlead::command::Executor> of_;
  const std::shared_ptr<TenantMeter> tenant_;
  const std::shared_ptr<SessionMeter> own_;
  std::unordered_map<std::uint64_t, std::uint64_t> sizes_;  // of allocations
};

}  // namespace fairlead::datapath::command
