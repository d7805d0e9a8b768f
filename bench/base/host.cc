#include "bench/base/host.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "base/system/cgroup.h"
#include "base/system/system_files.h"
#include "bench/base/cores.h"

namespace fairlead::bench {

HostInfo host_info() {
  HostInfo host;
  host.cpu_model = "unknown";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      host.cpu_model = line.substr(colon + 2);
      break;
    }
  }
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  host.cores = online > 0 ? static_cast<unsigned>(online) : 0;
  utsname names{};
  if (::uname(&names) == 0) {
    host.kernel = std::string(names.sysname) + " " + names.release;
    host.name = names.nodename;
  }
  const SystemFiles files;
  host.boot = files.line("/proc/sys/kernel/random/boot_id").value_or("");
  const std::size_t usable = own_cores().size();
  host.usable = usable != 0 ? static_cast<unsigned>(usable) : host.cores;
  host.quota = cpu_quota(files);
  return host;
}

Json to_json(const HostInfo& host) {
  return Json::Object{{"cpu_model", host.cpu_model},
                      {"cores", host.cores},
                      {"kernel", host.kernel},
                      {"name", host.name},
                      {"boot", host.boot},
                      {"usable_cores", host.usable},
                      {"cpu_quota", host.quota > 0 ? Json(host.quota) : Json()}};
}

}  // namespace fairlead::bench
