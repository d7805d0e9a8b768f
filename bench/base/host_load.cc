#include "bench/base/host_load.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

namespace fairlead::bench {
namespace {

constexpr double kBusy = 0.1, kStolen = 0.02;  // of all CPUs' time
constexpr std::chrono::milliseconds kLook{200};

}  // namespace

std::optional<CpuTicks> cpu_ticks(const SystemFiles& files) {
  const std::vector<std::string> words = split_blanks(files.line("/proc/stat").value_or(""));
  if (words.size() < 9 || words[0] != "cpu") return std::nullopt;
  const auto ticks = [&words](std::size_t i) { return leading_number(words[i]).value_or(0); };
  return CpuTicks{.user = ticks(1) + ticks(2),
                  .system = ticks(3),
                  .softirq = ticks(7),
                  .irq = ticks(6),
                  .idle = ticks(4) + ticks(5),
                  .steal = ticks(8)};
}

std::vector<std::string> busy_warnings(const CpuTicks& before, const CpuTicks& after, const SystemFiles& files) {
  std::vector<std::string> warnings;
  const auto all = static_cast<double>(after.all() - before.all());
  const double idle = all > 0 ? static_cast<double>(after.idle - before.idle) / all : 1;
  const double stolen = all > 0 ? static_cast<double>(after.steal - before.steal) / all : 0;
  if (1 - idle - stolen > kBusy) {
    warnings.push_back(
        fmt::format("other programs use {:.0f} % of this machine's processors: end them, or measure longer",
                    (1 - idle - stolen) * 100));
  }
  if (stolen > kStolen) {
    warnings.push_back(
        fmt::format("{:.0f} % of the processors' time goes to other guests of the same host (steal)", stolen * 100));
  }
  const std::string governor =
      files.line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").value_or("performance");
  if (governor != "performance") {
    warnings.push_back(
        fmt::format("the processors' frequency follows the governor '{}': cpupower frequency-set -g performance "
                    "makes it steady",
                    governor));
  }
  return warnings;
}

std::vector<std::string> busy_warnings() {
  const SystemFiles files;
  const auto before = cpu_ticks(files);
  std::this_thread::sleep_for(kLook);
  const auto after = cpu_ticks(files);
  if (!before || !after) return {};
  return busy_warnings(*before, *after, files);
}

}  // namespace fairlead::bench
