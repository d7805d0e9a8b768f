// Memory and NUMA nodes, by the kernel's own calls (mbind, move_pages): no libnuma, and nothing to install.
//
// A node is the number that the kernel gives it (/sys/devices/system/node/nodeN). A kernel without NUMA, and a machine
// with one node, have the one node 0. Containers often forbid these calls (they need CAP_SYS_NICE under Docker's
// default seccomp profile): then the answer is kPermissionDenied, and memory lies where the kernel puts it.
// Threads: stateless. Source: set_mempolicy(2), mbind(2), move_pages(2).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead {

/// The numbers of a list as sysfs writes it, such as "0-1,4\n", each once and in order; empty if it is none, or names a
/// number past 4095.
[[nodiscard]] std::vector<int> parse_node_list(std::string_view text);

/// The nodes that have memory, in order; {0} where the kernel knows none. `sysfs`: where to read, for tests.
[[nodiscard]] std::vector<int> numa_nodes(const std::string& sysfs = "/sys/devices/system/node");

/// ok if `node` has memory; else kInvalidArgument, which names those that have.
Status check_numa_node(int node);

/// What happens when the node has no page left.
enum class NodeBinding {
  kPreferred,  // another node gives it
  kOnly,       // the process is killed for memory, or the touch fails: for who would rather have none
};

/// Has the kernel take the pages of the range from `node` when they are touched first; pages that are there already
/// stay. The range begins on a page. Errors: kInvalidArgument (no such node: names those there are; a range that does
/// not begin on a page, or is not mapped), kUnimplemented (the kernel has no NUMA), kPermissionDenied (the system
/// refuses the call).
Status bind_to_node(std::span<std::byte> bytes, int node, NodeBinding binding = NodeBinding::kPreferred);

/// How many of a range's pages lie where.
struct PagesByNode {
  std::vector<std::size_t> on_node;  // by number of the node; as long as the highest that has one
  std::size_t absent = 0;            // not written yet, or swapped out

  [[nodiscard]] std::size_t on(int node) const noexcept {
    return node >= 0 && static_cast<std::size_t>(node) < on_node.size() ? on_node[static_cast<std::size_t>(node)] : 0;
  }
};

/// Looks at a page every `step` bytes (0: each page; a huge page has one place). Where the kernel has no NUMA all that
/// is there counts as on node 0. Errors: kInvalidArgument (0 bytes), kPermissionDenied (the system refuses the call).
Result<PagesByNode> pages_by_node(std::span<const std::byte> bytes, std::size_t step = 0);

}  // namespace fairlead
