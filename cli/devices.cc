#include <fmt/format.h>

#include <algorithm>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/engine_options.h"
#include "fairlead/engine.h"
#include "verbs/soft/counter_page.h"
#include "verbs/soft/live_devices.h"

namespace fairlead::cli {
namespace {

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

void print_counters(const std::vector<soft::LiveDevice>& devices) {
  if (devices.empty()) {
    fmt::print("No program has a softroce device open that says so in {} (which follows XDG_RUNTIME_DIR).\n",
               soft::counter_directory());
  }
  for (const soft::LiveDevice& device : devices) {
    fmt::print("{} {} process {} ({})\n", device.name, device.address, device.process, device.program);
    for (const auto& [name, value] : device.counters) fmt::print("  {:<24}{:>16}\n", name, value);
  }
}

}  // namespace

int devices_command(Words words) {
  Args args(
      "devices", "Shows the ways across that this host has, and why each is or is not used.",
      "Examples:\n  fairlead devices\n  fairlead devices --peer gpu7:7471   which path a session with that server "
      "takes, and why\n  fairlead devices --counters         what every softroce device of this user has counted");
  EngineConfig config;
  std::string peer_address;
  add_engine_options(args, &config);
  args.option("--peer", "HOST:PORT", "Connect to this server and explain the path", set_host_port(&peer_address, true));
  bool counters = false;
  args.flag("--counters", &counters,
            "Show the counters of the softroce devices that this user's programs have open, instead");
  if (const auto exit = args.parse(words)) return *exit;
  if (counters) {
    print_counters(soft::live_devices());
    return kSuccess;
  }

  Console console("devices");
  Result<Engine> engine = Engine::create(config);
  if (!engine) return console.no_engine(engine.error());
  print_table(engine->devices());
  if (peer_address.empty()) return kSuccess;
  Result<Peer> peer = engine->connect(peer_address);
  const Status ready = peer ? peer->wait_ready(config.connect_timeout) : peer.error();
  if (!ready.ok()) {
    console.error(fmt::format("cannot reach {}: {}", peer_address, ready.to_string()));
    return kFailure;
  }
  fmt::print("\n{} ({}): {}\n", peer_address, peer->name(), peer->explain());
  peer->close();
  return kSuccess;
}

}  // namespace fairlead::cli
