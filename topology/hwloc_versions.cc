#include "topology/hwloc_versions.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

#include "topology/xml.h"

namespace fairlead::topology {
namespace {

// The bits of 3.0, the most telling first, and the enumerator of 2.x that says as much.
struct OsDeviceType {
  unsigned bit;
  unsigned enumerator;
  OsDevice meaning;
};
constexpr std::array kOsDeviceTypes = {
    OsDeviceType{1u << 5, 3, OsDevice::kOpenFabrics}, OsDeviceType{1u << 4, 2, OsDevice::kNetwork},
    OsDeviceType{1u << 3, 5, OsDevice::kCompute},     OsDeviceType{1u << 2, 1, OsDevice::kCompute},
    OsDeviceType{1u << 6, 4, OsDevice::kOther},       OsDeviceType{0, 0, OsDevice::kOther},
};

[[maybe_unused]] const OsDeviceType& from_bits(unsigned bits) {
  return *std::find_if(kOsDeviceTypes.begin(), kOsDeviceTypes.end(),
                       [bits](const OsDeviceType& type) { return type.bit == 0 || (bits & type.bit) != 0; });
}

[[maybe_unused]] void to_version_2(XmlElement* element) {
  if (std::string* type = element->attribute("osdev_type"); type != nullptr) {
    unsigned bits = 0;
    std::from_chars(type->data(), type->data() + type->size(), bits);  // what is no number stays 0, a disk
    *type = fmt::format("{}", from_bits(bits).enumerator);
  }
  for (XmlElement& child : element->children) to_version_2(&child);
}

Result<unsigned> major_version(const XmlElement& root) {
  if (root.name != "topology") {
    return Status(
        Code::kInvalidArgument,
        fmt::format("the root element is <{}>; hwloc's is <topology>: write it with lstopo FILE.xml", root.name));
  }
  const std::string* const version = root.attribute("version");
  if (version == nullptr) return 1u;  // 1.x had no such attribute
  unsigned major = 0;
  std::from_chars(version->data(), version->data() + version->size(), major);
  if (major == 2 || major == 3) return major;
  return Status(Code::kVersionMismatch,
                fmt::format("it is of XML version {}; this program reads those of hwloc 1 to 3", *version));
}

}  // namespace

OsDevice os_device_of(const hwloc_obj* object) noexcept {
#if HWLOC_API_VERSION >= 0x00030000
  return from_bits(static_cast<unsigned>(object->attr->osdev.types)).meaning;
#else
  static_assert(HWLOC_OBJ_OSDEV_OPENFABRICS == 3 && HWLOC_OBJ_OSDEV_NETWORK == 2 && HWLOC_OBJ_OSDEV_COPROC == 5 &&
                HWLOC_OBJ_OSDEV_GPU == 1);
  unsigned type = 0;  // not by its own type: hwloc takes from a file what is no enumerator
  static_assert(sizeof type == sizeof object->attr->osdev.type);
  std::memcpy(&type, &object->attr->osdev.type, sizeof type);
  const auto found = std::find_if(kOsDeviceTypes.begin(), kOsDeviceTypes.end(),
                                  [type](const OsDeviceType& known) { return known.enumerator == type; });
  return found == kOsDeviceTypes.end() ? OsDevice::kOther : found->meaning;
#endif
}

std::string info(hwloc_obj* object, const char* name) {
  const char* const value = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, name);
  return value == nullptr ? "" : value;
}

std::string info_of_all(hwloc_topology* topology, const char* name) {
#if HWLOC_API_VERSION >= 0x00030000
  const hwloc_infos_s* const infos = hwloc_topology_get_infos(topology);
  for (unsigned i = 0; infos != nullptr && i < infos->count; ++i) {
    if (std::string_view(infos->array[i].name) == name) return infos->array[i].value;
  }
#endif
  return info(hwloc_get_root_obj(topology), name);
}

void for_each_distance(hwloc_topology* topology, const char* name,
                       const std::function<void(hwloc_obj* from, hwloc_obj* to, std::uint64_t value)>& each) {
  unsigned count = 1;
  hwloc_distances_s* found = nullptr;
  if (hwloc_distances_get_by_name(topology, name, &count, &found, 0) != 0 || count == 0) return;
  const auto release = [topology](hwloc_distances_s* matrix) { hwloc_distances_release(topology, matrix); };
  const std::unique_ptr<hwloc_distances_s, decltype(release)> matrix(found, release);
  for (unsigned i = 0; i < matrix->nbobjs; ++i) {
    for (unsigned j = 0; j < matrix->nbobjs; ++j) {
      each(matrix->objs[i], matrix->objs[j], matrix->values[i * matrix->nbobjs + j]);
    }
  }
}

void leave_out(hwloc_topology* topology, const char* component) {
  static_cast<void>(hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component));
}

Result<std::string> to_readable_xml(std::string_view text) {
  Result<XmlElement> root = parse_xml(text);
  if (!root) return root.error();
  const Result<unsigned> major = major_version(*root);
  if (!major) return major.error();
#if HWLOC_API_VERSION < 0x00030000
  if (*major == 3) {
    *root->attribute("version") = "2.0";
    to_version_2(&*root);
    // Attributes of the whole, which 2.x keeps in the root object, and where the PCI tree belongs, which the tree
    // shows.
    std::erase_if(root->children, [](const XmlElement& child) {
      return child.name == "info" || child.name == "pci_locality" || child.name == "support";
    });
  }
#endif
  return fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc{}.dtd\">\n{}",
                     *major == 1 ? "" : "2", to_xml(*root));
}

}  // namespace fairlead::topology
