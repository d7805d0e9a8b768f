// The machines that tests read, and small ones that they make up.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/golden.h"
#include "topology/graph_builder.h"
#include "topology/hwloc_reader.h"
#include "topology/plan.h"

namespace fairlead::topology {

inline std::string test_file(const std::string& name) { return std::string(FAIRLEAD_TOPOLOGY_TESTS) + "/" + name; }

/// machines/NAME.xml; a failed test and an empty machine where it cannot be read.
inline Machine read_machine(const std::string& name) {
  Result<Machine> machine = read_xml_file(test_file("machines/" + name + ".xml"));
  if (machine) return *machine;
  ADD_FAILURE() << machine.error().to_string();
  return {};
}

/// `packages` sockets of `cores` cores and a memory each, with one thread a core.
inline Machine make_machine(std::size_t packages, std::size_t cores) {
  Machine machine;
  machine.name = "made up";
  for (std::size_t p = 0; p < packages; ++p) {
    machine.packages.push_back({.sockets = {static_cast<unsigned>(p)}, .vendor = {}, .model = {}});
    Memory memory{.os_index = static_cast<unsigned>(p), .bytes = 1 << 30};
    for (std::size_t c = 0; c < cores; ++c) {
      const auto pu = static_cast<unsigned>(machine.cores.size());
      memory.cores.push_back(machine.cores.size());
      machine.cores.push_back({.package = p, .pus = {pu}, .usable_pus = {pu}});
    }
    machine.memories.push_back(memory);
  }
  return machine;
}

/// A NIC with RDMA on a host bridge of its own at `package`. Gives its index.
inline std::size_t add_nic(Machine* machine, std::size_t package, double gigabytes, double link = 1000) {
  Bridge bridge{.bus_id = "bridge" + std::to_string(machine->bridges.size()),
                .parent = {},
                .cores = machine->memories[package].cores};
  machine->bridges.push_back(bridge);
  const std::size_t index = machine->devices.size();
  Device nic{.kind = DeviceKind::kNic, .name = "nic" + std::to_string(index), .rdma_devices = {"rdma"}};
  nic.bridge = machine->bridges.size() - 1;
  nic.cores = bridge.cores;
  nic.rate = gigabytes * 1e9;
  nic.link = link * 1e9;
  machine->devices.push_back(nic);
  return index;
}

}  // namespace fairlead::topology
