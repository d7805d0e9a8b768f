#include <fmt/format.h>

#include "base/version/build_info.h"
#include "cli/base/args.h"
#include "cli/commands.h"

namespace fairlead::cli {

int version_command(Words words) {
  Args args("version", "Shows what this program was built from.", "Example:\n  fairlead version");
  if (const auto exit = args.parse(words)) return *exit;
  const BuildInfo& build = build_info();
  fmt::print("fairlead {}\ncommit     {}\nbuild      {}, {}{}{}\n", build.version, build.commit, build.build_type,
             build.compiler, build.sanitizers.empty() ? "" : ", sanitizers ", build.sanitizers);
  fmt::print(
      "transports verbs (libibverbs.so.1 where it is installed, softroce over UDP everywhere), shm, tcp\n"
      "metrics    Prometheus text format (fairlead serve --metrics)\n");
  return kSuccess;
}

}  // namespace fairlead::cli
