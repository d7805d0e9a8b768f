// The simulator's transport (tests/simulation) as one more under test: what the sessions' simulator believes of
// transports is what the others are held to.
//
// Its clock is virtual and goes on with each poll. The simulator has one thread, the suite has several: a lock per
// world.
#include <memory>
#include <mutex>
#include <utility>

#include "tests/conformance/transport_fixture.h"
#include "tests/simulation/fake_transport.h"

namespace fairlead::conformance {
namespace {

using datapath::MemoryDescriptor;
using simulation::FakePath;
using simulation::FakeTransport;
using simulation::microseconds;

struct SharedWorld {
  std::recursive_mutex mutex;  // callbacks post
  simulation::World world{1};
  simulation::Wire wire{world};
};
using Lock = std::lock_guard<std::recursive_mutex>;

/// That of the ends that live: those of one test meet.
std::shared_ptr<SharedWorld> shared_world() {
  static std::weak_ptr<SharedWorld> alive;
  std::shared_ptr<SharedWorld> world = alive.lock();
  if (world == nullptr) alive = world = std::make_shared<SharedWorld>();
  return world;
}

simulation::Habits plain_habits() {
  simulation::Habits habits;
  habits.can = {.write_notifies = true,
                .grants_are_entries = true,
                .max_message = 4096,
                .max_segments = 4,
                .max_outstanding = 64};
  return habits;
}

class LockedPath final : public FakePath {
 public:
  LockedPath(std::shared_ptr<SharedWorld> world, FakeTransport& transport, const PathConfig& config)
      : FakePath(transport, config), world_(std::move(world)) {}
  /// The other end learns of it, as by a queue pair's retries or a reset.
  ~LockedPath() override {
    const Lock lock(world_->mutex);
    if (FakePath* other = peer()) other->cut(microseconds(200));
    leave();
  }
  Status connect(std::string_view peer) override {
    const Lock lock(world_->mutex);
    return FakePath::connect(peer);
  }
  std::size_t post(std::span<const WorkRequest> requests) noexcept override {
    const Lock lock(world_->mutex);
    return FakePath::post(requests);
  }
  void close() noexcept override {
    const Lock lock(world_->mutex);
    if (FakePath* other = peer()) other->cut(microseconds(200));
    FakePath::close();
  }
  bool drained() const noexcept override {
    const Lock lock(world_->mutex);
    return FakePath::drained();
  }

 private:
  const std::shared_ptr<SharedWorld> world_;
};

class LockedTransport final : public FakeTransport {
 public:
  explicit LockedTransport(std::shared_ptr<SharedWorld> world)
      : FakeTransport(world->wire, plain_habits()), world_(std::move(world)) {}

  Result<Registration> register_memory(const MemoryDescriptor& memory) override {
    const Lock lock(world_->mutex);
    return FakeTransport::register_memory(memory);
  }
  void deregister(const Registration& registration) noexcept override {
    const Lock lock(world_->mutex);
    FakeTransport::deregister(registration);
  }
  Result<Grant> grant(const MemoryDescriptor& part) override {
    const Lock lock(world_->mutex);
    return FakeTransport::grant(part);
  }
  void revoke(const Grant& grant) noexcept override {
    const Lock lock(world_->mutex);
    FakeTransport::revoke(grant);
  }
  Result<std::unique_ptr<Endpoint>> open_endpoint() override {
    return std::unique_ptr<Endpoint>(std::make_unique<LockedEndpoint>(*this));
  }

 private:
  class LockedEndpoint final : public Endpoint {
   public:
    explicit LockedEndpoint(LockedTransport& device) : device_(device) {}
    Result<std::unique_ptr<Path>> open_path(const PathConfig& config) override {
      const Lock lock(device_.world_->mutex);
      return std::unique_ptr<Path>(std::make_unique<LockedPath>(device_.world_, device_, config));
    }
    bool poll() noexcept override {
      const Lock lock(device_.world_->mutex);
      device_.world_->world.advance(microseconds(5));
      return device_.poll();
    }
    bool arm() noexcept override { return false; }  // time passes only while it is polled
    [[nodiscard]] int wait_fd() const noexcept override { return -1; }
    [[nodiscard]] int wait_timeout_us() const noexcept override { return 0; }

   private:
    LockedTransport& device_;
  };

  const std::shared_ptr<SharedWorld> world_;
};

}  // namespace

TransportCase fake_case() {
  return {.name = "fake",
          .open = [] { return Result<std::unique_ptr<Device>>(std::make_unique<LockedTransport>(shared_world())); },
          .simulated = true};
}

}  // namespace fairlead::conformance
