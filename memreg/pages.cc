#include "memreg/pages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace fairlead::memreg {
namespace {

constexpr std::size_t k2M = std::size_t{2} << 20, k1G = std::size_t{1} << 30;

std::size_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  file >> number;
  return file ? number : 0;
}

HugePages pages_in(const std::string& folder) {
  const std::size_t promised = number_in(folder + "/resv_hugepages");  // only of the whole machine
  const std::size_t free = number_in(folder + "/free_hugepages");
  return {free - std::min(free, promised), number_in(folder + "/nr_hugepages")};
}

// Of "always [madvise] never" the word in brackets.
std::string chosen_word(const std::string& path) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    if (word.size() > 2 && word.front() == '[' && word.back() == ']') return word.substr(1, word.size() - 2);
  }
  return {};
}

std::size_t pages_for(std::size_t bytes, std::size_t page) noexcept { return bytes / page + (bytes % page != 0); }

bool fits(std::size_t bytes, std::size_t page) noexcept {
  const std::size_t whole = pages_for(bytes, page) * page;
  return bytes >= page && whole - bytes <= bytes / 8;
}

// Why not: the object, what is there, what it takes, and the remedy.
std::string too_few(std::string_view name, const HugePages& pages, std::size_t needed, std::string_view remedy) {
  return fmt::format("{} {} pages are needed and {} of {} are free: {}", needed, name, pages.free, pages.total, remedy);
}

}  // namespace

std::string_view to_string(PageKind kind) noexcept {
  constexpr std::array<std::string_view, kPageKinds.size()> kNames{"ordinary", "transparent", "2M", "1G"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::size_t page_size() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t page_bytes(PageKind kind) noexcept {
  if (kind == PageKind::kHuge1G) return k1G;
  return kind == PageKind::kHuge2M ? k2M : page_size();
}

PageKind plainer_than(PageKind kind) noexcept {
  return kind == PageKind::kOrdinary ? kind : kPageKinds.at(static_cast<std::size_t>(kind) - 1);
}

PageSupply page_supply(int node, bool shared, const std::string& sysfs) {
  const std::string all = sysfs + "/kernel/mm";
  const std::string folder =
      (node < 0 ? all : fmt::format("{}/devices/system/node/node{}", sysfs, node)) + "/hugepages";
  return {pages_in(folder + "/hugepages-2048kB"), pages_in(folder + "/hugepages-1048576kB"),
          chosen_word(all + "/transparent_hugepage/" + (shared ? "shmem_enabled" : "enabled"))};
}

PageChoice choose_pages(std::size_t bytes, const PageSupply& supply, PageKind best) {
  std::string not_better;
  const auto choose = [&](PageKind kind, std::string_view name) -> PageChoice {
    return {kind, not_better.empty() ? std::string(name) : fmt::format("{}; {}", name, not_better)};
  };
  if (best >= PageKind::kHuge1G && fits(bytes, k1G)) {
    const std::size_t needed = pages_for(bytes, k1G);
    if (supply.of_1g.free >= needed) return choose(PageKind::kHuge1G, "1 GiB huge pages");
    not_better =
        too_few("1 GiB", supply.of_1g, needed,
                fmt::format("boot with hugepagesz=1G hugepages={}", supply.of_1g.total + needed - supply.of_1g.free));
  }
  if (best >= PageKind::kHuge2M) {
    const std::size_t needed = pages_for(bytes, k2M);
    if (!not_better.empty()) not_better += "; ";
    if (!fits(bytes, k2M)) {
      not_better += fmt::format("2 MiB pages do not fit {} bytes without losing an eighth", bytes);
    } else if (supply.of_2m.free >= needed) {
      not_better.resize(not_better.empty() ? 0 : not_better.size() - 2);
      return choose(PageKind::kHuge2M, "2 MiB huge pages");
    } else {
      not_better +=
          too_few("2 MiB", supply.of_2m, needed,
                  fmt::format("sysctl -w vm.nr_hugepages={}", supply.of_2m.total + needed - supply.of_2m.free));
    }
  }
  if (best >= PageKind::kTransparent) {
    if (!supply.transparent.empty() && supply.transparent != "never" && supply.transparent != "deny") {
      return choose(PageKind::kTransparent, "transparent huge pages, as far as the kernel has some");
    }
    if (!not_better.empty()) not_better += "; ";
    not_better += supply.transparent.empty()
                      ? "the kernel has no transparent huge pages"
                      : fmt::format(
                            "transparent huge pages are set to '{}': write madvise (for shared memory: advise) to "
                            "/sys/kernel/mm/transparent_hugepage/enabled (shmem_enabled)",
                            supply.transparent);
  }
  return choose(PageKind::kOrdinary, "ordinary pages");
}

}  // namespace fairlead::memreg
