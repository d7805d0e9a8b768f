// What differs between hwloc 2.x and 3.0: the one place that knows, and that calls what may differ again.
//
// 3.0 makes the type of an operating-system device a set of bits (osdev.types), in its API and in its XML; its XML has
// attributes after the root object, which 2.x refuses, and its API gives them by a call of their own. Kinds of matrices
// of distances have other names, and their names are what they are found by; components come and go. Nothing else of
// the readers asks for any of these.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "fairlead/status.h"

struct hwloc_obj;
struct hwloc_topology;

namespace fairlead::topology {

enum class OsDevice : std::uint8_t { kOther, kNetwork, kOpenFabrics, kCompute };

/// Of an object of type HWLOC_OBJ_OS_DEVICE.
[[nodiscard]] OsDevice os_device_of(const hwloc_obj* object) noexcept;

/// What the object says of itself under `name`; "" where it, or the object, does not exist.
[[nodiscard]] std::string info(hwloc_obj* object, const char* name);
/// The same of the whole machine.
[[nodiscard]] std::string info_of_all(hwloc_topology* topology, const char* name);
/// Calls `each` for every ordered pair of the matrix `name`, such as "NUMALatency"; not at all where there is none. An
/// object may be null.
void for_each_distance(hwloc_topology* topology, const char* name,
                       const std::function<void(hwloc_obj* from, hwloc_obj* to, std::uint64_t value)>& each);
/// Before it is loaded: without this component, where there is such a one.
void leave_out(hwloc_topology* topology, const char* component);

/// A document of hwloc's, of any version up to 3.x, as the hwloc at hand reads it with either of its two parsers (the
/// one without libxml2 knows no comments). Errors: kDataLoss (no well-formed XML), kInvalidArgument (XML of others),
/// kVersionMismatch (from 4.0).
[[nodiscard]] Result<std::string> to_readable_xml(std::string_view text);

}  // namespace fairlead::topology
