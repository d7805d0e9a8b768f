#include "cli/tenants/tenant_rates.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace fairlead::cli {
namespace {

using Labels = std::map<std::string, std::string, std::less<>>;

struct Line {
  std::string_view name;
  Labels labels;
  double value = 0;
};

/// NAME{label="value",...} NUMBER, as Prometheus writes it. Nothing: it is none.
std::optional<Line> read_line(std::string_view text) {
  Line line;
  const std::size_t end = text.find_first_of("{ ");
  if (end == std::string_view::npos || text.starts_with('#')) return std::nullopt;
  line.name = text.substr(0, end);
  text.remove_prefix(end);
  if (text.starts_with('{')) {
    text.remove_prefix(1);
    while (!text.starts_with('}')) {
      const std::size_t equals = text.find("=\"");
      if (equals == std::string_view::npos) return std::nullopt;
      const std::string name(text.substr(0, equals));
      text.remove_prefix(equals + 2);
      std::string value;
      for (; !text.empty() && text.front() != '"'; text.remove_prefix(1)) {
        if (text.front() == '\\' && text.size() > 1) text.remove_prefix(1);
        value += text.front();
      }
      if (text.empty()) return std::nullopt;
      text.remove_prefix(1);
      if (text.starts_with(',')) text.remove_prefix(1);
      line.labels.insert_or_assign(name, std::move(value));
    }
    text.remove_prefix(1);
  }
  if (!text.starts_with(' ')) return std::nullopt;
  text.remove_prefix(1);
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), line.value);
  if (error != std::errc()) return std::nullopt;
  return line;
}

template <typename Take>
void each_line(std::string_view exposition, Take taken) {
  while (!exposition.empty()) {
    const std::size_t end = exposition.find('\n');
    const std::optional<Line> line = read_line(exposition.substr(0, end));
    exposition = end == std::string_view::npos ? std::string_view() : exposition.substr(end + 1);
    if (line) taken(*line);
  }
}

/// Of several devices, or tenants, it is the sum.
void take(const Line& line, TenantReading& to) {
  constexpr std::string_view kPrefix = "fairlead_tenant_";
  const std::string_view name = line.name.substr(kPrefix.size());
  const auto label = [&line](std::string_view of) {
    const auto found = line.labels.find(of);
    return found != line.labels.end() ? std::string_view(found->second) : std::string_view();
  };
  if (name == "sessions") to.sessions += line.value;
  if (name == "sessions_away") to.away += line.value;
  if (name == "memory_bytes") to.memory_bytes += line.value;
  if (name == "commands_waiting") to.waiting += line.value;
  if (name == "commands_total") to.commands += line.value;
  if (name == "service_seconds_total") to.service_seconds += line.value;
  if (name == "rejections_total") to.rejections += line.value;
  if (name == "copied_bytes_total") (label("direction") == "in" ? to.bytes_in : to.bytes_out) += line.value;
  if (name == "failures_total") {
    constexpr std::array<std::string_view, 3> kScopes{"command", "stream", "context"};
    for (std::size_t i = 0; i < kScopes.size(); ++i) {
      if (label("scope") == kScopes[i]) to.failures[i] += line.value;
    }
  }
}

}  // namespace

Result<std::map<std::string, TenantReading>> read_tenants(std::string_view exposition) {
  std::map<std::string, TenantReading> all;
  bool is_gpu_server = false;
  each_line(exposition, [&](const Line& line) {
    is_gpu_server |= line.name == "fairlead_gpu_sessions";
    const auto tenant = line.labels.find("tenant");
    if (line.name.starts_with("fairlead_tenant_") && tenant != line.labels.end()) take(line, all[tenant->second]);
  });
  if (is_gpu_server) return all;
  return Status(Code::kNotFound, "these are no metrics of a GPU server (fairlead serve --gpu ... --metrics HOST:PORT)");
}

std::map<std::string, TenantReading> read_devices(std::string_view exposition) {
  std::map<std::string, std::string> names;
  each_line(exposition, [&](const Line& line) {
    const auto device = line.labels.find("device"), name = line.labels.find("name");
    if (line.name != "fairlead_gpu_device_info" || device == line.labels.end() || name == line.labels.end()) return;
    names[device->second] = device->second + " " + name->second;
  });
  std::map<std::string, TenantReading> all;
  for (const auto& [number, name] : names) all[name];
  each_line(exposition, [&](const Line& line) {
    const auto device = line.labels.find("device");
    const auto name = device != line.labels.end() ? names.find(device->second) : names.end();
    if (line.name.starts_with("fairlead_tenant_") && name != names.end()) take(line, all[name->second]);
  });
  return all;
}

std::vector<TenantRates> rates(const std::map<std::string, TenantReading>& before,
                               const std::map<std::string, TenantReading>& now, double seconds) {
  std::vector<TenantRates> all;
  double served = 0;
  for (const auto& [name, reading] : now) {
    const auto found = before.find(name);
    const TenantReading was = found != before.end() ? found->second : TenantReading();
    const auto rate = [seconds](double is, double earlier) { return (is < earlier ? is : is - earlier) / seconds; };
    TenantRates& each = all.emplace_back();
    each.name = name;
    each.now = reading;
    each.commands = rate(reading.commands, was.commands);
    each.bytes_in = rate(reading.bytes_in, was.bytes_in);
    each.bytes_out = rate(reading.bytes_out, was.bytes_out);
    each.busy = rate(reading.service_seconds, was.service_seconds);
    served += each.busy;
  }
  for (TenantRates& each : all) each.share = served > 0 ? each.busy / served : 0;
  return all;
}

}  // namespace fairlead::cli
