#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "fairlead/softroce.h"

namespace fairlead::cli {
namespace {

Status check(const SoftroceConfig& settings, const std::vector<std::string>& system) {
  if (std::find(system.begin(), system.end(), settings.name) != system.end()) {
    return {Code::kInvalidArgument,
            fmt::format("--device {} is the name of a device of the system, which the program sees anyway; give "
                        "softroce's another, such as soft0",
                        settings.name)};
  }
  return settings.validate();
}

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

void say_devices(const std::string& program, const SoftroceConfig& settings, const std::vector<std::string>& system) {
  const bool own_wire = !settings.packet_io.starts_with("udp");
  const std::string address = !settings.address.empty() ? settings.address
                              : own_wire                ? "the port's own"
                                                        : "the first free address of 127.0.0.0/8";
  fmt::print(stderr, "fairlead run: {} will see {} (softroce, {}{}, GID index 1 is {}); devices of the system: {}\n",
             std::filesystem::path(program).filename().string(), settings.name, settings.packet_io,
             settings.profile == "full" ? "" : ", profile " + settings.profile, address,
             system.empty() ? "none" : fmt::format("{}", fmt::join(system, ", ")));
}

// Comes back only with an error.
Status execute(const std::string& path, Words words) {
  for (const int ignored : {SIGPIPE, SIGXFSZ}) std::signal(ignored, SIG_DFL);  // and would be by that program
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const char* word : words) arguments.push_back(const_cast<char*>(word));
  arguments.push_back(nullptr);
  ::execv(path.c_str(), arguments.data());
  return {Code::kUnavailable, fmt::format("cannot start {}: {}", path, std::strerror(errno))};
}

}  // namespace

int run_command(Words words) {
  const auto dashes = std::find_if(words.begin(), words.end(), [](std::string_view word) { return word == "--"; });
  const auto split = static_cast<std::size_t>(dashes - words.begin());
  SoftroceConfig settings;
  Args args("run",
            "Starts an unmodified verbs program that finds softroce, the software RoCE v2 device, among its devices:\n"
            "fairlead run [FLAGS] -- PROGRAM [ARGS]",
            "Examples:\n"
            "  fairlead run -- ibv_devinfo -v\n"
            "  fairlead run -- ib_write_bw -d soft0 -x 1\n"
            "  fairlead run --packet-io udp,drop=0.01 -- ib_write_bw -d soft0 -x 1 127.0.0.1\n\n"
            "The exit code is the program's; 127 if it cannot be started.");
  args.option("--soft-device,--device", "NAME", "What the device is called (default soft0)", set_text(&settings.name));
  args.option("--packet-io", "PORT",
              "Packet port: udp, memif,role=server|client,socket=NAME, or dpdk:DEVICE; with faults "
              "udp,drop=0.01,reorder=0.01,seed=7,silent_after=N (default udp)",
              set_text(&settings.packet_io));
  args.option("--soft-profile,--profile", "P", "Feature set: full or pvrdma (default full)",
              set_choice(&settings.profile, {"full", "pvrdma"}));
  args.option("--soft-address,--address", "IP",
              "The address behind GID index 1 (default: the first free one of 127.0.0.0/8)",
              set_text(&settings.address));
  constexpr const char* kHow = "give the program after '--': fairlead run [FLAGS] -- PROGRAM [ARGS]";
  if (dashes == words.end()) args.strangers(kHow);
  if (const auto exit = args.parse(words.first(split))) return *exit;
  if (dashes == words.end() || dashes + 1 == words.end()) {
    return args.usage_error(fmt::format("no program; {}", kHow));
  }

  constexpr int kNotStarted = 127;  // as shells say it
  Console console("run");
  const std::vector<std::string> system = system_devices();
  if (const Status status = check(settings, system); !status.ok()) return args.usage_error(status.message());
  const auto libraries = find_dropin(own_folder());
  const auto program = libraries ? find_program(*(dashes + 1)) : libraries.error();
  const Status status = program ? check_preloadable(*program) : program.error();
  if (!status.ok()) {
    console.error(status.message());
    return kNotStarted;
  }
  set("FAIRLEAD_SOFT_DEVICE", settings.name);
  set("FAIRLEAD_SOFT_PROFILE", settings.profile);
  set("FAIRLEAD_PACKET_IO", settings.packet_io);
  set("FAIRLEAD_SOFT_ADDRESS", settings.address);
  for (const auto& [name, value] : loader_environment(*libraries)) set(name.c_str(), value);
  say_devices(*program, settings, system);
  console.error(execute(*program, words.subspan(split + 1)).message());
  return kNotStarted;
}

}  // namespace fairlead::cli
