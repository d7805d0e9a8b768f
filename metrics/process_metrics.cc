#include "metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <optional>

namespace fairlead::metrics {
namespace {

// Fields of /proc/PID/stat behind the command's name, which may hold anything; the first of them is the third
// (proc(5)).
enum Field : std::size_t {
  kUserTime = 11,
  kSystemTime = 12,
  kThreads = 17,
  kStartTime = 19,
  kVirtual = 20,
  kResident = 21
};

std::optional<std::uint64_t> boot_time(const SystemFiles& files) {
  std::optional<std::uint64_t> seconds;
  files.each_line("/proc/stat", [&](std::string_view line) {
    if (line.starts_with("btime ")) seconds = leading_number(line.substr(6));
    return !seconds;
  });
  return seconds;
}

}  // namespace

std::vector<Metric> process_metrics(const SystemFiles& files) {
  std::vector<Metric> all;
  const auto add = [&all](const char* name, const char* help, Kind kind, double value) {
    all.push_back({name, help, kind, {{value, {}}}});
  };
  const auto size = [&](const char* name, const char* help, const char* field) {
    const auto text = files.field("/proc/self/status", field);
    if (const auto kib = text ? leading_number(*text) : std::nullopt) {
      add(name, help, Kind::kGauge, static_cast<double>(*kib) * 1024);
    }
  };
  const std::string stat = files.line("/proc/self/stat").value_or("");
  const std::vector<std::string> fields = split_blanks(std::string_view(stat).substr(stat.rfind(')') + 1));
  if (fields.size() > kResident) {
    const auto field = [&](Field which) { return static_cast<double>(leading_number(fields[which]).value_or(0)); };
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    add("process_cpu_seconds_total", "Processor time of the process, of its own and of the kernel's for it.",
        Kind::kCounter, (field(kUserTime) + field(kSystemTime)) / ticks);
    add("process_resident_memory_bytes", "Memory of the process that is there.", Kind::kGauge,
        field(kResident) * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    add("process_virtual_memory_bytes", "Memory of the process that has addresses.", Kind::kGauge, field(kVirtual));
    add("process_threads", "Threads of the process.", Kind::kGauge, field(kThreads));
    if (const auto boot = boot_time(files)) {
      add("process_start_time_seconds", "When the process began, since 1970.", Kind::kGauge,
          static_cast<double>(*boot) + field(kStartTime) / ticks);
    }
  }
  size("fairlead_process_locked_bytes", "Memory of the process that is locked (VmLck), which LimitMEMLOCK bounds.",
       "VmLck");
  size("fairlead_process_pinned_bytes", "Memory of the process that drivers have pinned (VmPin).", "VmPin");
  if (files.exists("/proc/self/fd")) {
    add("process_open_fds", "Descriptors that the process has open.", Kind::kGauge,
        static_cast<double>(files.list("/proc/self/fd").size()));
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    add("process_max_fds", "Descriptors that it may have open.", Kind::kGauge, static_cast<double>(limit.rlim_cur));
  }
  return all;
}

}  // namespace fairlead::metrics
