// A session's executor, and what its tenant pays for: memory up to the tenant's limit, and bytes that are copied.
//
// Owns the executor. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

#include "datapath/command/meter.h"
#include "fairlead/command_service.h"
#include "fairlead/executor_around.h"

namespace fairlead::datapath::command {

class MeteredExecutor final : public fairlead::command::ExecutorAround {
 public:
  using Outcome = fairlead::command::Outcome;
  using Handle = fairlead::command::Handle;

  /// Where it counts: on which device, and there in which slot the session's memory.
  struct Where {
    std::uint32_t device = 0;
    std::size_t slot = DeviceMeter::kThreads;
  };
  /// Around one that `factory` makes for the peer.
  static Result<std::unique_ptr<fairlead::command::Executor>> make(const fairlead::command::ExecutorFactory& factory,
                                                                   const Peer& peer,
                                                                   std::shared_ptr<TenantMeter> tenant, Where where);
  MeteredExecutor(std::unique_ptr<fairlead::command::Executor> of, std::shared_ptr<TenantMeter> tenant, Where where)
      : ExecutorAround(std::move(of)),
        tenant_(std::move(tenant)),
        device_(tenant_->devices[where.device]),
        slot_(where.slot) {}
  ~MeteredExecutor() override;

  [[nodiscard]] fairlead::command::ExecutorLimits limits() const override;
  Outcome allocate(Handle handle, std::uint64_t bytes) override;
  Outcome release(Handle handle) override;
  /// All of it is the tenant's from then on, and what is placed in it is not counted again.
  Result<fairlead::command::AddressRange> reserve(std::uint64_t bytes, std::uint64_t wish) override;
  /// Its bytes are memory that the tenant has.
  Outcome make_graph(Handle graph, std::span<const fairlead::command::GraphCommand> commands,
                     std::uint64_t bytes) override;
  Outcome release_graph(Handle graph) override;
  Outcome copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from) override;
  Outcome copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset) override;

 private:
  using Sizes = std::unordered_map<std::uint64_t, std::uint64_t>;  // by handle
  [[nodiscard]] Outcome take(std::uint64_t bytes);
  Outcome taken(Outcome outcome, Sizes& sizes, Handle handle, std::uint64_t bytes);
  Outcome given_back(Outcome outcome, Sizes& sizes, Handle handle);

  const std::shared_ptr<TenantMeter> tenant_;
  DeviceMeter& device_;  // of it
  const std::size_t slot_;
  Sizes allocations_, graphs_;
  std::uint64_t range_bytes_ = 0;
};

}  // namespace fairlead::datapath::command
