// One-sided operations that are posted one by one, and end together.
//
// For who moves many small pieces and wants no handle for each: what UCX and OpenSHMEM call implicit operations, and
// verbs unsignalled work requests. An operation then costs little more than its own bytes: it is checked, and noted
// beside others, which go out with one doorbell and end with one completion.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fairlead/export.h"
#include "fairlead/memory.h"
#include "fairlead/peer.h"
#include "fairlead/status.h"
#include "fairlead/transfer.h"

namespace fairlead::inline v0 {

/// A series of writes to one peer, or of reads. The first goes out at once; while earlier ones are under way those that
/// follow are gathered, and go out when they are kGroup, or with flush(). Nothing is said about the order in which they
/// are placed; they end in the order in which they were added. Memory named in operation i, counted from 0, is busy
/// until ended() > i. Pieces that touch at both ends may go as one.
/// A group is a transfer: it counts against EngineConfig::max_posted, and survives a path that dies.
/// Owned by one; movable. Whoever lets go of it detaches: what was added goes out and goes on, but for what is gathered
/// in a session that has no room for it. Threads: one at a time.
class FAIRLEAD_EXPORT Burst {
 public:
  static constexpr std::size_t kGroup = 96;  // operations that go out, and end, together; at most

  [[nodiscard]] static Burst writes(const Peer& peer, TrafficClass traffic = TrafficClass::kBulk);
  [[nodiscard]] static Burst reads(const Peer& peer, TrafficClass traffic = TrafficClass::kBulk);
  ~Burst();
  Burst(Burst&&) noexcept;
  Burst& operator=(Burst&&) noexcept;
  Burst(const Burst&) = delete;
  Burst& operator=(const Burst&) = delete;

  /// One more; never blocks. What is not ok was not added: as Peer::write() for bad arguments; kResourceExhausted where
  /// a full group finds no room in the session (wait() for some, and add it again); once one has failed, that failure.
  Status add(const Memory& local, const RemoteMemory& remote);
  /// Sends what is gathered; never blocks. kResourceExhausted: there is no room, it stays gathered.
  Status flush();
  /// So many were added, and so many of them, from the first on, have ended.
  [[nodiscard]] std::uint64_t added() const noexcept;
  [[nodiscard]] std::uint64_t ended();
  /// Flushes, and waits until ended() is `count`, or all that were added. ok, or how the first that failed did: which
  /// of its group it was is not known. kDeadlineExceeded of the wait; kResourceExhausted if what is gathered finds no
  /// room though nothing of this burst is under way: then that has not ended, whatever failed before.
  Status wait(std::uint64_t count, std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());
  /// Until all have ended.
  Status finish(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

 private:
  struct State;
  explicit Burst(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace fairlead::inline v0
