#include "metrics/softroce_metrics.h"

#include <fmt/format.h>

#include <map>

namespace fairlead::metrics {

std::vector<Metric> softroce_metrics(const std::vector<SoftroceDevice>& devices, std::uint32_t process) {
  std::map<std::string, Metric> by_name;
  for (const SoftroceDevice& device : devices) {
    if (device.process != process) continue;
    for (const auto& [counter, value] : device.counters) {
      Metric& metric = by_name[counter];
      metric.name = fmt::format("fairlead_softroce_{}_total", counter);
      metric.help = fmt::format("The softroce counter {}.", counter);
      metric.samples.push_back({static_cast<double>(value), {{"device", device.name}, {"address", device.address}}});
    }
  }
  std::vector<Metric> all;
  for (auto& [name, metric] : by_name) all.push_back(std::move(metric));
  return all;
}

}  // namespace fairlead::metrics
