// The transfer engine: the front door.
//
//   auto engine = fairlead::Engine::create();
//   auto peer   = engine->connect("gpu7:7471");
//   auto buffer = engine->allocate(1 << 20);
//   auto target = peer->lookup("kv/0");
//   auto sent   = peer->write(*buffer, *target, {.notify = 42});
//   fairlead::Status end = sent.wait();
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fairlead/config.h"
#include "fairlead/cuda.h"
#include "fairlead/export.h"
#include "fairlead/memory.h"
#include "fairlead/peer.h"
#include "fairlead/placement.h"
#include "fairlead/status.h"
#include "fairlead/transfer.h"

namespace fairlead::inline v0 {

/// A device or transport that this host could use, and why it was or was not chosen.
struct DeviceInfo {
  std::string transport;  // "verbs:mlx5_0", "verbs:soft0", "shm", "tcp"
  std::string detail;     // driver, port, link layer, packet I/O
  std::string address;    // GID or IP address
  bool usable = false;
  std::string reason;
};

/// shm: bytes of one-sided operations by the way that they took. This end copied the first three, once; what went
/// through rings is counted by either end.
struct CopiedBytes {
  std::uint64_t mapped = 0, streamed = 0;  // from memory that both map: through the caches, past them
  std::uint64_t by_kernel = 0;             // by process_vm_readv
  std::uint64_t through_rings = 0;
};

/// What went over one of an engine's transports, in one of its lanes, since it was opened.
struct TransportStats {
  std::string transport;  // "verbs:mlx5_0", "verbs:soft0", "shm", "tcp"
  std::size_t lane = 0;   // by number, from 0
  /// Over tcp all that its connections carry, frame headers included, as it moves. Over verbs the payload of our
  /// requests that have completed, of messages, and of peers' writes that carry a notification: what else peers write
  /// and read the device moves by itself, and counts by itself (`fairlead_softroce_rcvd_bytes_total` in /metrics; a
  /// NIC's are in sysfs).
  std::uint64_t bytes_sent = 0, bytes_received = 0;
  std::uint64_t requests = 0;                         // work requests posted,
  std::uint64_t requests_in_flight = 0;               // and those of them that have not ended
  std::uint64_t paths = 0;                            // that are ready now
  std::uint64_t paths_opened = 0;                     // that became ready
  std::uint64_t paths_lost = 0;                       // of which died under their sessions
  std::optional<std::uint64_t> retransmissions = {};  // tcp: segments; at least a second old while it lives
  std::optional<CopiedBytes> copied = {};             // shm
};

/// The registration cache's (Engine::cached_memory).
struct CacheCounters {
  std::uint64_t hits = 0, misses = 0;  // look-ups that found a registration, and that made one
  std::uint64_t evicted = 0;           // registrations that gave way to others
  std::uint64_t invalidated = 0;       // whose memory changed
  std::uint64_t registrations = 0;     // that it holds now,
  std::uint64_t bytes = 0;             // and how much memory they pin
};

/// Counters of the whole engine since it began. Sessions that ended are included.
struct EngineStats {
  PeerStats total;
  std::uint64_t peers_connected = 0, peers_lost = 0, handshakes_refused = 0;
  std::uint64_t peers_failed = 0;  // connected to us and said hello, but their session never became ready
  std::uint64_t registered_bytes = 0, pool_bytes = 0, pool_bytes_used = 0;
  PoolStats pool;  // the last two and more
  CacheCounters cache;
  /// Of CUDA devices: registered now; pinned host memory to stage through; copied to and from devices on the way.
  std::uint64_t cuda_registered_bytes = 0, cuda_staging_bytes = 0, cuda_bytes_in = 0, cuda_bytes_out = 0;
  std::vector<TransportStats> transports;  // lane by lane, in order of preference
  std::uint64_t sleeps = 0;                // times that a thread which drives the engine went to sleep
};

/// An engine: lanes, pools and sessions. Move-only; destroying it closes every session (posted transfers complete,
/// with kCancelled if need be), ends other threads' waits and joins its thread. Threads: all members from any thread.
/// fork(): an engine is of the process that made it. In a child its copies, and those of its peers and transfers, are
/// inert: calls fail with kUnavailable and say so, waits end at once, and destroying them changes nothing for the
/// parent. The child may make an engine of its own.
/// Of an engine that was moved from, calls fail with kInvalidArgument, or give nothing.
class FAIRLEAD_EXPORT Engine {
 public:
  /// Errors: a bad configuration, the port in use, no such device.
  static Result<Engine> create(EngineConfig config = {});
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  /// Closes every session, ends other threads' waits, and lets go of all memory: what the destructor does, while the
  /// handle stays. From then on calls fail with kUnavailable. Idempotent; concurrent calls return when it is done.
  void shutdown();

  /// Where this engine listens, "host:port" with the real port; empty if it does not.
  [[nodiscard]] std::string listen_address() const;
  [[nodiscard]] const EngineConfig& config() const noexcept;

  /// From a pool: page-aligned for a page and above, else 64 bytes; registered once with every transport; all 0.
  /// Errors: kInvalidArgument (0 bytes), kResourceExhausted (with the limit and the remedy).
  Result<Memory> allocate(std::size_t bytes);
  /// The same, as the options say. Errors: also kInvalidArgument (an alignment that is none, no such NUMA node, a
  /// principal that is nobody's).
  Result<Memory> allocate(std::size_t bytes, const AllocateOptions& options);
  /// Gives the pool's idle arenas back to the system now, not after EngineConfig::pool_idle.
  void trim_pool();
  /// The caller's bytes, registered in place. They must outlive the last Memory and transfer that names them.
  /// Errors: kInvalidArgument (0 bytes, a hole, pages at either end that cannot be read), and the transports' own.
  Result<Memory> register_memory(std::span<std::byte> bytes, Access access = Access::kRemoteReadWrite);
  /// The same; `release` is called once, when nothing touches the bytes any more: the last Memory and the last transfer
  /// that named them have gone, and so have the registrations. On whichever thread that happens, so it must not block,
  /// and not call the engine. If registering fails it is not called.
  Result<Memory> register_memory(std::span<std::byte> bytes, Access access, std::function<void()> release);
  /// Many at once: ranges that touch or overlap share one registration. All, or none and the first error, which names
  /// the range.
  Result<std::vector<Memory>> register_memory(std::span<const std::span<std::byte>> ranges,
                                              Access access = Access::kRemoteReadWrite);
  /// Bytes of the application's that it never registered, as local memory for transfers: the registration is found in a
  /// cache, or made, and stays there until the memory is unmapped, moved or emptied, or others need its room
  /// (EngineConfig::cached_bytes). The bytes must stay mapped until the call returns, and while a transfer names them.
  /// It cannot be published. Which memory can be cached, and what the cache cannot see: docs/registration_cache.md.
  /// Errors: kInvalidArgument (0 bytes, a hole), kUnimplemented (memory whose changes cannot be seen, as that of files:
  /// declare_memory() it), kResourceExhausted (with the limit and the remedy).
  Result<Memory> cached_memory(std::span<std::byte> bytes);
  /// Many at once: those of one mapping share a registration. All, or none and the first error, which names the range.
  Result<std::vector<Memory>> cached_memory(std::span<const std::span<std::byte>> ranges);
  /// Memory to write and send from, for who may outlive this handle: as cached_memory() has it, or, where that cannot,
  /// registered for as long as its handle lives. Keeps nothing of the engine: after its end, kUnavailable.
  [[nodiscard]] std::function<Result<Memory>(std::span<const std::byte>)> local_reader() const;
  /// The same of memory to read into.
  [[nodiscard]] std::function<Result<Memory>(std::span<std::byte>)> local_writer() const;
  /// The bytes stay mapped, and the same memory, until withdraw_memory(): cached_memory() finds them without asking the
  /// kernel. Any kind of memory. Registered at once, or with the first use. Errors: kAlreadyExists (some of them are
  /// declared), and those of cached_memory().
  Status declare_memory(std::span<std::byte> bytes, bool at_once = true);
  /// Ends what was declared with this first byte. The bytes may be unmapped when it has returned and no Memory and no
  /// transfer names them. Errors: kNotFound.
  Status withdraw_memory(const std::byte* begin);
  /// Memory that CUDA knows, by its pointer: of a device (cuMemAlloc, a pool, or mapped from one or several handles),
  /// to be copied by the device alone from here on; or pinned host memory, which is registered as any other. The caller
  /// sees to it that what a stream writes there is written before a transfer begins, and that bytes are used after it
  /// ends. Where a path does not reach the device it goes through pinned host memory: then pieces land in no order, and
  /// other transfers may overtake it (its notification never does). Errors: kNotFound and kUnimplemented (no driver, no
  /// device, a driver too old), kInvalidArgument (0 bytes, another device than was named, managed memory, atomics,
  /// bytes that leave the allocation), kResourceExhausted (no pinned memory to stage through).
  Result<Memory> register_memory(std::span<std::byte> bytes, const CudaOptions& options);
  /// A file mapped and registered in place. kRemoteRead or kNone maps it read-only.
  Result<Memory> map_file(const std::string& path, Access access = Access::kRemoteRead);

  /// Lets peers find `memory`, of this engine, under `name` (1 to 1024 bytes, in no particular encoding). Errors:
  /// kAlreadyExists, kPermissionDenied (more access than registered, or an audience that it was not allocated for),
  /// kOutOfRange (the tensor is larger).
  /// `audience`: the principals of EngineConfig::keys_file whose sessions may find and reach it ("*": whoever showed a
  /// key); to others it is not there. Empty: everybody who may connect. Error: kInvalidArgument, a name that is
  /// nobody's.
  Status publish(std::string_view name, const Memory& memory, Access access,
                 std::optional<TensorSpec> tensor = std::nullopt, std::vector<std::string> audience = {});
  /// Removes the name and withdraws the grant: when it returns, no peer's operation touches the memory through it.
  /// Peers that had looked it up are told (RemoteMemory::withdrawn). Errors: kNotFound.
  Status unpublish(std::string_view name);

  /// Gives a part of `memory` away without a name: whoever of the audience is given the text that this returns can
  /// reach it by Peer::import_, and nobody else can, not by listing, nor by guessing. The text holds the region's
  /// number, the access and a secret; hand it on as you would the data. Errors as publish().
  Result<std::string> export_(const Memory& memory, Access access, std::vector<std::string> audience = {});
  /// Withdraws it, as unpublish() does: the text is worth nothing from then on. Errors: kNotFound, kInvalidArgument (it
  /// is no such text).
  Status unexport(std::string_view capability);

  /// Reads EngineConfig::keys_file again. From then on a new line is somebody, and a line that is gone, or has another
  /// key, nobody: sessions whose principal that was end at once, kPermissionDenied, and it cannot connect again. All
  /// others go on. If the file cannot be read as create() would, nothing changes. Waits for the engine's thread, so not
  /// from inside a callback. Errors: kInvalidArgument (there is no keys file, or it is malformed), kNotFound (it, or
  /// the line of our own principal), kPermissionDenied.
  Status reload_keys();
  /// Whether keys_file, as it was read last, has a line for that name. Never blocks for long.
  [[nodiscard]] bool knows(std::string_view principal) const;

  /// Begins to connect and returns at once, to "HOST:PORT", or to a peer with several places ("a:7471,b:7471", up to
  /// 8): the first that answers is taken, and where the session is cut the peer is looked for at all of them;
  /// Peer::wait_ready and events tell how it went. Errors: a bad address only.
  Result<Peer> connect(std::string_view host_port);
  /// connect() for who may outlive this handle, and keeps nothing of the engine: after its end, kUnavailable.
  [[nodiscard]] std::function<Result<Peer>(std::string_view)> connector() const;
  /// A peer that connected to us and is ready, or nothing. Never blocks. Of those that ended before anybody took them,
  /// 1,024 a lane are kept; older ones go, and what they sent with them unless the application takes next_event().
  std::optional<Peer> accept();
  /// The same, waiting for one. Errors: kDeadlineExceeded, kCancelled (the engine was shut down meanwhile),
  /// kInvalidArgument (it does not listen).
  Result<Peer> accept(std::chrono::nanoseconds timeout);

  /// Readable while accept(), next_event() or next_completed() has something. Owned by the engine; poll, do not read.
  /// What is left in any of the three keeps it readable: take from all of them, also who has no use for accept().
  /// Signalled from the first call on: who polls the engine instead saves its system calls by never calling this.
  [[nodiscard]] int event_fd() const noexcept;
  /// The next event of any peer. No event is kNone with an invalid Peer; its status says why if none can come any more.
  std::pair<Peer, Event> next_event(std::chrono::nanoseconds timeout = std::chrono::nanoseconds(0));
  /// The next completed transfer among those posted with TransferOptions::report.
  std::optional<Transfer> next_completed();
  /// Advances the engine once on this thread. Returns whether anything happened.
  bool poll() noexcept;

  /// What this host could use; with `peer`, a numeric IP address, what a path to it would use.
  [[nodiscard]] std::vector<DeviceInfo> devices(std::string_view peer = {}) const;
  [[nodiscard]] std::vector<Peer> peers() const;
  [[nodiscard]] EngineStats stats() const;
  /// Where lanes and pool were put. Asks the system where pages of the pool are, so it is not for every second.
  [[nodiscard]] PlacementReport placement() const;

 private:
  explicit Engine(std::shared_ptr<void> object) noexcept;
  std::shared_ptr<void> object_;
};

}  // namespace fairlead::inline v0
