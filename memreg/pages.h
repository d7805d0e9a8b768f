// Which pages an arena gets: huge ones where some are free, else transparent huge pages, else ordinary ones.
//
// Huge pages are set aside by whoever runs the machine (vm.nr_hugepages, hugepages= on the kernel's command line); they
// cost the fewest TLB entries and registrations, and never fail later. Transparent ones the kernel puts together by
// itself when memory asks for it and it has some. Why an arena did not get the better kind is a sentence for people.
// Threads: stateless. Source: Linux admin-guide/mm/hugetlbpage.rst, transhuge.rst.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fairlead::memreg {

/// From the plainest to the best.
enum class PageKind : std::uint8_t { kOrdinary, kTransparent, kHuge2M, kHuge1G };
inline constexpr std::array kPageKinds{PageKind::kOrdinary, PageKind::kTransparent, PageKind::kHuge2M,
                                       PageKind::kHuge1G};

/// One word, as metrics label it: "ordinary", "transparent", "2M", "1G".
[[nodiscard]] std::string_view to_string(PageKind kind) noexcept;
/// Bytes of a page of this system (not of a huge page).
[[nodiscard]] std::size_t page_size() noexcept;
/// Bytes of a page of the kind; of a transparent one those of an ordinary one, for it may become that.
[[nodiscard]] std::size_t page_bytes(PageKind kind) noexcept;
/// The next best kind; of ordinary ones the same.
[[nodiscard]] PageKind plainer_than(PageKind kind) noexcept;

/// What the system has of huge pages of one size.
struct HugePages {
  std::size_t free = 0;   // not used, and promised to nobody
  std::size_t total = 0;  // set aside
};

struct PageSupply {
  HugePages of_2m, of_1g;   // on the node that was asked for, or all
  std::string transparent;  // "always", "madvise", "never", ...; empty: the kernel has none
};

/// `node` -1: of the whole machine. `shared`: for memory that other processes map, which the kernel treats by another
/// setting. `sysfs`: where to read, for tests.
[[nodiscard]] PageSupply page_supply(int node = -1, bool shared = false, const std::string& sysfs = "/sys");

struct PageChoice {
  PageKind kind = PageKind::kOrdinary;
  std::string why;  // a sentence: which, and why not the better
};

/// For an arena of `bytes`, of nothing better than `best`. Huge pages must hold it with at most an eighth lost.
[[nodiscard]] PageChoice choose_pages(std::size_t bytes, const PageSupply& supply, PageKind best = PageKind::kHuge1G);

}  // namespace fairlead::memreg
