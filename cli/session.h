// A client's session with a server: the engine, the peer, and what push and pull do the same way.
// Threads: one. Errors: every call says when the session has ended, and why.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/base/json.h"
#include "cli/base/console.h"
#include "cli/models/push_protocol.h"
#include "fairlead/engine.h"

namespace fairlead::cli {

/// The facts of the device that carries `transport`, from the engine's list; the transport's name if it has none.
[[nodiscard]] std::string device_of(const Engine& engine, const std::string& transport);

/// One tensor to move: `local` is written to `remote`, or read from it.
struct Move {
  std::string name;
  Memory local;
  RemoteMemory remote;
  std::uint64_t notify = 0;  // writes only
};

struct MoveFigures {
  std::uint64_t bytes = 0;
  double seconds = 0;      // from the first post to the last completion
  double cpu_seconds = 0;  // of this process meanwhile
};

/// Transfers in flight at a time: enough to keep any path busy, little enough that a failure does not leave gigabytes.
inline constexpr std::size_t kMaxInFlight = 256;

class Session {
 public:
  /// Connects and waits until the session is ready. `console` must outlive it.
  static Result<Session> open(Engine engine, const std::string& host_port, Console* console);

  [[nodiscard]] Engine& engine() noexcept { return engine_; }
  [[nodiscard]] Peer& peer() noexcept { return peer_; }
  [[nodiscard]] const std::vector<std::string>& path_changes() const noexcept { return path_changes_; }

  Status send(const PushMessage& message);
  /// What the server said before it ended the session, if that is why something failed; else the failure itself.
  Status reason_for(Status failure);
  /// The next message if it is of this kind; a refusal's status; kDataLoss for another kind.
  template <typename Expected>
  Result<Expected> expect() {
    Result<PushMessage> message = next_message();
    if (!message) return message.error();
    if (auto* expected = std::get_if<Expected>(&*message)) return std::move(*expected);
    if (auto* refusal = std::get_if<Refusal>(&*message)) return std::move(refusal->status);
    return Status(Code::kDataLoss, "the server answered with an unexpected " + std::string(type_name(*message)));
  }
  /// `count` files, whose tensors add up to `tensors`.
  Result<std::vector<ModelFile>> expect_files(std::uint64_t count, std::uint64_t tensors);
  /// Tensors until there are `count` of them.
  Result<std::vector<TensorEntry>> expect_tensors(std::uint64_t count);

  enum class Direction : std::uint8_t { kWrite, kRead };
  /// Waits until `transfer`, of what has this name, is done. Not ok if it failed, or the session has ended.
  Status finish(const Transfer& transfer, const std::string& name);
  /// Many transfers in flight; shows progress. The first failure ends it. `moved` is told of each that is complete, in
  /// order.
  Result<MoveFigures> move(Direction direction, std::span<const Move> moves,
                           const std::function<void(const Move&)>& moved = {});

  [[nodiscard]] Console& console() noexcept { return *console_; }
  /// {"transport", "device", "path_changes"}: the part of the report that every command has.
  void describe(bench::Json::Object& report) const;
  /// Waits a little until the server knows that this was an orderly end.
  void close();

 private:
  Session(Engine engine, Peer peer, Console* console)
      : engine_(std::move(engine)), peer_(std::move(peer)), console_(console) {}
  Transfer post(Direction direction, const Move& one);
  Result<PushMessage> next_message();
  /// Keeps path changes and messages, but no more of those than a few: the rest waits at the server. Not ok once the
  /// session has ended.
  Status take_events(std::chrono::nanoseconds timeout);

  Engine engine_;
  Peer peer_;
  Console* console_;
  std::vector<std::string> path_changes_;
  std::deque<std::vector<std::byte>> messages_;  // that came while something else was awaited
  std::size_t message_bytes_ = 0;
  Status ended_;
};

}  // namespace fairlead::cli
