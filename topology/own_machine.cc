#include "topology/own_machine.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/index_list.h"
#include "topology/hwloc_reader.h"
#include "topology/this_machine.h"

namespace fairlead::topology {
namespace {

/// Of two that read it at once one is kept; it lives as long as the process.
std::atomic<const Machine*> first_reading{nullptr};  // NOLINT

bool holds(const std::vector<unsigned>& sorted, unsigned index) {
  return std::binary_search(sorted.begin(), sorted.end(), index);
}

/// nullopt: the system does not say.
std::optional<std::vector<unsigned>> online_cpus(const std::string& root) {
  std::ifstream file(root + "/sys/devices/system/cpu/online");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  Result<std::vector<unsigned>> online = parse_index_list(line);
  if (!online || online->empty()) return std::nullopt;
  return *std::move(online);
}

}  // namespace

Result<Machine> own_machine() {
  const Machine* known = first_reading.load(std::memory_order_acquire);
  if (known == nullptr) {
    Result<Machine> read = read_this_machine();
    if (!read) return read.error();
    if (!read->this_machine) {
      return Status(Code::kUnavailable,
                    "hwloc was told of another machine (HWLOC_XMLFILE or HWLOC_SYNTHETIC); unset that, or set "
                    "HWLOC_THISSYSTEM=1 if it is this one");
    }
    auto made = std::make_unique<const Machine>(std::move(*read));
    if (first_reading.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) known = made.release();
  }
  Machine machine = *known;
  read_allowed("", &machine);
  read_nic_rates("", &machine);
  read_cpu_quota("", &machine);
  return machine;
}

void read_allowed(const std::string& root, Machine* machine) {
  std::ifstream file(root + "/proc/thread-self/status");
  const std::optional<std::vector<unsigned>> online = online_cpus(root);
  constexpr std::string_view kCpus = "Cpus_allowed_list:", kNodes = "Mems_allowed_list:";
  for (std::string line; std::getline(file, line);) {
    const bool cpus = line.starts_with(kCpus);
    if (!cpus && !line.starts_with(kNodes)) continue;
    const Result<std::vector<unsigned>> allowed = parse_index_list(line.substr(kCpus.size()));
    if (!allowed || allowed->empty()) continue;
    if (!cpus) {
      for (Memory& memory : machine->memories) memory.allowed = holds(*allowed, memory.os_index);
      continue;
    }
    for (Core& core : machine->cores) {
      core.usable_pus.clear();
      std::ranges::copy_if(core.pus, std::back_inserter(core.usable_pus),
                           [&](unsigned pu) { return holds(*allowed, pu) && (!online || holds(*online, pu)); });
    }
  }
}

}  // namespace fairlead::topology
