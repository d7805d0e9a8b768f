// The engine behind fairlead::Engine: its lanes and what they share, its memory, the listener and the resolver.
//
// What moves bytes is in a lane (engine_lane.h). Threads: any, unless something is marked; the rest is immutable after
// create() or locked. Lives as long as any handle (Engine, Peer, Transfer, Memory) needs it; shut_down() makes it
// inert.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "datapath/engine/engine_cache.h"
#include "datapath/engine/engine_commons.h"
#include "datapath/engine/engine_lane.h"
#include "datapath/engine/listener.h"
#include "datapath/engine/live_engines.h"
#include "datapath/engine/resolver.h"
#include "datapath/engine/sinks.h"
#include "datapath/flow/device_staging.h"
#include "datapath/region/regions.h"
#include "fairlead/engine.h"

namespace fairlead::memreg {
class Pool;
}  // namespace fairlead::memreg

namespace fairlead::datapath {

class EngineImpl final : public std::enable_shared_from_this<EngineImpl> {
 public:
  static Result<std::shared_ptr<EngineImpl>> create(EngineConfig config);
  ~EngineImpl();
  /// Closes every session, stops the lanes, deregisters everything. Idempotent.
  void shut_down();

  [[nodiscard]] const EngineConfig& config() const noexcept { return commons_.config; }
  [[nodiscard]] const EngineCommons& commons() const noexcept { return commons_; }
  [[nodiscard]] RegionTable& regions() noexcept { return *commons_.regions; }
  /// Whether this process got the engine by fork(): then nothing else is to be called.
  [[nodiscard]] const LiveEngine& fork() const noexcept { return fork_; }
  [[nodiscard]] const std::string& listen_address() const noexcept { return listener_.address(); }

  // engine_pool.cc
  Result<Memory> allocate(std::size_t bytes, const AllocateOptions& options);
  void trim_pool();

  // engine_memory.cc
  Result<Memory> register_memory(std::span<std::byte> bytes, Access access, std::function<void()> release);
  Result<std::vector<Memory>> register_memory(std::span<const std::span<std::byte>> ranges, Access access);
  Result<Memory> map_file(const std::string& path, Access access);
  // engine_cuda.cc
  Result<Memory> register_memory(std::span<std::byte> bytes, const CudaOptions& options);
  Status publish(std::string_view name, const Memory& memory, Access access, std::optional<TensorSpec> tensor,
                 std::vector<std::string> audience);
  Status unpublish(std::string_view name);
  Result<std::string> export_memory(const Memory& memory, Access access, std::vector<std::string> audience);
  Status unexport(std::string_view capability);

  /// The application's own, which it never registered.
  [[nodiscard]] EngineCache& cache() noexcept { return cache_; }

  // engine_principals.cc
  Status reload_keys();

  Result<std::shared_ptr<SessionImpl>> connect(std::string_view host_port);
  [[nodiscard]] std::vector<DeviceInfo> devices(std::string_view peer) const;
  [[nodiscard]] EngineStats stats() const;

  // engine_waits.cc: what comes in any lane.
  [[nodiscard]] Sinks& sinks() noexcept { return sinks_; }
  /// Advances those lanes once that nobody else drives. Whether anything happened.
  bool poll_once() noexcept;
  /// Until `done`, which reads only what is atomic, or the deadline; returns done().
  bool wait_until(const std::function<bool()>& done, Clock::time_point deadline);

 private:
  explicit EngineImpl(EngineConfig config);
  /// Those of its keys file.
  static Result<Principals> known_by(const EngineConfig& config);
  Status open(Principals known);
  std::shared_ptr<memreg::Pool> make_pool();
  [[nodiscard]] PoolStats pool_stats() const;
  [[nodiscard]] EngineLane& least_loaded() noexcept;
  /// ok: peers of that audience may be given it; `name`: what it is to be, in errors.
  [[nodiscard]] Status check_given(std::string_view name, const Memory& memory,
                                   const std::vector<std::string>& audience);
  void tell_withdrawn(std::uint64_t id);
  // engine_cuda.cc
  Result<Memory> register_device_memory(const std::shared_ptr<gpu::Driver>& driver, const gpu::MemoryFacts& facts,
                                        std::span<std::byte> bytes, const CudaOptions& options);
  Status begin_staging(const std::shared_ptr<gpu::Driver>& driver, int ordinal);
  void add_cuda_to(EngineStats& stats) const;
  void settle_copies();
  void end_staging();
  bool drive_all_until(const std::function<bool()>& done, Clock::time_point deadline);
  void sleep_for_all(Clock::time_point deadline);

  EngineCommons commons_;
  std::shared_ptr<memreg::Pool> pool_;
  EngineCache cache_;
  std::mutex shutting_down_, reloading_keys_;
  mutable std::mutex staging_mutex_;  // guards the next, one for each lane once memory of a GPU is registered
  std::vector<std::unique_ptr<DeviceStaging>> staging_;

  Listener listener_;  // the first lane's, once that has started
  std::vector<std::unique_ptr<EngineLane>> lanes_;
  std::atomic<std::size_t> turn_{0};
  Sinks sinks_;
  Resolver resolver_;
  LiveEngine fork_{*this};  // the last: all else is there before it is known
};

}  // namespace fairlead::datapath
