// A service's engine, the thread that takes the engine's events, and the public faces.
#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/system/no_thread.h"
#include "base/system/yielding_look.h"
#include "datapath/command/bodies.h"
#include "datapath/command/served_peers.h"
#include "fairlead/command_service.h"
#include "fairlead/engine.h"
#include "fairlead/log.h"

namespace fairlead::datapath::command {

using fairlead::command::ServiceConfig;

namespace {

constexpr std::chrono::milliseconds kLook{50};       // how often the thread looks whether it is to stop
constexpr std::chrono::microseconds kSpin{50};       // how long it looks for the next message before it sleeps
constexpr std::chrono::microseconds kMoment{1};      // how long a look is while nobody wants the core
constexpr std::chrono::microseconds kHeldLook{200};  // the same while a session waits for its client
constexpr unsigned kMostTaken = 64;                  // messages in a row, while there is more to run

/// Of an engine's pool.
class EngineWindows final : public Windows {
 public:
  EngineWindows(Engine& engine, std::uint64_t bytes) noexcept : engine_(engine), bytes_(bytes) {}
  Result<Window> open(const std::string& principal, bool shared) override {
    Result<Memory> memory = engine_.allocate(bytes_, {.shared = shared});
    if (!memory) return memory.error();
    std::vector<std::string> audience;
    if (!principal.empty()) audience.push_back(principal);
    Result<std::string> capability = engine_.export_(*memory, Access::kRemoteReadWrite, std::move(audience));
    if (!capability) return capability.error();
    return Window{*std::move(memory), *std::move(capability)};
  }
  void close(const Window& window) noexcept override { (void)engine_.unexport(window.capability); }

 private:
  Engine& engine_;
  const std::uint64_t bytes_;
};

/// The service's engine, and the thread that takes the engine's events. Threads: start and stop by the owner; the
/// address from any; all else on the service's thread.
class ServiceImpl final : public fairlead::command::ServiceBody {
 public:
  ServiceImpl(Engine engine, const ServiceConfig& config)
      : engine_(std::move(engine)),
        where_(config.where),
        windows_(engine_, config.window_bytes),
        peers_(config, engine_.config().max_message_bytes, &std::chrono::steady_clock::now,
               config.window_bytes != 0 ? &windows_ : nullptr,
               [this](const std::string& principal) { return engine_.knows(principal); }) {}
  ~ServiceImpl() override { stop(); }

  Status start();
  void stop() noexcept;
  [[nodiscard]] std::string listen_address() const { return engine_.listen_address(); }
  [[nodiscard]] Engine& engine() noexcept { return engine_; }
  [[nodiscard]] ServedPeers& peers() noexcept { return peers_; }
  /// Says so of those who can never come: nobody has their key.
  void look_at(const std::vector<fairlead::command::Tenant>& tenants) const;

 private:
  void thread_main();

  Engine engine_;
  const ServiceConfig::Where where_;
  EngineWindows windows_;
  ServedPeers peers_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace

void ServiceImpl::look_at(const std::vector<fairlead::command::Tenant>& tenants) const {
  for (const fairlead::command::Tenant& each : tenants) {
    if (each.name == "*" || engine_.knows(each.name)) continue;
    log(LogLevel::kWarning, fmt::format("tenant '{0}' has no line in the keys file ({1}), so nobody can be it; add one "
                                        "(`fairlead key {0}`), or take the tenant out",
                                        each.name, engine_.config().keys_file));
  }
}

Status ServiceImpl::start() {
  try {
    thread_ = std::thread([this] { thread_main(); });
  } catch (const std::system_error& error) {
    return no_thread("the service", error);
  }
  ::pthread_setname_np(thread_.native_handle(), "fairlead-serve");
  return {};
}

void ServiceImpl::stop() noexcept {
  stopping_.store(true);
  engine_.shutdown();  // and with it all waits
  if (thread_.joinable()) thread_.join();
  peers_.stop();
}

void ServiceImpl::thread_main() {
  const bool in_turn = where_ == ServiceConfig::Where::kInTurn;
  using Left = ServedPeers::Left;
  Left left = Left::kNothing;
  std::chrono::steady_clock::time_point look_until{};
  unsigned taken = 0;  // since something ran
  YieldingLook look;
  while (!stopping_.load(std::memory_order_relaxed)) {
    while (engine_.accept()) {
    }
    const bool looks = left == Left::kMore || std::chrono::steady_clock::now() < look_until;
    const bool alone = left == Left::kNothing && look.is_alone();
    const auto patience = looks                 ? std::chrono::nanoseconds(alone ? kMoment : kMoment.zero())
                          : left == Left::kHeld ? std::chrono::nanoseconds(kHeldLook)
                                                : std::chrono::nanoseconds(kLook);
    auto [peer, event] = engine_.next_event(patience);
    const bool came = event.kind != Event::Kind::kNone;
    if (came) {
      peers_.handle(peer, std::move(event));
      // What has come may go before what is left.
      if (in_turn && left == Left::kMore && ++taken < kMostTaken) continue;
    } else if (left == Left::kNothing && looks) {
      look.missed();  // the client may share its core
    }
    taken = 0;
    if (in_turn && left != Left::kNothing) {
      left = peers_.run_all();
    } else if (in_turn && came) {
      left = peers_.run_latest();
    }
    if (came) look_until = std::chrono::steady_clock::now() + kSpin;
    peers_.drop_ended();
  }
}

}  // namespace fairlead::datapath::command

namespace fairlead::inline v0::command {

using datapath::command::ServiceImpl;

namespace {
ServiceImpl* of(const std::unique_ptr<ServiceBody>& body) noexcept { return static_cast<ServiceImpl*>(body.get()); }

Status check_devices(const ServiceConfig& config) {
  const auto wrong = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  if (config.devices.empty()) {
    if (config.executors || !config.program.empty()) return {};
    return wrong("executors is empty: give what makes a session's executor, as host_executors()");
  }
  constexpr std::size_t kMost = datapath::command::kMaxDevices;
  if (config.executors) return wrong("executors is of a service with one device: leave it out where devices is given");
  if (config.devices.size() > kMost) {
    return wrong(fmt::format("there are {} devices, and a service has at most {}", config.devices.size(), kMost));
  }
  for (std::size_t i = 0; config.program.empty() && i < config.devices.size(); ++i) {
    if (!config.devices[i].executors) {
      return wrong(
          fmt::format("device {} ('{}') has no executors: give what makes a session's", i, config.devices[i].name));
    }
  }
  return {};
}
}  // namespace

Result<Service> Service::start(Engine engine, ServiceConfig config) {
  const auto wrong = [](std::string what) { return Status(Code::kInvalidArgument, std::move(what)); };
  if (!config.program.empty() && config.where == ServiceConfig::Where::kInTurn) {
    return wrong("a session in a process of its own has a thread that waits for it: program takes Where::kOwnThread");
  }
  if (Status fine = check_devices(config); !fine.ok()) return fine;
  if (engine.listen_address().empty()) return wrong("the engine listens nowhere: set EngineConfig::listen");
  constexpr std::size_t kLeastMessage = sizeof(datapath::command::MessageHeader) + datapath::command::kMaxBatch;
  if (engine.config().max_message_bytes < kLeastMessage) {
    return wrong(fmt::format("the engine's max_message_bytes is {}, and must be at least {} for what clients may send",
                             engine.config().max_message_bytes, kLeastMessage));
  }
  if (config.channels == 0 || config.channels > 4096) {
    return wrong(fmt::format("channels is {}, and must be 1 to 4096", config.channels));
  }
  if (config.credits < 64 || config.credits > 65536) {
    return wrong(fmt::format("credits is {}, and must be 64 to 65536", config.credits));
  }
  if (config.payload_credit < 4096 || config.held_results < config.payload_credit) {
    return wrong(fmt::format("payload_credit is {} and held_results {}: 4096 <= payload_credit <= held_results",
                             config.payload_credit, config.held_results));
  }
  constexpr std::uint64_t kBeside = datapath::command::kMaxPayload;  // the piece that goes beyond it, and replies
  const std::uint64_t posted = engine.config().max_posted_bytes;
  if (posted < kBeside || config.held_results > posted - kBeside) {
    return wrong(
        fmt::format("held_results is {}, and the engine's max_posted_bytes {}: it must be {} more at least, or "
                    "results would be lost; raise the one, or lower the other",
                    config.held_results, posted, kBeside));
  }
  constexpr std::uint64_t kMostWindow = datapath::command::kMostWindow;
  if (config.window_bytes != 0 &&
      (config.window_bytes < datapath::command::kMaxPayload || config.window_bytes > kMostWindow)) {
    return wrong(fmt::format("window_bytes is {}, and must be 0, or {} to {}", config.window_bytes,
                             datapath::command::kMaxPayload, kMostWindow));
  }
  if (Status fine = datapath::command::Tenants::check(config.tenants, config.sharing,
                                                      std::max<std::size_t>(config.devices.size(), 1));
      !fine.ok())
    return fine;
  if (config.sharing != Sharing::kFree && config.where == ServiceConfig::Where::kInTurn) {
    return wrong("who shares a device waits for a turn: sharing takes Where::kOwnThread, or is kFree");
  }
  if (config.keep_away.count() < 0) {
    return wrong(fmt::format("keep_away is {} ms, and must not be below 0", config.keep_away.count()));
  }
  if (config.longest_turn.count() <= 0) {
    return wrong(fmt::format("longest_turn is {} ms, and must be above 0", config.longest_turn.count()));
  }
  auto impl = std::make_unique<ServiceImpl>(std::move(engine), config);
  if (Status started = impl->start(); !started.ok()) return started;
  impl->look_at(config.tenants);
  return Service(std::move(impl));
}

Service::Service(std::unique_ptr<ServiceBody> body) noexcept : body_(std::move(body)) {}
Service::Service(Service&&) noexcept = default;
Service& Service::operator=(Service&&) noexcept = default;
Service::~Service() = default;

std::string Service::listen_address() const { return body_ != nullptr ? of(body_)->listen_address() : std::string(); }
Engine& Service::engine() noexcept { return of(body_)->engine(); }
ServiceStats Service::stats() const { return body_ != nullptr ? of(body_)->peers().stats() : ServiceStats(); }
std::vector<TenantStats> Service::tenants() const {
  return body_ != nullptr ? of(body_)->peers().tenants() : std::vector<TenantStats>();
}
std::vector<std::string> Service::devices() const {
  std::vector<std::string> names;
  if (body_ == nullptr) return names;
  for (const ServedDevice& device : of(body_)->peers().devices()) names.push_back(device.name);
  return names;
}
Status Service::set_tenants(std::vector<Tenant> tenants) {
  if (body_ == nullptr) return {Code::kInvalidArgument, "this service was moved away"};
  Status set = of(body_)->peers().set_tenants(tenants);
  if (set.ok()) of(body_)->look_at(tenants);
  return set;
}
void Service::drain() noexcept {
  if (body_ != nullptr) of(body_)->peers().drain();
}
void Service::stop() noexcept {
  if (body_ != nullptr) of(body_)->stop();
}

}  // namespace fairlead::inline v0::command
