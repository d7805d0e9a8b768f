// Transfers: what was posted, whether it is done, and how it ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fairlead/export.h"
#include "fairlead/handle.h"
#include "fairlead/memory.h"
#include "fairlead/status.h"

namespace fairlead::inline v0 {

/// One piece of a transfer: local[i] <-> remote[i], equal sizes.
struct Descriptor {
  Memory local;
  RemoteMemory remote;
};

/// Of the traffic between two engines. Classes do not wait for each other: each has an order, credits and a path of its
/// own, which it gets when it is first used. Nothing is said about the order of two transfers of different classes.
enum class TrafficClass : std::uint8_t {
  kBulk,      // whatever names none
  kCommands,  // small and urgent: they overtake bulk
};
inline constexpr std::size_t kTrafficClasses = 2;

class Transfer;

struct TransferOptions {
  /// Deliver this value to the peer as an event after all data of the transfer is placed there, once and in order.
  std::optional<std::uint64_t> notify = std::nullopt;
  /// The same with bytes: delivered in Event::data, beside the value (0 if none is given). They are copied; at most
  /// EngineConfig::max_message_bytes of the peer's. Empty: none.
  std::span<const std::byte> notify_bytes = {};
  /// Give up after this long (0: never; less: it has passed). The buffer is still busy until the transfer completes.
  std::chrono::nanoseconds deadline{0};
  /// Hand the transfer to Engine::next_completed() and signal Engine::event_fd() when it completes.
  bool report = false;
  /// Notifications and messages of one class arrive in the order of posting.
  TrafficClass traffic = TrafficClass::kBulk;
  /// Begin only when this transfer of the same session has ended well, whatever its class; fail with its code if it
  /// fails. Its place in the order of its class is what it has then. Looked at during the call only; null: nothing is
  /// waited for.
  const Transfer* after = nullptr;
  /// Returned by Transfer::tag(); the library does not look at it.
  std::uint64_t tag = 0;
};

/// A posted operation: a counted handle. Completes exactly once: ok means *placed at the target* (write, send) or
/// *placed here* (read). Memory named in it is free for reuse only once done(). Dropping the handle detaches; it does
/// not cancel. Threads: done, status, bytes, tag and cancel from any thread; wait from any thread, which may then drive
/// the lane (see EngineConfig::progress).
class FAIRLEAD_EXPORT Transfer {
 public:
  Transfer() noexcept = default;
  /// Takes over one reference to `object`.
  Transfer(const Passkey&, void* object) noexcept : object_(object) {}
  [[nodiscard]] void* object(const Passkey&) const noexcept { return object_; }
  ~Transfer();
  Transfer(const Transfer&) noexcept;
  Transfer(Transfer&&) noexcept;
  Transfer& operator=(const Transfer&) noexcept;
  Transfer& operator=(Transfer&&) noexcept;

  [[nodiscard]] bool valid() const noexcept { return object_ != nullptr; }
  /// Acquire: after true, a read's data may be read.
  [[nodiscard]] bool done() const noexcept;
  /// kOk while not done; then how it ended.
  [[nodiscard]] Code code() const noexcept;
  /// As code(), with the sentence.
  [[nodiscard]] Status status() const;
  /// Waits for completion and returns its status, or kDeadlineExceeded of the *wait* (the transfer goes on).
  Status wait(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());
  /// Asks for an early end. The transfer still completes once: kOk if everything was placed all the same;
  /// kOutcomeUnknown if its notification or message was on a path that died, and the session ended before the peer said
  /// whether it came.
  void cancel() noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  [[nodiscard]] std::uint64_t tag() const noexcept;
  /// Of a fetch_add or compare_swap that ended well: what the word held before. Else 0.
  [[nodiscard]] std::uint64_t old_value() const noexcept;

 private:
  void* object_ = nullptr;  // counted by itself: posting allocates nothing
};

/// Waits until one of these transfers, best all of one engine, is done. Its index, the lowest of several;
/// transfers.size() if none was in time. A handle that names no transfer counts as done.
[[nodiscard]] FAIRLEAD_EXPORT std::size_t wait_any(std::span<const Transfer> transfers,
                                                   std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());
/// Waits until all of them are done. ok, or the first failure in their order; kDeadlineExceeded of the wait.
FAIRLEAD_EXPORT Status wait_all(std::span<const Transfer> transfers,
                                std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

/// A checked descriptor list that can be posted again and again without being checked again. A counted handle.
class FAIRLEAD_EXPORT Prepared : public Handle {
 public:
  using Handle::Handle;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  /// How many descriptors it was made of.
  [[nodiscard]] std::size_t size() const noexcept;
};

}  // namespace fairlead::inline v0
