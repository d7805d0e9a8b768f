// The one place that names the transports under test.
#include <cstdlib>
#include <filesystem>

#include "fairlead/config.h"
#include "shm/factory.h"
#include "tcp_fallback/factory.h"
#include "tests/conformance/transport_fixture.h"
#include "tests/port_under_test.h"
#ifdef FAIRLEAD_WITH_VERBS
#include "verbs/transport/factory.h"
#endif

namespace fairlead::conformance {
namespace {

#ifdef FAIRLEAD_WITH_VERBS
// Its name is anybody's choice; the attribute names the network interface below, and no other driver has it.
bool is_linux_rxe(const std::string& device) {
  return std::filesystem::exists("/sys/class/infiniband/" + device + "/parent");
}

TransportCase device_of_this_machine(const std::string& device) {
  VerbsConfig config;
  config.retry_count = 6;  // of 7 Linux rxe never gives up: only RNR retries should be endless then
  return {.name = device,
          .open = [config, device] { return verbs::open_device(device, config); },
          .linux_rxe = is_linux_rxe(device)};
}

#endif

}  // namespace

std::vector<TransportCase> transport_cases() {
  std::vector<TransportCase> cases;
#ifdef FAIRLEAD_WITH_VERBS
  // A device of this machine instead, by its name in ibv_devices.
  if (const char* device = std::getenv("FAIRLEAD_CONFORMANCE_DEVICE")) {
    cases.push_back(device_of_this_machine(device));
    return cases;
  }
#endif
  if (!test::over_memif()) {
    cases.push_back({.name = "tcp", .open = [] { return tcp_fallback::open_device(TcpConfig{}); }});
    cases.push_back({.name = "shm", .open = [] { return shm::open_device(ShmConfig{}); }});
    cases.push_back(
        {.name = "shm_rings", .open = [] { return shm::open_device(ShmConfig{.directory = {}, .pull = false}); }});
    cases.push_back(fake_case());
  }
#ifdef FAIRLEAD_WITH_VERBS
  for (const char* profile : {"full", "pvrdma"}) {
    cases.push_back({.name = std::string("soft0_") + profile, .open = [profile] {
                       VerbsConfig config;
                       config.profile = profile;
                       config.packet_io = test::port_under_test();
                       return verbs::open_device("soft0", config);
                     }});
  }
#endif
  return cases;
}

}  // namespace fairlead::conformance
