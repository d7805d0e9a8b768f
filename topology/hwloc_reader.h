// Reads a machine by hwloc 2.5 or later: this one, an XML file, or a synthetic description.
//
// Only hwloc_reader.cc, hwloc_devices.cc and hwloc_versions.cc include hwloc. GPU plug-ins of hwloc, which open
// drivers, are not used: GPUs are known by their PCI class. Threads: any; no shared state but hwloc's own, which it
// guards.
#pragma once

#include <string>
#include <string_view>

#include "fairlead/status.h"
#include "topology/machine.h"

namespace fairlead::topology {

/// This machine as this process may use it: cpuset, affinity, cgroups and isolated cores are looked at, and the rates
/// of NICs in /sys. What the system does not say stands in `remarks`. Errors: kUnavailable if hwloc finds no processor.
[[nodiscard]] Result<Machine> read_this_machine();
/// Errors: kNotFound and the like with the system's reason; those of read_xml(), with the path.
[[nodiscard]] Result<Machine> read_xml_file(const std::string& path);
/// `name` is for messages. Errors: kDataLoss (not well-formed, or not a topology to hwloc), kInvalidArgument (XML of
/// others), kVersionMismatch.
[[nodiscard]] Result<Machine> read_xml(std::string_view text, const std::string& name);
/// "package:2 core:8 pu:2", as hwloc(7) has it; it has no devices. Errors: kInvalidArgument.
[[nodiscard]] Result<Machine> read_synthetic(const std::string& description);

}  // namespace fairlead::topology
