#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/printable.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/base/engine_options.h"
#include "cli/base/unreachable.h"
#include "cli/commands.h"
#include "cli/resolve.h"
#include "fairlead/cuda.h"
#include "fairlead/engine.h"
#include "fairlead/softroce.h"

namespace fairlead::cli {
namespace {

struct PeerOption {
  std::string host;     // empty: none was named
  std::string address;  // HOST:PORT, if a port was given
};

Setter set_peer(PeerOption* peer) {
  return [peer](std::string_view text) {
    in6_addr unused{};
    const std::string host(text);
    const bool alone = host.find(':') == std::string::npos || ::inet_pton(AF_INET6, host.c_str(), &unused) == 1;
    if (alone && !host.empty()) {
      *peer = {host, ""};
      return Status();
    }
    PeerOption with_port;
    if (Status status = set_host_port(&with_port.address, true)(text); !status.ok()) return status;
    with_port.host = parse_host_port(text)->host;
    *peer = with_port;
    return Status();
  };
}

void print_table(const std::vector<DeviceInfo>& devices) {
  std::size_t name = 9;
  std::size_t address = 7;
  for (const DeviceInfo& device : devices) {
    name = std::max(name, device.transport.size());
    address = std::max(address, device.address.size());
  }
  fmt::print("{:<{}}  {:<6}  {:<{}}  {}\n", "TRANSPORT", name, "USABLE", "ADDRESS", address, "WHY");
  for (const DeviceInfo& device : devices) {
    fmt::print("{:<{}}  {:<6}  {:<{}}  {}{}{}\n", device.transport, name, device.usable ? "yes" : "no", device.address,
               address, device.reason, device.detail.empty() ? "" : "; ", device.detail);
  }
}

void print_placement(const PlacementReport& placement) {
  fmt::print("\nPlacement: {}\n", printable(placement.to_string()));
  for (const PlannedShare& share : placement.shares) {
    if (share.nics.empty()) continue;
    const std::string rate = share.bytes_per_second > 0
                                 ? fmt::format("{}{:.3g} GB/s", share.assumed ? "~" : "", share.bytes_per_second / 1e9)
                                 : "nothing that others could not carry";
    fmt::print("  {} over {}: {}\n", share.transport, printable(fmt::format("{}", fmt::join(share.nics, ", "))), rate);
  }
  for (const std::string& remark : placement.remarks) fmt::print("  {}\n", printable(remark));
}

void print_gpu_memory() {
  const Result<std::vector<CudaDeviceInfo>> devices = cuda_devices();
  if (!devices) {
    fmt::print("\nGPU memory: {}\n", printable(devices.error().message()));
    return;
  }
  fmt::print("\n{:<9}  {}\n", "GPU", "HOW ITS MEMORY CROSSES");
  for (const CudaDeviceInfo& device : *devices) {
    fmt::print("{:<9}  {}; {}\n", device.name, device.how, printable(device.detail));
  }
}

void print_counters(const std::vector<SoftroceDevice>& devices) {
  if (devices.empty()) {
    fmt::print("No program has a softroce device open that says so in {} (which follows XDG_RUNTIME_DIR).\n",
               softroce_directory());
  }
  for (const SoftroceDevice& device : devices) {
    fmt::print("{} {} process {} ({})\n", device.name, device.address, device.process, printable(device.program));
    for (const auto& [name, value] : device.counters) fmt::print("  {:<24}{:>16}\n", name, value);
  }
}

}  // namespace

int devices_command(Words words) {
  Args args(
      "devices",
      "Shows the ways across that this host has, why each is or is not used, and where lanes and memory would be put.",
      "Examples:\n  fairlead devices\n  fairlead devices --peer gpu7        which address and MTU a path to that host "
      "would use\n  fairlead devices --peer gpu7:7471   the same, and which path a session with that server takes, and "
      "why\n  fairlead devices --counters         what every softroce device of this user has counted");
  EngineConfig config;
  PeerOption peer_option;
  add_engine_options(args, &config);
  args.option("--peer", "HOST[:PORT]",
              "Show what a path to this host would use; with a port, connect to its server and explain the path",
              set_peer(&peer_option));
  bool counters = false;
  args.flag("--counters", &counters,
            "Show the counters of the softroce devices that this user's programs have open, instead");
  if (const auto exit = args.parse(words)) return *exit;
  if (counters) {
    print_counters(softroce_devices());
    return kSuccess;
  }

  Console console("devices");
  Result<Engine> engine = Engine::create(config);
  if (!engine) return console.no_engine(engine.error());
  const std::string& peer_address = peer_option.address;
  const Result<std::string> numeric =
      peer_option.host.empty() ? Result<std::string>(std::string()) : numeric_address(peer_option.host);
  if (!numeric) {
    console.error(numeric.error());
    return kFailure;
  }
  print_table(engine->devices(*numeric));
  fmt::print("\nMemory of transfers: {}\n", printable(engine->stats().pool.pages));
  print_placement(engine->placement());
  if (peer_option.host.empty()) print_gpu_memory();
  if (peer_address.empty()) return kSuccess;
  Result<Peer> peer = engine->connect(peer_address);
  const Status ready = peer ? peer->wait_ready(config.connect_timeout) : peer.error();
  if (!ready.ok()) {
    console.error(unreachable(peer_address, ready, "fairlead serve"));
    return kFailure;
  }
  fmt::print("\n{}\n", printable(fmt::format("{} ({}): {}", peer_address, peer->name(), peer->explain())));
  peer->close();
  return kSuccess;
}

}  // namespace fairlead::cli
