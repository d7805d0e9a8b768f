// One connection to one peer, and what comes from it.
//
// Setting up a path needs two descriptions to cross (by the engine's control protocol):
//   active: open_path(kActive), local_description() ----> passive: open_path(kPassive), connect(description)
//   active: connect(description) <----------------------- passive: local_description()
// then both poll until on_ready. The order on the wire may differ from the order of on_ready at the two ends.
//
// Threads and errors: as endpoint.h says.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::datapath {

class MemoryDomain;

/// LocalSegment::key of a message's bytes that are the session's own, and stay where they are while they are posted.
inline constexpr std::uint64_t kOwnBytes = ~std::uint64_t{0};

/// A part of registered local memory (for messages: of any memory).
struct LocalSegment {
  std::byte* data = nullptr;
  std::uint64_t length = 0;  // bytes
  std::uint64_t key = 0;     // Registration::local
};

enum class OpKind : std::uint8_t { kWrite, kRead, kMessage };

/// One operation. The segment array is read during post() only; the memory it names is busy until completion, except
/// that a message's bytes are copied by post() (transport/message_bytes.h: as they are, or as zeros where they are
/// gone). One remote range, contiguous, sum of the segments long. Any length: what is longer than the device takes is
/// split. Zero length is allowed.
struct WorkRequest {
  std::uint64_t id = 0;  // given back as Ended::first
  OpKind kind = OpKind::kWrite;
  std::span<const LocalSegment> local;
  std::uint64_t remote_address = 0;  // unused for messages
  std::uint64_t remote_key = 0;
  // Of a write, where Capabilities::write_notifies: delivered to the peer once the write is placed, in order with
  // messages. The request then completes in order with writes and with messages, and is turned away where those are
  // (Capabilities::write_then_message_ordered): then it completes with kAborted, on a path that lives, and what it was
  // to write may be placed in part.
  std::optional<std::uint32_t> notify = std::nullopt;
};

class Path;

/// Work requests that have ended alike: of one, or of a row of ids that all did well.
struct Ended {
  std::uint64_t first = 0;  // WorkRequest::id
  Code code = Code::kOk;
  std::uint64_t count = 1;  // 1 unless `code` is kOk
};

/// What a path tells its user, from inside Endpoint::poll() (never from inside post(), close() or connect()).
/// The user may post to any path of the endpoint from within these calls.
class PathEvents {
 public:
  /// connect() has succeeded as far as this end can see; post() is allowed.
  virtual void on_ready(Path& path) noexcept = 0;
  /// kOk = placed (write, message: at the target; read: here); the memory is free.
  /// Once per accepted request, in the order of posting within a kind. After a path went down: kAborted for the
  /// innocents, the cause for the culprit where it is known (kProtectionError, kUnavailable).
  virtual void on_completion(Path& path, const Ended& ended) noexcept = 0;
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
  /// Where else the peer's device may be reached, if this one cannot reach it at `peer_host`; numeric, the best first.
  std::vector<std::string> peer_addresses = {};
  bool addresses_first = false;  // before peer_host: where the device is, not where the session is
  /// Passive: the peer's description of its end, which may show where it is reached.
  std::string_view peer_description = {};
  PathEvents* events = nullptr;    // the path's user, who outlives it; not null
  MemoryDomain* domain = nullptr;  // of this device, whose memory it uses and peers reach by it; null: the device's own
  /// What it carries is small and must not wait: others of its endpoint take shorter turns while it is there.
  bool urgent = false;
  /// Somebody polls soon, whatever the application does: what need not be said at once may wait for the next poll.
  bool polled = false;
  /// How long a peer may be silent: a transport that watches its connection calls it dead no sooner.
  std::chrono::milliseconds peer_timeout{30'000};
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
  /// Once connect() went well: the most bytes of a message that the peer's end takes. The device's limit holds beside
  /// it.
  [[nodiscard]] virtual std::uint32_t max_message() const noexcept { return std::numeric_limits<std::uint32_t>::max(); }
  /// Once it is ready: the most requests that post() takes before it says "full". The device's limit holds beside it.
  [[nodiscard]] virtual std::uint32_t max_outstanding() const noexcept {
    return std::numeric_limits<std::uint32_t>::max();
  }
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

  /// Who is told what happens to it.
  [[nodiscard]] PathEvents& events() const noexcept { return events_; }

 protected:
  explicit Path(PathEvents& events) noexcept : events_(events) {}
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;

 private:
  PathEvents& events_;
};

}  // namespace fairlead::datapath
