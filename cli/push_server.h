// The server's side of push and pull: one state per client, driven by the engine's events.
//
// Bytes from clients are never trusted: a client that breaks the protocol is told why and closed, and what it held is
// freed; others do not notice. What takes long (to map and clear memory, to check sums) is done by a thread per push.
// Threads: one, but for those and the counters. push_server.cc: who comes, asks, is refused and goes, and pulls;
// push_server_pushes.cc: a push, from its announcement to its result.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "cli/base/console.h"
#include "cli/models/model_disk.h"
#include "cli/models/model_store.h"
#include "cli/server/serve_counters.h"
#include "fairlead/engine.h"

namespace fairlead::cli {

struct Push;  // cli/server/push.h

/// When a tensor's checksum is computed.
enum class Check : std::uint8_t {
  kAtEnd,      // after the last tensor: the transfer's processor time is then free of it
  kOnArrival,  // as its notification is delivered: finds a notification that came before its data
};

/// A client as others may see it.
struct ClientView {
  std::string name, principal, address, transport, path;
  std::string doing;                         // "push", "pull" or nothing
  std::string model;                         // of what it does
  std::uint64_t bytes = 0, arrived = 0;      // of the model, and of that what has come; of a pull nobody sees it
  std::uint64_t arrived_ever = 0, lane = 0;  // of all its pushes
};

class PushServer {
 public:
  /// Tests replace them.
  struct Settings {
    Check check = Check::kAtEnd;
    ModelDisk* disk = nullptr;                  // where verified models are kept, too; null: nowhere
    bool shared = false;                        // a model is everybody's, not the principal's who pushed it
    std::chrono::milliseconds stalled{60'000};  // a push in which nothing arrives for so long gives way to others
    void (*populate)(std::span<std::byte>, const std::stop_token&) noexcept = &memreg::populate;
  };
  /// All must outlive the server.
  PushServer(ModelStore* store, Console* console, ServeCounters* counters, Settings settings);
  ~PushServer();

  void on_connected(const Peer& peer);
  void on_event(const Peer& peer, const Event& event);
  /// Readable when progress() has something to do.
  [[nodiscard]] int wake_fd() const noexcept { return wake_.get(); }
  /// Goes on with the pushes whose threads are done.
  void progress();
  /// From now on pushes and pulls that would begin are refused; those under way go on, and who has none is told.
  void drain();
  /// Whether a push or a pull is under way, or an answer has not reached its client (that the server drains: for a
  /// second, since that is not what anybody asked for).
  [[nodiscard]] bool busy();
  /// From any thread.
  [[nodiscard]] std::vector<ClientView> clients() const;
  /// Clients that came and went.
  [[nodiscard]] std::uint64_t clients_ended() const noexcept { return ended_; }

 private:
  struct Client;

  /// Greets who is new: the engine may deliver a client's events before accept() gives the client.
  Client& client_of(const Peer& peer);
  void show_path(Client& client);
  void on_message(Client& client, const Event& event);
  void on_notification(Client& client, std::uint64_t index);
  void on_closed(Client& client, const Status& status);

  void handle(Client& client, PushBegin message);
  void handle(Client& client, ModelFile message);
  void handle(Client& client, TensorBatch message);
  void handle(Client& client, PushFinish message);
  void handle(Client& client, const PullBegin& message);
  void handle(Client& client, const PullFinish& message);
  void handle(Client& client, const ListModels& message);
  template <typename Unexpected>
  void handle(Client& client, const Unexpected&) {
    misbehaved(client, "a message that only a server sends");
  }

  /// Whose models it has.
  [[nodiscard]] std::string owner_for(const Client& client) const;
  Status reserve(Client& client, std::uint64_t bytes);
  void prepare_if_described(Client& client);
  void begin_receiving(Client& client);
  void finish(Client& client);
  /// Runs `work` on the push's thread, which hands back when progress() is to go on.
  void run(Push& push, std::function<void(const std::stop_token&)> work);
  void hand_back(Push& push);
  /// Frees a push that comes to nothing: now, or in progress() once its thread has ended. Whether it is free already.
  bool abandon(std::unique_ptr<Push> push);
  void send(Client& client, const PushMessage& message);
  /// Keeps a verified model, in memory and on disk. Gives why not.
  Status keep(Push& push, Refused* why);
  [[nodiscard]] bool beyond_sessions(const Client& client) const;
  /// Why nothing begins any more.
  [[nodiscard]] static Status ending();
  void tell_draining(Client& client);
  void refuse(Client& client, Status status, Refused why);
  void count_refusal(const Client& client, const Status& status, Refused why);
  void misbehaved(Client& client, std::string_view what);
  void dismiss(Client& client);

  ModelStore* store_;
  Console* console_;
  ServeCounters* counters_;
  Settings settings_;
  UniqueFd wake_;
  mutable std::mutex mutex_;  // who changes clients_ or what one does, or reads it on another thread, holds it
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Push>> abandoned_;  // their threads still run; of the server's thread alone
  std::uint64_t ended_ = 0;
  bool draining_ = false;
  std::chrono::steady_clock::time_point notices_by_{};
  std::uint64_t next_push_ = 1;
};

}  // namespace fairlead::cli
