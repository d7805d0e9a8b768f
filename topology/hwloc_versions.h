// What differs between hwloc 2.x and 3.0: the one place that knows.
//
// 3.0 makes the type of an operating-system device a set of bits (osdev.types), in its API and in its XML, and its XML
// has attributes after the root object; 2.x refuses such files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fairlead/status.h"

struct hwloc_obj;

namespace fairlead::topology {

enum class OsDevice : std::uint8_t { kOther, kNetwork, kOpenFabrics, kCompute };

/// Of an object of type HWLOC_OBJ_OS_DEVICE.
[[nodiscard]] OsDevice os_device_of(const hwloc_obj* object) noexcept;

/// A document of hwloc's, of any version up to 3.x, as the hwloc at hand reads it with either of its two parsers (the
/// one without libxml2 knows no comments). Errors: kDataLoss (no well-formed XML), kInvalidArgument (XML of others),
/// kVersionMismatch (from 4.0).
[[nodiscard]] Result<std::string> to_readable_xml(std::string_view text);

}  // namespace fairlead::topology
