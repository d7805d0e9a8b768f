#include "verbs/soft/port/port_spec.h"

#include <fmt/format.h>

#include <charconv>

#include "verbs/soft/port/pcap_port.h"

namespace fairlead::soft {
namespace {

constexpr std::string_view kLegal =
    "udp, then any of drop=P, reorder=P, duplicate=P, corrupt=P (probabilities 0..1), burst=PACKETS, delay_us=N, "
    "seed=N, silent_after=PACKETS, pcap=FILE";

Status refuse(std::string_view word) {
  return {Code::kInvalidArgument, fmt::format("packet_io: cannot understand '{}'; legal: {}", word, kLegal)};
}

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_probability(std::string_view text, double& value) {
  return parse_number(text, value) && value >= 0 && value <= 1;
}

bool apply(std::string_view key, std::string_view value, PortSpec& spec) {
  FaultConfig& faults = spec.faults;
  if (key == "pcap") return !(spec.pcap = value).empty();
  if (key == "burst") return parse_number(value, faults.burst) && faults.burst > 0;
  if (key == "drop") return parse_probability(value, faults.drop);
  if (key == "reorder") return parse_probability(value, faults.reorder);
  if (key == "duplicate") return parse_probability(value, faults.duplicate);
  if (key == "corrupt") return parse_probability(value, faults.corrupt);
  if (key == "seed") return parse_number(value, faults.seed);
  if (key == "silent_after") return parse_number(value, faults.silent_after);
  if (key != "delay_us") return false;
  std::uint32_t microseconds = 0;
  if (!parse_number(value, microseconds)) return false;
  faults.delay = microseconds * kMicrosecond;
  return true;
}

}  // namespace

Result<PortSpec> parse_port_spec(std::string_view text) {
  PortSpec spec;
  bool first = true;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    if (first) {
      if (word != "udp") return refuse(word);
      first = false;
    } else {
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos || !apply(word.substr(0, equals), word.substr(equals + 1), spec)) {
        return refuse(word);
      }
    }
    if (comma == std::string_view::npos) return spec;
    text.remove_prefix(comma + 1);
  }
}

Result<std::unique_ptr<PacketPort>> decorate(std::unique_ptr<PacketPort> port, const PortSpec& spec) {
  if (spec.faults.any()) port = std::make_unique<FaultPort>(std::move(port), spec.faults);
  if (spec.pcap.empty()) return port;
  const auto file = PcapFile::open(spec.pcap);
  if (!file) return file.error();
  return std::unique_ptr<PacketPort>(std::make_unique<PcapPort>(std::move(port), **file));
}

}  // namespace fairlead::soft
