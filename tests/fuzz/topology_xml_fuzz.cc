// Foreign XML before hwloc sees it: refused with a reason, or written anew to the same elements.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "topology/hwloc_versions.h"
#include "topology/xml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead::topology;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto root = parse_xml(text);
  if (root) {
    const std::string written = to_xml(*root);
    const auto again = parse_xml(written);
    if (!again || to_xml(*again) != written) std::abort();
  }
  const auto readable = to_readable_xml(text);
  if (readable && !parse_xml(*readable)) std::abort();
  return 0;
}
