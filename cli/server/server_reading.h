// What a server says of itself at /status (status_page.h), read back, and how fast it changes from one reading to the
// next. Pure: text to values. What is missing is 0 or empty; what is of no kind that is known is passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::cli {

struct TransportReading {
  std::string transport;
  std::uint64_t lane = 0, paths = 0, paths_lost = 0, in_flight = 0;
  std::optional<std::uint64_t> retransmissions = {};  // where the transport says
  std::uint64_t bytes_sent = 0, bytes_received = 0, requests = 0;
  double sent = 0, received = 0, posted = 0;  // a second: bytes, bytes, requests
};
struct ClientReading {
  std::string name, principal, address, transport, path, doing, model;
  std::uint64_t bytes = 0, arrived = 0, arrived_ever = 0;
  double received = 0;  // bytes a second, by what has arrived whole
};
struct ModelReading {
  std::string name, owner;
  std::uint64_t tensors = 0, bytes = 0;
};
struct ServerReading {
  std::string service, version, state, listen;
  std::uint64_t process = 0, sessions = 0, sessions_lost = 0, recoveries = 0, failovers = 0;
  std::uint64_t registered_bytes = 0, model_bytes = 0, model_bytes_limit = 0;
  double up_seconds = 0;
  std::vector<TransportReading> transports;
  std::vector<ClientReading> clients;
  std::vector<ModelReading> models;
};

/// Errors: kDataLoss, it is no JSON, or of no server.
Result<ServerReading> read_server(std::string_view page);

/// Fills in what happens a second, from `before` to `now`, `seconds` later. What was not there before began at 0; so
/// did a server that was started anew.
void set_rates(const ServerReading& before, ServerReading& now, double seconds);

}  // namespace fairlead::cli
