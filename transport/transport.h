// The narrow interface that every way across implements: verbs, tcp_fallback.
//
// A Transport is one device and protection domain, owned by one lane: it registers memory, opens paths and is polled.
// A Path is one connection to one peer. A transport never knows the engine: it reports through PathEvents. What users
// see (notifications, tensors, batches, failover) is built above, once.
//
// Setting up a path needs two descriptions to cross (by the engine's control protocol):
//   active: open_path(kActive), local_description() ----> passive: open_path(kPassive), connect(description)
//   active: connect(description) <----------------------- passive: local_description()
// then both poll until on_ready. The order on the wire may differ from the order of on_ready at the two ends.
//
// Threads: one thread at a time drives a transport and its paths (whoever polls drives). register_region and
// deregister_region may be called from any thread at any time.
// Errors: data path calls are noexcept, do not allocate per call in steady state, and answer with a Code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fairlead/memory.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

/// What a transport gives. Constant for the life of the transport.
struct Capabilities {
  bool one_sided = true;  // write and read go straight to the target's memory
  // A message posted after a write is delivered only after, and only if, that write was placed. Where the target
  // refuses the write, the path either goes down (RC queue pairs) or stays up and completes every message that was in
  // flight behind the write with kAborted, undelivered (tcp: the target compares counts of refusals); never a message
  // delivered.
  bool write_then_message_ordered = true;
  bool write_notifies = false;  // a write may carry a notification: WorkRequest::notify
  bool needs_flush = false;     // placed data needs a flush before it may be read (GPU memory)
  bool software = false;        // verbs made in software: ranks below tcp in `auto`
  bool encrypted = false;
  std::uint32_t max_message = 0;           // bytes of one message
  std::uint32_t max_segments = 1;          // local segments of one work request
  std::uint32_t max_outstanding = 0;       // work requests per path that post() takes before it says "full"
  std::uint64_t link_bits_per_second = 0;  // 0: unknown
};

/// A registered range. `local` goes into LocalSegment; `remote_address` (of the first byte) and `remote` go to peers,
/// who add offsets to remote_address. All are opaque to the engine. `handle` is for deregister_region.
struct Registration {
  std::uint64_t local = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t remote = 0;
  std::uint64_t handle = 0;
};

/// A part of registered local memory (for messages: of any memory).
struct LocalSegment {
  std::byte* data = nullptr;
  std::uint64_t length = 0;  // bytes
  std::uint64_t key = 0;     // Registration::local
};

enum class OpKind : std::uint8_t { kWrite, kRead, kMessage };

/// One operation. The segment array is read during post() only; the memory it names is busy until completion, except
/// that a message's bytes are copied by post(). One remote range, contiguous, sum of the segments long. Any length:
/// the transport splits what is longer than its device takes. Zero length is allowed.
struct WorkRequest {
  std::uint64_t id = 0;  // returned in on_completion
  OpKind kind = OpKind::kWrite;
  std::span<const LocalSegment> local;
  std::uint64_t remote_address = 0;  // unused for messages
  std::uint64_t remote_key = 0;
  // Of a write, where Capabilities::write_notifies: delivered to the peer once the write is placed, in order with
  // messages. The request then completes in order with writes and with messages.
  std::optional<std::uint32_t> notify = std::nullopt;
};

class Path;

/// What a transport tells its user, from inside poll() (never from inside post(), close() or connect()).
/// It may post to any path of the transport from within these calls.
class PathEvents {
 public:
  /// connect() has succeeded as far as this end can see; post() is allowed.
  virtual void on_ready(Path& path) noexcept = 0;
  /// Work request `id` has ended: kOk = placed (write, message: at the target; read: here); the memory is free.
  /// Once per accepted request, in the order of posting within a kind. After a path went down: kAborted for the
  /// innocents, the cause for the culprit where it is known (kProtectionError, kUnavailable).
  virtual void on_completion(Path& path, std::uint64_t id, Code code) noexcept = 0;
  /// A message arrived; `bytes` are valid during the call only. Messages of one path arrive in order, never doubled.
  virtual void on_message(Path& path, std::span<const std::byte> bytes) noexcept = 0;
  /// A write with a notification was placed. In order with messages, never doubled.
  virtual void on_notification(Path& path, std::uint32_t value) noexcept = 0;
  /// The path is dead (once). Nothing more will be accepted or arrive; accepted requests complete as poll() goes on.
  /// Told in the same poll() as the first completion that the death aborted, or before: kAborted on a path that lives
  /// means that the target turned the request away.
  /// Not called for a path that its user closed.
  virtual void on_down(Path& path, Code code, std::string_view reason) noexcept = 0;

 protected:
  ~PathEvents() = default;
};

enum class PathRole : std::uint8_t { kActive, kPassive };

struct PathConfig {
  PathRole role = PathRole::kActive;
  std::string peer_host;   // the address of the peer's end of the control connection, numeric
  std::string local_host;  // ours, numeric: a device picks its source address or GID to suit
  void* user = nullptr;    // Path::user()
};

/// One connection. Owned by its creator, destroyed by the driving thread; destroying implies close() and drops what
/// has not been reported yet. Work requests that are not drained keep the memory busy, so drain first.
class Path {
 public:
  virtual ~Path() = default;
  /// What the peer needs to connect to this end; opaque bytes, at most 4 KiB.
  [[nodiscard]] virtual std::string local_description() const = 0;
  /// Starts (or, passive, completes) the connection. `peer` comes from the network: anything in it may be wrong.
  virtual Status connect(std::string_view peer) = 0;
  /// Posts requests in order and rings one doorbell; returns how many were taken. Fewer than given: the path is full
  /// (post the rest after completions) or not ready or down.
  virtual std::size_t post(std::span<const WorkRequest> requests) noexcept = 0;
  /// Fence: when it returns, no operation of the peer through this path touches memory here any more, and nothing
  /// further is posted to the wire. Accepted requests complete (most with kAborted) during later polls; messages that
  /// had arrived before are still delivered by those polls, until drained().
  virtual void close() noexcept = 0;
  /// After close() or on_down(): every accepted request was reported and every arrived message delivered.
  [[nodiscard]] virtual bool drained() const noexcept = 0;
  /// Which device, addresses and parameters carry this path: "soft0 127.3.0.1 qpn 0x11 -> 127.4.0.1 qpn 0x12".
  [[nodiscard]] virtual std::string describe() const = 0;

  [[nodiscard]] void* user() const noexcept { return user_; }

 protected:
  explicit Path(void* user) noexcept : user_(user) {}
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

 private:
  void* user_;
};

class Transport {
 public:
  virtual ~Transport() = default;
  /// "verbs:soft0", "tcp".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual const Capabilities& capabilities() const noexcept = 0;
  /// One line for `explain`: device, packet I/O, profile.
  [[nodiscard]] virtual std::string describe() const = 0;

  /// Makes bytes reachable: always for local use, for peers as `access` says. With Access::kLocalReadOnly the bytes are
  /// mapped read-only and only ever read. Errors name object, value, limit, remedy.
  virtual Result<Registration> register_region(std::span<std::byte> bytes, Access access) = 0;
  /// When it returns, no operation of a peer touches the bytes through this registration.
  virtual void deregister_region(const Registration& registration) noexcept = 0;

  virtual Result<std::unique_ptr<Path>> open_path(const PathConfig& config) = 0;

  /// Advances every path once and reports to `events`. Returns whether anything happened: a part of an operation
  /// counts, so that nobody sleeps in the middle of a large one.
  virtual bool poll(PathEvents& events) noexcept = 0;
  /// Before sleeping: arms wait_fd(). False: poll again first, something is there already.
  virtual bool arm() noexcept = 0;
  /// Readable after arm() when poll() may have something. Owned by the transport; the user only polls it for POLLIN.
  [[nodiscard]] virtual int wait_fd() const noexcept = 0;
  /// poll() must be called again within this many microseconds even if wait_fd() stays silent; -1: no timer runs.
  [[nodiscard]] virtual int wait_timeout_us() const noexcept = 0;

 protected:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
};

}  // namespace fairlead::datapath
