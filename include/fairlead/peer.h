// A peer: one session with another engine. It outlives the paths that carry it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/export.h"
#include "fairlead/handle.h"
#include "fairlead/memory.h"
#include "fairlead/status.h"
#include "fairlead/tensor.h"
#include "fairlead/transfer.h"

namespace fairlead::inline v0 {

enum class PeerState : std::uint8_t { kConnecting, kReady, kRecovering, kClosed };
/// "connecting", "ready", "recovering", "closed".
[[nodiscard]] constexpr std::string_view to_string(PeerState state) noexcept {
  switch (state) {
    case PeerState::kConnecting:
      return "connecting";
    case PeerState::kReady:
      return "ready";
    case PeerState::kRecovering:
      return "recovering";
    case PeerState::kClosed:
      break;
  }
  return "closed";
}

/// What a session tells its owner, in the order in which it happened.
struct Event {
  enum class Kind : std::uint8_t {
    kNone,
    kConnected,     // the session is ready; text says which path and why
    kNotification,  // value, data: what a finished transfer was to notify; what it wrote may be read
    kMessage,       // value and data: what the peer sent
    kPathChanged,   // a path died and another carries on; text says from, to and why; of very many in a row the last
    kClosed,        // status says how: ok for an orderly end
  };
  Kind kind = Kind::kNone;
  TrafficClass traffic = TrafficClass::kBulk;  // what it came with; commands are taken first
  std::uint64_t value = 0;
  std::vector<std::byte> data;
  std::string text;
  Status status;
};

/// Counters of one session since it began.
struct PeerStats {
  std::uint64_t bytes_written = 0, bytes_read = 0, messages_sent = 0, messages_received = 0;
  std::uint64_t transfers_completed = 0, transfers_failed = 0, replayed_transfers = 0;
  std::uint64_t recoveries = 0;  // times that another path took the place of one that had died
  std::uint64_t failovers = 0;   // those of them that went over another transport
  std::uint64_t failbacks = 0;   // times that a better transport, which works again, took over from a path that lived
  std::uint64_t paths_measured = 0;  // measurements of paths (EngineConfig::choice)
  std::uint64_t resumptions = 0;     // times that another control connection took the place of one that had broken
  std::uint64_t duplicate_notifications_dropped = 0, staged_bytes = 0;
  std::uint64_t rail_bytes = 0;      // written and read over paths beside the first (EngineConfig::paths)
  std::uint64_t atomics = 0;         // of ours that ended well
  std::uint64_t atomics_served = 0;  // of the peer's that were carried out here
  // What is so now, of sessions that are there.
  std::uint64_t transfers_under_way = 0;  // posted, and not ended
  std::uint64_t events_untaken = 0;       // that came, and the application has not taken
  std::uint64_t awaiting_credit = 0;      // 1: a message waits until the peer's application takes some
};

/// A counted handle; the session closes when closed or when its engine is destroyed, not with the handle.
/// Threads: all members from any thread. Nothing here blocks but lookup, list, import_, wait_ready and next_event
/// with a timeout.
class FAIRLEAD_EXPORT Peer : public Handle {
 public:
  using Handle::Handle;
  [[nodiscard]] bool operator==(const Peer& other) const noexcept { return is_same(other); }

  [[nodiscard]] PeerState state() const noexcept;
  /// ok once ready; the reason if the session closed; kDeadlineExceeded otherwise. Transfers may be posted before.
  Status wait_ready(std::chrono::nanoseconds timeout = std::chrono::seconds(10));
  [[nodiscard]] std::string name() const;  // what the peer calls itself
  /// Whose session it is: the key that both ends have shown to have (EngineConfig::keys_file). Empty: anonymous, or not
  /// shown yet.
  [[nodiscard]] std::string principal() const;
  /// Which of the engine's lanes carries it, from 0 (EngineConfig::lanes).
  [[nodiscard]] std::size_t lane() const noexcept;
  [[nodiscard]] std::string address() const;    // host:port of its control connection
  [[nodiscard]] std::string transport() const;  // "verbs:soft0", "shm", "tcp", or "" while connecting
  /// One line: which path carries this session, and why not another.
  [[nodiscard]] std::string explain() const;
  [[nodiscard]] PeerStats stats() const;

  /// A region that the peer published under `name` (1 to 1024 bytes). Errors: kInvalidArgument, kNotFound, kPeerDied,
  /// kDeadlineExceeded.
  Result<RemoteMemory> lookup(std::string_view name, std::chrono::nanoseconds timeout = std::chrono::seconds(10));
  /// All regions whose name begins with `prefix`, in order of name.
  Result<std::vector<RemoteMemory>> list(std::string_view prefix,
                                         std::chrono::nanoseconds timeout = std::chrono::seconds(10));

  /// The region of which the peer gave `capability` away (Engine::export_). Errors: kInvalidArgument (it is no such
  /// text), kPermissionDenied (it opens nothing here, or not any more), kPeerDied, kDeadlineExceeded.
  Result<RemoteMemory> import_(std::string_view capability,
                               std::chrono::nanoseconds timeout = std::chrono::seconds(10));

  // Posting never blocks. Of what is posted and not done there are at most EngineConfig::max_posted transfers, and
  // messages of max_posted_bytes: beyond that a transfer is done at once, with kResourceExhausted. Wait for some of
  // those that are under way, and post it again.

  /// One-sided. Bad arguments (sizes differ, no access, out of bounds, memory of another engine) give a transfer that
  /// is done, with the status.
  Transfer write(const Memory& local, const RemoteMemory& remote, const TransferOptions& options = {});
  Transfer read(const Memory& local, const RemoteMemory& remote, const TransferOptions& options = {});
  /// A batch: one transfer, one completion, one notification.
  Transfer write(std::span<const Descriptor> batch, const TransferOptions& options = {});
  Transfer read(std::span<const Descriptor> batch, const TransferOptions& options = {});
  /// A tensor in `local` to or from a tensor in `remote`: equal dtype and shape, any strides.
  Transfer write_tensor(const Memory& local, const TensorSpec& from, const RemoteMemory& remote, const TensorSpec& to,
                        const TransferOptions& options = {});
  Transfer read_tensor(const Memory& local, const TensorSpec& to, const RemoteMemory& remote, const TensorSpec& from,
                       const TransferOptions& options = {});
  /// Prepared lists are checked once, then posted any number of times (also while an earlier post is in flight).
  Result<Prepared> prepare_write(std::span<const Descriptor> batch);
  Result<Prepared> prepare_read(std::span<const Descriptor> batch);
  Transfer post(const Prepared& prepared, const TransferOptions& options = {});
  /// Only those descriptors of the list, by index and in this order: a list of all blocks, and each post a few of them.
  Transfer post(const Prepared& prepared, std::span<const std::uint32_t> selection,
                const TransferOptions& options = {});
  /// Two-sided: up to EngineConfig::max_message_bytes, delivered to the peer as an event, once and in order with
  /// notifications. The bytes are copied before send() returns.
  Transfer send(std::span<const std::byte> data, std::uint64_t value = 0, const TransferOptions& options = {});

  /// Atomic operations on a word that the peer published with Access::kRemoteAtomic: 8 bytes at a multiple of 8 in its
  /// region, as its CPU sees them. Carried out there once, whatever becomes of the path meanwhile, and in the order of
  /// posting within a class; Transfer::old_value() is what the word held before. The peer's engine does it with
  /// std::atomic_ref, sequentially consistent, so its program may use the word the same way; a write or an RDMA atomic
  /// of a device beside it is not atomic to it. Nothing is said about writes that were posted before: let it follow
  /// them (`after`). They notify nobody. At most 256 of a class wait for their outcome at a time. One that the peer may
  /// have carries on until it has said what became of it, or the session ends: cancel() and a deadline end only what
  /// was not sent. Errors: as write(); kOutcomeUnknown if the session ends first.
  Transfer fetch_add(const RemoteMemory& word, std::uint64_t add, const TransferOptions& options = {});
  /// Puts `desired` in if the word holds `expected`: it did if old_value() is `expected`.
  Transfer compare_swap(const RemoteMemory& word, std::uint64_t expected, std::uint64_t desired,
                        const TransferOptions& options = {});

  /// The session's next event; kNone if none came in time, with a status that says why if none can come any more.
  /// Taking events is what returns credits to the peer.
  Event next_event(std::chrono::nanoseconds timeout = std::chrono::nanoseconds(0));
  /// Tells the peer, lets posted transfers finish for up to `grace`, then closes. Never blocks.
  void close(std::chrono::nanoseconds grace = std::chrono::seconds(5)) noexcept;
};

}  // namespace fairlead::inline v0
