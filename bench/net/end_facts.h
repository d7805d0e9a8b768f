// What an end of a measurement is: its host, its process, and what its sockets may hold. The target tells the initiator
// (request `facts`, docs/benchmarks.md), so that a report has both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/base/host.h"
#include "bench/base/json.h"
#include "bench/memory/place.h"
#include "fairlead/config.h"

namespace fairlead::bench {

struct EndFacts {
  HostInfo host;
  std::uint64_t process = 0;                     // its id
  std::uint64_t tcp_buffer = 0, udp_buffer = 0;  // that a receiving socket may come to, bytes
  std::uint64_t lanes = 0;                       // of its engine
  std::string memory;                            // where what it gives lies, "cuda:0"; empty: an older one does not say
  std::string cores;                             // that its process may run on, "0-3"; empty: an older one does not say
  std::vector<std::string> warnings;  // what speaks against measuring there, if it was asked twice (target.h)
};

[[nodiscard]] EndFacts own_facts(const EngineConfig& config, Place memory = {});
/// {"host", "process", "tcp_buffer", "udp_buffer", "lanes", "memory", "cores", "warnings"}
[[nodiscard]] Json::Object to_json(const EndFacts& facts);
/// Of what to_json() wrote at the other end. Errors: kDataLoss naming a field that is not there.
Result<EndFacts> end_facts(const Json& answer);

}  // namespace fairlead::bench
