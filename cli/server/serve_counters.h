// What a server of models counts, and why it refuses.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cli/server/reloads.h"
#include "metrics/duration_histogram.h"

namespace fairlead::cli {

/// Why a client was refused something.
enum class Refused : std::uint8_t {
  kDraining,    // the server ends
  kNoRoom,      // other pushes, or models of others, hold the room: another time it may be had
  kTooLarge,    // for this server, or for the principal's quota
  kSilent,      // nothing came of it for long, and others needed the room
  kUnknown,     // no such model
  kMisbehaved,  // the client broke the protocol
  kSessions,    // the principal has as many clients as it may
  kDisk,        // the store cannot be written
  kOther,       // what the engine says: no memory to register, and so on
};
inline constexpr std::array<const char*, 9> kRefusedNames{
    "draining", "no_room", "too_large", "silent", "unknown_model", "misbehaved", "sessions", "disk", "other"};

/// For /metrics. Written by the server's thread, read by any.
struct ServeCounters {
  std::atomic<std::uint64_t> clients{0}, clients_total{0}, received_bytes{0};
  std::atomic<std::uint64_t> arrived_bytes{0};  // of tensors, as each is whole
  std::atomic<std::uint64_t> pulled_bytes{0};   // of models, as each pull ends
  std::atomic<std::uint64_t> pushing{0}, pulling{0};
  std::array<std::atomic<std::uint64_t>, kRefusedNames.size()> refused{};
  Reloads reloads;
  std::atomic<std::uint64_t> store_models_loaded{0}, store_damaged{0}, store_failed{0}, store_written_bytes{0};
  metrics::DurationHistogram store_seconds;
  std::atomic<std::uint64_t> pushes_verified{0}, pushes_unchecked{0}, pushes_failed{0}, pushes_refused{0},
      pushes_abandoned{0};
  std::atomic<std::uint64_t> tensors_verified{0}, tensors_failed{0}, tensors_unchecked{0};
  std::atomic<std::uint64_t> models_evicted{0};
  std::atomic<std::uint64_t> pulls_completed{0}, pulls_refused{0}, pulls_abandoned{0};
  metrics::DurationHistogram push_seconds, pull_seconds;  // of those that ended in order, by the server's clock
};

}  // namespace fairlead::cli
