// The server's side of push and pull: one state per client, driven by the engine's events.
//
// Bytes from clients are never trusted: a client that breaks the protocol is told why and closed, and what it held is
// freed; others do not notice. Threads: one, but for the counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/model_store.h"
#include "fairlead/engine.h"

namespace fairlead::cli {

/// For /metrics. Written by the server's thread, read by any.
struct ServeCounters {
  std::atomic<std::uint64_t> clients{0}, received_bytes{0};
  std::atomic<std::uint64_t> pushes_verified{0}, pushes_failed{0}, pushes_refused{0}, pushes_abandoned{0};
  std::atomic<std::uint64_t> tensors_verified{0}, tensors_failed{0};
};

/// When a tensor's checksum is computed.
enum class Check : std::uint8_t {
  kAtEnd,      // after the last tensor: the transfer's processor time is then free of it
  kOnArrival,  // as its notification is delivered: finds a notification that came before its data
};

class PushServer {
 public:
  /// All must outlive the server.
  PushServer(ModelStore* store, Console* console, ServeCounters* counters, Check check);
  ~PushServer();

  void on_connected(const Peer& peer);
  void on_event(const Peer& peer, const Event& event);
  /// Clients that came and went.
  [[nodiscard]] std::uint64_t clients_ended() const noexcept { return ended_; }

 private:
  struct Push;
  struct Client;

  /// Greets who is new: the engine may deliver a client's events before accept() gives the client.
  Client& client_of(const Peer& peer);
  void show_path(Client& client);
  void on_message(Client& client, const Event& event);
  void on_notification(Client& client, std::uint64_t index);
  void on_closed(Client& client, const Status& status);

  void handle(Client& client, PushBegin message);
  void handle(Client& client, TensorBatch message);
  void handle(Client& client, const PushFinish& message);
  void handle(Client& client, const PullBegin& message);
  void handle(Client& client, const PullFinish& message);
  void handle(Client& client, const ListModels& message);
  template <typename Unexpected>
  void handle(Client& client, const Unexpected&) {
    misbehaved(client, "a message that only a server sends");
  }

  void begin_receiving(Client& client);
  void send(Client& client, const PushMessage& message);
  void refuse(Client& client, const Status& status);
  void misbehaved(Client& client, std::string_view what);

  ModelStore* store_;
  Console* console_;
  ServeCounters* counters_;
  Check check_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::uint64_t ended_ = 0;
  std::uint64_t next_push_ = 1;
};

}  // namespace fairlead::cli
