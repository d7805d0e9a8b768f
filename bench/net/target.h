// The passive end of a measurement: gives memory, counts, echoes, checks. Serves any number of initiators in turn or at
// once; what they ask comes from the network and is bounded. The messages: docs/benchmarks.md.
// Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/base/json.h"
#include "bench/memory/place.h"
#include "fairlead/engine.h"

namespace fairlead::bench {

class Target {
 public:
  explicit Target(Engine* engine, Place memory = {});
  ~Target();

  /// Serves until `once` and there was an initiator and none is left (else for ever). While an initiator measures
  /// latency it spins. Not ok if that initiator never got as far as a session.
  Status serve(bool once);
  /// Serves `initiator`, a session that is there already, until it asks to end: what comes from others waits. Not ok if
  /// it went before.
  Status serve(const Peer& initiator);

 private:
  struct Client;

  /// A turn: what has come next, if anything, by `next(patience)`. False: nothing within the time to wait.
  bool turn(const std::function<std::pair<Peer, Event>(std::chrono::nanoseconds)>& next);
  Client* client_of(const Peer& peer);
  void echo_arrivals();
  /// Whether there was one.
  static bool echo_arrival(Client& client);
  void on_event(const Peer& peer, const Event& event);
  void on_control(Client& client, const Event& event);
  /// The answer's fields, or why not.
  Result<Json::Object> answer(Client& client, const std::string& type, const Json& request);
  Json::Object facts(Client& client) const;
  Result<Json::Object> prepare(Client& client, const Json& request);

  Engine* engine_;
  Place memory_;  // where what it gives lies
  std::vector<std::unique_ptr<Client>> clients_;
  std::uint64_t next_region_ = 1;
  std::uint64_t gone_ = 0;  // initiators whose session is over
  bool ended_ = false;      // the one that is served asked to
};

}  // namespace fairlead::bench
