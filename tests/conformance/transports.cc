// The one place that names the transports under test.
#include <cstdlib>

#include "fairlead/config.h"
#include "tcp_fallback/factory.h"
#include "tests/conformance/transport_fixture.h"
#ifdef FAIRLEAD_WITH_VERBS
#include "verbs/factory.h"
#endif

namespace fairlead::conformance {

std::vector<TransportCase> transport_cases() {
  std::vector<TransportCase> cases;
#ifdef FAIRLEAD_WITH_VERBS
  // A device of this machine instead, by its name in ibv_devices.
  if (const char* device = std::getenv("FAIRLEAD_CONFORMANCE_DEVICE")) {
    VerbsConfig config;
    config.retry_count = 6;  // of 7 Linux rxe never gives up: only RNR retries should be endless then
    cases.push_back(
        {.name = device, .open = [config, name = std::string(device)] { return verbs::open_transport(name, config); }});
    return cases;
  }
#endif
  cases.push_back({.name = "tcp", .open = [] { return tcp_fallback::open_transport(TcpConfig{}); }});
#ifdef FAIRLEAD_WITH_VERBS
  for (const char* profile : {"full", "pvrdma"}) {
    VerbsConfig config;
    config.profile = profile;
    cases.push_back(
        {.name = std::string("soft0_") + profile, .open = [config] { return verbs::open_transport("soft0", config); }});
  }
#endif
  return cases;
}

}  // namespace fairlead::conformance
