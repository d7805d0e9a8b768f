// The server's side of command channels: an engine whose peers' commands are run by executors.
//
//   auto engine  = fairlead::Engine::create({.listen = ":7471"});
//   auto service = fairlead::command::Service::start(std::move(*engine), {.executors = host_executors({})});
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairlead/command.h"
#include "fairlead/engine.h"
#include "fairlead/export.h"
#include "fairlead/status.h"

namespace fairlead::inline v0::command {

class ServiceBody;  // the library's own

/// How a command ended.
struct Outcome {
  std::int32_t result = 0;  // a CUresult
  Scope scope = Scope::kCommand;
  std::string text;
  [[nodiscard]] bool ok() const noexcept { return result == 0; }
};

/// CUresults that executors and the service give by themselves.
inline constexpr std::int32_t kInvalidValue = 1, kOutOfMemory = 2, kInvalidHandle = 400, kNoSuchName = 500,
                              kNotReady = 600, kIllegalAddress = 700, kLaunchFailed = 719, kNotSupported = 801,
                              kUnknown = 999;

/// Of channels, as CUDA has them for streams: a smaller number goes first.
struct Priorities {
  std::int32_t least = 0, greatest = -5;
  /// The nearest that there is.
  [[nodiscard]] constexpr std::int32_t clamp(std::int32_t priority) const noexcept {
    return priority < greatest ? greatest : priority > least ? least : priority;
  }
};

/// What an executor can do; clients hear of it and check against it.
struct ExecutorLimits {
  std::uint64_t memory_bytes = 0;
  std::uint32_t block_threads = 1024;
  std::uint32_t shared_bytes = 48 << 10;
  Extent grid{2'147'483'647, 65'535, 65'535};
  std::uint32_t modules = 0;  // that a session may load; 0: the device takes none
  bool graphs = false;        // the device takes them
  Priorities priorities{};    // the service sees to them, also where the device knows none
  std::string name{};         // what the device is, in its own words
};

/// One command of a graph; its kind says which members count.
struct GraphCommand {
  enum class Kind : std::uint8_t { kLaunch, kFill, kCopyWithin } kind = Kind::kLaunch;
  Launch launch{};
  std::span<const std::byte> parameters{};
  Handle to{}, from{};
  std::uint64_t to_offset = 0, from_offset = 0, bytes = 0;
  std::uint8_t value = 0;
};

/// A place in a channel of a session.
struct Place {
  std::uint32_t channel = 0;
  std::uint64_t sequence = 0;
};

/// How far a device is in a channel.
struct Progress {
  std::uint64_t complete = 0;  // the last command that it is past: all before it are complete, too
  Outcome lost{};              // not ok: what the session had there is lost, and all that is not complete with it
};

/// Runs one session's commands and owns all that the session has on the device, so its destructor frees that. The
/// service calls it from one thread at a time. Arguments are the client's: an executor checks handles, bounds and
/// parameters, and a command that it refuses has changed nothing. What it has returned from is executed.
///
/// What an executor of a device that works by itself has returned from is not complete; it says is_asynchronous(). It
/// is told where each command stands before the command is run, and asked for progress() in between. Its commands may
/// give kNotReady: nothing was done, and the same command is given again after some progress. They never wait for the
/// device.
class FAIRLEAD_EXPORT Executor {
 public:
  virtual ~Executor() = default;
  [[nodiscard]] virtual ExecutorLimits limits() const = 0;
  virtual Outcome allocate(Handle handle, std::uint64_t bytes) = 0;
  virtual Outcome release(Handle handle) = 0;
  virtual Outcome fill(Handle to, std::uint64_t offset, std::uint64_t bytes, std::uint8_t value) = 0;
  /// The client may write into `from` meanwhile: what is checked is to be read once.
  virtual Outcome copy_in(Handle to, std::uint64_t offset, std::span<const std::byte> from) = 0;
  /// `to` stays until the command is complete, has failed or was lost, or the executor is destroyed.
  virtual Outcome copy_out(std::span<std::byte> to, Handle from, std::uint64_t offset) = 0;
  virtual Outcome copy_within(Handle to, std::uint64_t to_offset, Handle from, std::uint64_t from_offset,
                              std::uint64_t bytes) = 0;
  virtual Outcome load(Handle function, std::string_view name) = 0;
  virtual Outcome launch(const Launch& launch, std::span<const std::byte> parameters) = 0;
  virtual Outcome user(std::uint16_t opcode, std::span<const std::byte> bytes) = 0;
  /// Whether launches of it end within some microseconds: then those before it may wait for it to be answered.
  [[nodiscard]] virtual bool is_short(Handle function) const noexcept = 0;

  // --- of devices that take modules: `image` is followed by a byte 0, and is there until this returns
  virtual Outcome load_module(Handle /*module*/, std::span<const std::byte> /*image*/) { return no_modules(); }
  virtual Outcome load_from(Handle /*function*/, Handle /*module*/, std::string_view /*name*/,
                            std::span<const Parameter> /*parameters*/) {
    return no_modules();
  }

  // --- of devices that take graphs (ExecutorLimits::graphs)
  /// All of its commands are checked now: a failure names the first that is wrong, counted from 1, and there is no
  /// graph. Nothing in `commands` overlaps, and what they refer to is there until this returns. `bytes`: what the graph
  /// counts for.
  virtual Outcome make_graph(Handle /*graph*/, std::span<const GraphCommand> /*commands*/, std::uint64_t /*bytes*/) {
    return no_graphs();
  }
  /// One whose memory was released meanwhile is refused, and names the command that would use it.
  virtual Outcome launch_graph(Handle /*graph*/) { return no_graphs(); }
  virtual Outcome release_graph(Handle /*graph*/) { return no_graphs(); }
  /// Command `number` of it, from 1, is a launch: from now on of this grid and so on, with these parameters, but of the
  /// function that it was made of (`launch` names none). Launches of the graph that were given before are not touched.
  virtual Outcome update_graph(Handle /*graph*/, std::uint32_t /*number*/, const Launch& /*launch*/,
                               std::span<const std::byte> /*parameters*/) {
    return no_graphs();
  }

  // --- of devices whose addresses clients may place memory at
  /// A range of addresses for that much memory, and the memory: called once at most, before all commands. `wish`: where
  /// it may begin, if that is to be had; 0: anywhere. Errors: there is no such thing (kUnimplemented), or not so much.
  virtual Result<AddressRange> reserve(std::uint64_t /*bytes*/, std::uint64_t /*wish*/) {
    return Status(Code::kUnimplemented, "this service's device has no addresses for clients to place memory at");
  }
  /// In that range.
  virtual Outcome allocate_at(Handle /*handle*/, std::uint64_t /*address*/, std::uint64_t /*bytes*/) {
    return {kNotSupported, Scope::kCommand, "this session has no range of addresses"};
  }

  /// What the channel's commands go before, on a device that runs several at a time. Before its first command, and
  /// within ExecutorLimits::priorities; a channel that nothing is said of has priority 0.
  virtual void prioritize(std::uint32_t /*channel*/, std::int32_t /*priority*/) {}

  // --- of devices that work by themselves
  [[nodiscard]] virtual bool is_asynchronous() const noexcept { return false; }
  /// The next command is this one. Commands that are passed over are not told of.
  virtual void begin(const Place& /*place*/) noexcept {}
  /// What follows in the channel of begin() waits, on the device, until it is past that.
  virtual Outcome fence(const Place& /*mark*/) { return {}; }
  /// How far it is in the channel. Does not wait.
  virtual Progress progress(std::uint32_t /*channel*/) { return {}; }

 private:
  static Outcome no_modules() {
    return {kNotSupported, Scope::kCommand, "this service's device takes no modules: load() its functions by name"};
  }
  static Outcome no_graphs() {
    return {kNotSupported, Scope::kCommand, "this service's device takes no graphs: give their commands one by one"};
  }
};

/// Makes a session's executor. An error refuses the session.
using ExecutorFactory = std::function<Result<std::unique_ptr<Executor>>(const Peer& peer)>;

/// One of a service's devices, which clients name by its number: the order in ServiceConfig::devices.
struct ServedDevice {
  std::string name;             // in the service's words: for its metrics, and what it refuses
  ExecutorFactory executors{};  // of sessions on it; none where ServiceConfig::program has them
};

/// How sessions of several tenants share a device. A turn is some 200 us of commands, or one command that takes
/// longer; what is shared is the time that turns take.
enum class Sharing : std::uint8_t {
  kFree,        // not at all: every session runs whenever it can, beside the others
  kBestEffort,  // one at a time, each tenant a turn; who has nothing to run is passed over
  kEqual,       // one at a time, next is who had the least of the time, of those that have something to run
  kFixed,       // one at a time, each tenant at most its Tenant::share of the time; what one leaves is not lent out
};

inline constexpr double kLeastShare =
    0.001;  // with less, a command of a second would keep its tenant waiting for longer than that

/// What one tenant may have at a service: a principal of EngineConfig::keys_file, over all its sessions. 0: no limit
/// but the service's and its executors'.
struct Tenant {
  std::string name;                    // of the principal; "*": whoever else showed a key, each on these terms
  std::uint64_t memory_bytes = 0;      // of each device
  std::uint32_t sessions = 0;          // at once
  std::uint32_t channels = 0;          // of a session
  std::uint32_t credits = 0;           // of a channel: commands that are under way
  std::uint64_t bytes_per_second = 0;  // copied in and out together
  double share = 0;                    // Sharing::kFixed: of each device's time, kLeastShare or more; of all at most 1
  std::vector<std::uint32_t> devices{};  // that it may use, by number; none: all
};

/// What a tenant has on a device, and has done there.
struct TenantDeviceStats {
  std::uint64_t memory_bytes = 0;
  std::uint64_t commands = 0, bytes_in = 0, bytes_out = 0;
  std::uint64_t service_ns = 0;             // that its commands took
  std::array<std::uint64_t, 3> failures{};  // by Scope: command, stream, context
};

/// What a tenant has, and has done since it first came; of all devices together, and of each by its number.
struct TenantStats {
  std::string name;            // empty: of anonymous peers
  std::uint64_t sessions = 0;  // there now,
  std::uint64_t away = 0;      // of which so many wait for their clients to come back
  std::uint64_t memory_bytes = 0;
  std::uint64_t waiting = 0;  // commands that have come and not run
  std::uint64_t commands = 0, bytes_in = 0, bytes_out = 0;
  std::uint64_t service_ns = 0;             // that its commands took
  std::uint64_t rejections = 0;             // sessions and allocations beyond what it may have
  std::array<std::uint64_t, 3> failures{};  // by Scope: command, stream, context
  std::vector<TenantDeviceStats> devices{};
};

struct ServiceConfig {
  ExecutorFactory executors{};  // of its device, if it has one
  /// Several, at most 16, each shared by itself; then `executors` is left out. A session runs its commands on all of
  /// them by one thread, or one process.
  std::vector<ServedDevice> devices{};
  /// Where commands run.
  enum class Where : std::uint8_t {
    kOwnThread,  // a thread for each session: none waits for another's
    kInTurn,     // the service's thread, between messages: the shortest way, for executors whose commands are all short
  } where = Where::kOwnThread;
  /// What each session is run by: a program, found as it is written here, and its arguments, which calls
  /// serve_session(). Then no session reaches another's memory; one that crashes ends alone, and its client is told at
  /// which command; one that hangs is killed when its client goes. Empty: threads of this process, by `executors`.
  std::vector<std::string> program{};
  std::size_t max_sessions = 64;
  std::uint32_t channels = 16;                            // of a session
  std::uint32_t credits = 2048;                           // commands of a channel that are under way
  std::uint64_t payload_credit = std::uint64_t{8} << 20;  // bytes of a channel's copies on their way in
  /// Memory of the engine's pool that a session's client writes large copies into, and reads them from: asked for with
  /// the first of them, used from the second on; 1 MiB at least. 0, or where the pool has no more: they go by messages,
  /// which costs both ends three times as much.
  std::uint64_t window_bytes = std::uint64_t{8} << 20;
  std::uint64_t held_results = std::uint64_t{16} << 20;  // bytes copied out that a client has yet to take: with more
                                                         // of them its commands stand still; at least 1 MiB less than
                                                         // EngineConfig::max_posted_bytes
  std::uint64_t module_bytes = std::uint64_t{64} << 20;  // of one image; a session sends one at a time
  std::uint64_t module_cache_bytes = std::uint64_t{256} << 20;  // of images kept for whoever asks for them by hash
  // Of a session's graphs together, whose bytes count as memory of its tenant's; 0: it may have none.
  std::uint32_t graph_records = 65'536;
  std::uint64_t graph_bytes = std::uint64_t{16} << 20;
  /// A session whose engine's session is lost is kept for so long, with all that it has, if its client wished so
  /// (SessionOptions::resume_within). 0: none is.
  std::chrono::milliseconds keep_away{60'000};
  std::size_t most_away = 4;                    // of a tenant's: of more the one that was lost first ends
  std::vector<Tenant> tenants{};                // none: everybody may come, on the terms above
  Sharing sharing = Sharing::kFree;             // any other takes Where::kOwnThread
  std::chrono::milliseconds longest_turn{100};  // of Sharing: one that takes longer keeps others waiting no more; they
                                                // run beside it, and its tenant pays for it when it ends
};

struct ServiceStats {
  std::uint64_t sessions = 0;        // there now,
  std::uint64_t leaving = 0;         // of which so many have no client any more, but a command that has not ended
  std::uint64_t away = 0;            // and so many wait for their clients to come back
  std::uint64_t resumed = 0;         // times that a client came back to its session
  std::uint64_t sessions_begun = 0;  // that were welcomed
  std::uint64_t sessions_refused = 0;
  std::uint64_t sessions_ended_wrong = 0;  // by the service, as the client broke the protocol or its credits
  std::uint64_t commands = 0;              // executed, or passed over
  std::uint64_t failures = 0;
  std::uint64_t skipped_unknown = 0;  // records of a kind that this release does not know
  std::uint64_t replies = 0;
  std::uint64_t modules_cached = 0;  // images that are kept now
  std::uint64_t modules_sent = 0;    // that clients had to send
  std::uint64_t turn_overruns = 0;   // turns that took more than ServiceConfig::longest_turn
};

/// What a ServiceConfig::program does: runs one session by an executor of `executors` (their Peer is no peer), and ends
/// when the service is done with it, or has ended. Gives the program's exit code.
FAIRLEAD_EXPORT int serve_session(const ExecutorFactory& executors);
/// The same where there are several, in the order of ServiceConfig::devices.
FAIRLEAD_EXPORT int serve_session(std::span<const ServedDevice> devices);

/// Serves every peer that connects to its engine, from a thread of its own, until it is destroyed. Move-only. Threads:
/// any.
class FAIRLEAD_EXPORT Service {
 public:
  /// Takes the engine over: its peers and events are the service's. Errors: kInvalidArgument, which names the setting.
  static Result<Service> start(Engine engine, ServiceConfig config);
  Service(Service&&) noexcept;
  Service& operator=(Service&&) noexcept;
  ~Service();

  [[nodiscard]] std::string listen_address() const;
  /// Its engine, for the engine's figures, and to read its keys again. Whoever takes its events takes them from the
  /// service.
  [[nodiscard]] Engine& engine() noexcept;
  [[nodiscard]] ServiceStats stats() const;
  /// Of the tenants that have come so far, and those that are named, by name.
  [[nodiscard]] std::vector<TenantStats> tenants() const;
  /// What its devices are called, by number.
  [[nodiscard]] std::vector<std::string> devices() const;
  /// Other terms from now on: memory, bandwidth and shares for all, the rest for sessions to come. Who is not among
  /// them any more keeps what it has, and begins no other session. Errors: as start(), and nothing changes.
  Status set_tenants(std::vector<Tenant> tenants);
  /// New sessions are turned away; those that are there go on. Idempotent.
  void drain() noexcept;
  /// Ends every session and frees what they have. Waits for commands that run. Idempotent.
  void stop() noexcept;

 private:
  explicit Service(std::unique_ptr<ServiceBody> body) noexcept;
  std::unique_ptr<ServiceBody> body_;
};

}  // namespace fairlead::inline v0::command
