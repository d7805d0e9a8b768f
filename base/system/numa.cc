#include "base/system/numa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>

namespace fairlead {
namespace {

constexpr int kMostNodes = 4096;  // MAX_NUMNODES is at most 1024 today
constexpr std::size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

std::size_t page() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::string text_of(int error) { return std::generic_category().message(error); }

std::vector<int> read_list(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parse_node_list(line);
}

// Of a kernel without NUMA, which does not have move_pages: what mincore(2) says of the pages.
PagesByNode present_pages(std::span<const std::byte> bytes) {
  PagesByNode all{{0}, 0};
  constexpr std::size_t kAtOnce = 512;
  std::array<unsigned char, kAtOnce> there{};
  auto* at = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(bytes.data()) / page() * page());  // NOLINT
  for (const std::byte* end = bytes.data() + bytes.size(); at < end; at += kAtOnce * page()) {
    const std::size_t pages = std::min((static_cast<std::size_t>(end - at) + page() - 1) / page(), kAtOnce);
    const bool known = ::mincore(at, pages * page(), there.data()) == 0;
    for (std::size_t i = 0; i < pages; ++i) ++(known && (there.at(i) & 1) != 0 ? all.on_node.front() : all.absent);
  }
  return all;
}

}  // namespace

std::vector<int> parse_node_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<int> nodes;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0, last = 0;
    auto [next, error] = std::from_chars(at, end, first);
    if (error != std::errc()) return {};
    last = first;
    if (next < end && *next == '-') {
      const auto upper = std::from_chars(next + 1, end, last);
      if (upper.ec != std::errc()) return {};
      next = upper.ptr;
    }
    if (first < 0 || last < first || last >= kMostNodes) return {};
    for (int node = first; node <= last; ++node) nodes.push_back(node);
    if (next < end && (*next != ',' || next + 1 == end)) return {};
    at = next < end ? next + 1 : end;
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

std::vector<int> numa_nodes(const std::string& sysfs) {
  std::vector<int> nodes = read_list(sysfs + "/has_memory");
  if (nodes.empty()) nodes = read_list(sysfs + "/online");
  if (nodes.empty()) nodes.push_back(0);
  return nodes;
}

Status check_numa_node(int node) {
  const std::vector<int> nodes = numa_nodes();
  if (std::binary_search(nodes.begin(), nodes.end(), node)) return {};
  return {Code::kInvalidArgument,
          fmt::format("there is no memory on a NUMA node {}: this machine's nodes that have some are {}", node,
                      fmt::join(nodes, ", "))};
}

Status bind_to_node(std::span<std::byte> bytes, int node, NodeBinding binding) {
  if (Status there = check_numa_node(node); !there.ok()) return there;
  std::vector<unsigned long> mask(static_cast<std::size_t>(node) / kWordBits + 1);
  mask.back() = 1UL << (static_cast<std::size_t>(node) % kWordBits);
  const int mode = binding == NodeBinding::kOnly ? MPOL_BIND : MPOL_PREFERRED;
  // The kernel reads one bit less than it is told of.
  if (::syscall(SYS_mbind, bytes.data(), bytes.size(), mode, mask.data(), mask.size() * kWordBits + 1, 0U) == 0) {
    return {};
  }
  const int error = errno;
  const std::string what = fmt::format("cannot bind {} bytes to NUMA node {}: ", bytes.size(), node);
  switch (error) {
    case ENOSYS:
      return {Code::kUnimplemented, what + "the kernel has no NUMA (CONFIG_NUMA), so all memory is on one node"};
    case EPERM:
      return {Code::kPermissionDenied,
              what + "the system refuses mbind; give the container CAP_SYS_NICE, or do without a node"};
    case EINVAL:
      return {Code::kInvalidArgument,
              what +
                  "mbind takes whole pages, of nodes in this process's cpuset (/proc/self/status, "
                  "Mems_allowed_list); ask for such a node"};
    case EFAULT:
      return {Code::kInvalidArgument, what + "not all of it is mapped"};
    default:
      return {Code::kResourceExhausted, what + text_of(error) + "; free memory, or do without a node"};
  }
}

Result<PagesByNode> pages_by_node(std::span<const std::byte> bytes, std::size_t step) {
  if (bytes.empty()) return {Code::kInvalidArgument, "0 bytes are on no NUMA node"};
  constexpr std::size_t kAtOnce = 512;
  std::array<void*, kAtOnce> pages{};
  std::array<int, kAtOnce> where{};
  PagesByNode all;
  step = std::max(step, page());
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t count = 0;
    for (; count < kAtOnce && at < bytes.size(); at += step) pages.at(count++) = const_cast<std::byte*>(&bytes[at]);
    if (::syscall(SYS_move_pages, 0, count, pages.data(), nullptr, where.data(), 0) < 0) {
      if (errno == ENOSYS) return present_pages(bytes);
      return {
          Code::kPermissionDenied,
          fmt::format("cannot tell on which NUMA nodes {} bytes are: move_pages: {}; give the container CAP_SYS_NICE",
                      bytes.size(), text_of(errno))};
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (where.at(i) < 0) {
        ++all.absent;
        continue;
      }
      const auto node = static_cast<std::size_t>(where.at(i));
      if (node >= all.on_node.size()) all.on_node.resize(node + 1);
      ++all.on_node[node];
    }
  }
  return all;
}

}  // namespace fairlead
