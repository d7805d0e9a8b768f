// The passive end of a measurement: gives memory, counts, echoes, checks. Serves any number of initiators in turn or at
// once; what they ask comes from the network and is bounded. The messages: docs/benchmarks.md.
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/base/json.h"
#include "fairlead/engine.h"

namespace fairlead::bench {

class Target {
 public:
  explicit Target(Engine* engine);
  ~Target();

  /// Serves until `once` and the first initiator has gone (else for ever). While an initiator measures latency it
  /// spins. Not ok if that initiator never got as far as a session.
  Status serve(bool once);

 private:
  struct Client;

  Client* client_of(const Peer& peer);
  void echo_arrivals(Client& client);
  void on_event(const Peer& peer, const Event& event);
  void on_control(Client& client, const Event& event);
  /// The answer's fields, or why not.
  Result<Json::Object> answer(Client& client, const std::string& type, const Json& request);
  Result<Json::Object> prepare(Client& client, const Json& request);

  Engine* engine_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::uint64_t next_region_ = 1;
  std::uint64_t gone_ = 0;
};

}  // namespace fairlead::bench
