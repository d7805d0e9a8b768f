// Cores: how fast they run, which are this process's, and who else takes their time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/system/cgroup.h"
#include "doctor/checks.h"

namespace fairlead::doctor {
namespace {

constexpr std::string_view kCpus = "/sys/devices/system/cpu";

/// Numbers of a list like "0-3,8", as far as there are cores; what is no number is left out.
std::vector<std::uint64_t> numbers_of(std::string_view list) {
  constexpr std::size_t kMost = 65536;
  std::vector<std::uint64_t> numbers;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view part = list.substr(0, comma);
    const auto first = leading_number(part);
    const std::size_t dash = part.find('-');
    const auto last = dash == part.npos ? first : leading_number(part.substr(dash + 1));
    for (std::uint64_t i = first.value_or(1); first && last && i <= *last && numbers.size() < kMost; ++i) {
      numbers.push_back(i);
    }
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return numbers;
}

std::size_t count_cores(const Subject& subject) {
  return numbers_of(subject.files.line("/sys/devices/system/cpu/online").value_or("")).size();
}

Finding cpu_governor(const Subject& subject) {
  std::map<std::string, std::size_t> governors;
  for (const std::string& name : plain_names(subject.files, kCpus)) {
    const auto governor = subject.files.line(fmt::format("{}/{}/cpufreq/scaling_governor", kCpus, name));
    if (governor) ++governors[*governor];
  }
  if (governors.empty()) return not_here("the kernel does not set the cores' frequency here");
  std::string seen;
  for (const auto& [governor, cores] : governors) {
    seen += fmt::format("{}{} on {} core{}", seen.empty() ? "" : ", ", governor, cores, cores == 1 ? "" : "s");
  }
  if (governors.size() == 1 && governors.begin()->first == "performance") return fine(seen);
  return advice(seen, {"cpupower frequency-set -g performance"});
}

Finding isolated_cores(const Subject& subject) {
  const std::string list = subject.files.line(fmt::format("{}/isolated", kCpus)).value_or("");
  const std::vector<std::uint64_t> isolated = numbers_of(list);
  if (isolated.empty()) return not_here("no core is isolated");
  const std::string allowed = subject.files.field("/proc/self/status", "Cpus_allowed_list").value_or("");
  const std::vector<std::uint64_t> ours = numbers_of(allowed);
  const auto usable = std::count_if(isolated.begin(), isolated.end(), [&ours](std::uint64_t core) {
    return std::find(ours.begin(), ours.end(), core) != ours.end();
  });
  const std::string seen = fmt::format("{} are isolated, this process may use {}", list, allowed);
  if (usable != 0 || !is_plain(list) || !is_plain(allowed)) return fine(seen);
  return advice(seen, {fmt::format("taskset --cpu-list {},{} PROGRAM", allowed, list)});
}

Finding cpu_quota_check(const Subject& subject) {
  const double quota = cpu_quota(subject.files);
  if (quota <= 0) return not_here("no control group limits this process's CPU time");
  std::uint64_t throttled = 0;
  for (const CgroupFolder& folder : cgroup_folders(subject.files, "cpu")) {
    subject.files.each_line(folder.path + "/cpu.stat", [&throttled](std::string_view line) {  // "nr_throttled 7"
      if (line.starts_with("nr_throttled ")) throttled += leading_number(line.substr(13)).value_or(0);
      return true;
    });
  }
  const std::size_t cores = count_cores(subject);
  const std::string seen = fmt::format("{:.2f} of {} cores, held back in {} periods", quota, cores, throttled);
  if (throttled == 0 && (cores == 0 || quota >= static_cast<double>(cores))) return fine(seen);
  return advice(seen, {"# raise the quota: docker run --cpus, systemd CPUQuota=, resources.limits.cpu of Kubernetes",
                       "# or use fewer lanes (--lanes), and let idle threads sleep sooner (EngineConfig::spin)"});
}

Finding steal_time(const Subject& subject) {
  const std::vector<std::string> words = split_blanks(subject.files.line("/proc/stat").value_or(""));
  constexpr std::size_t kSteal = 8;  // "cpu user nice system idle iowait irq softirq steal guest guest_nice"
  if (words.size() <= kSteal || words[0] != "cpu") return not_here("/proc/stat does not say");
  double total = 0;
  for (std::size_t i = 1; i <= kSteal; ++i) total += static_cast<double>(leading_number(words[i]).value_or(0));
  const double steal = static_cast<double>(leading_number(words[kSteal]).value_or(0));
  if (total <= 0) return not_here("/proc/stat counts nothing yet");
  const double percent = 100 * steal / total;
  const std::string seen =
      fmt::format("{:.1f} % of the CPU time since boot went to other machines of the host", percent);
  constexpr double kMuch = 2;
  if (percent < kMuch) return fine(seen);
  return advice(seen, {"# ask for reserved cores, or for a host with fewer guests"});
}

Finding clock_source(const Subject& subject) {
  constexpr std::string_view kFolder = "/sys/devices/system/clocksource/clocksource0";
  const std::string source = subject.files.line(fmt::format("{}/current_clocksource", kFolder)).value_or("");
  if (source.empty()) return not_here("the kernel does not say");
  constexpr std::array<std::string_view, 4> kFast = {"tsc", "kvm-clock", "arch_sys_counter",
                                                     "hyperv_clocksource_tsc_page"};
  if (std::find(kFast.begin(), kFast.end(), source) != kFast.end()) return fine(source);
  const std::vector<std::string> others =
      split_blanks(subject.files.line(fmt::format("{}/available_clocksource", kFolder)).value_or(""));
  const auto better = std::find_first_of(others.begin(), others.end(), kFast.begin(), kFast.end());
  if (better == others.end()) return advice(source, {"# look for why the TSC was given up: dmesg | grep -i tsc"});
  return advice(source, {fmt::format("echo {} > {}/current_clocksource", *better, kFolder)});
}

constexpr Check kChecks[] = {
    {"cpu-governor", "`/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`",
     "Cores that slow down between packets wake slowly; latency shows it first.", cpu_governor},
    {"isolated-cores", "`/sys/devices/system/cpu/isolated` and this process's affinity",
     "Cores that the scheduler leaves alone are the best for lanes, if this process may use them.", isolated_cores},
    {"cpu-quota", "`cpu.max` or `cpu.cfs_quota_us` of this process's control groups",
     "A thread that polls uses its quota up, and is then stopped for the rest of the period.", cpu_quota_check},
    {"steal-time", "`/proc/stat`", "While the host runs other guests on a core, that core's lane stands still.",
     steal_time},
    {"clock-source", "`/sys/devices/system/clocksource`",
     "Each look at the clock is a system call, or slower, where the TSC is not used; timers look often.", clock_source},
};

}  // namespace

std::span<const Check> cpu_checks() { return kChecks; }

}  // namespace fairlead::doctor
