#include "memreg/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/memfd.h>
#include <linux/mman.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>

#include "base/guarded.h"
#include "base/system/mapping_budget.h"
#include "base/system/numa.h"
#include "base/system/shared_memory.h"
#include "memreg/limits.h"

namespace fairlead::memreg {
namespace {

constexpr std::size_t kTransparentBytes = std::size_t{2} << 20;

std::string text_of(int error) { return std::generic_category().message(error); }

Status exhausted(std::size_t bytes, int error) {
  return {Code::kResourceExhausted, fmt::format("cannot map {} bytes: {}; {}", bytes, text_of(error),
                                                mapping_limit(bytes, Mapped::kMemory, error))};
}

std::size_t round_up(std::size_t value, std::size_t step) noexcept { return (value + step - 1) / step * step; }

// 0, or the error that ended it.
int populate_until(std::span<std::byte> bytes, const std::stop_token& stop) noexcept {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  while (!bytes.empty() && !stop.stop_requested()) {
    const std::size_t piece = std::min(bytes.size(), kPiece);
    if (::madvise(bytes.data(), piece, MADV_POPULATE_WRITE) != 0) return errno;
    bytes = bytes.subspan(piece);
  }
  return 0;
}

// Fresh pages are all 0, and stay so.
int touch_each(std::span<std::byte> fresh, std::size_t page) noexcept {
  install_fault_handlers();
  for (std::size_t at = 0; at < fresh.size(); at += page) {
    std::byte* const first = fresh.data() + at;
    const bool there = attempt(first, page, [first] { *static_cast<volatile std::byte*>(first) = std::byte{0}; });
    if (!there) return ENOMEM;
  }
  return 0;
}

bool is_huge(PageKind kind) noexcept { return kind >= PageKind::kHuge2M; }

// A memfd of `size` bytes, whose size nobody changes again; invalid with errno set. It can be sealed more.
UniqueFd make_file(std::size_t size, PageKind kind) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  if (is_huge(kind)) flags |= MFD_HUGETLB | (kind == PageKind::kHuge1G ? MFD_HUGE_1GB : MFD_HUGE_2MB);
  UniqueFd fd(::memfd_create("fairlead-arena", flags));
  if (!fd) return fd;
  if (!give_size(fd.get(), size) || ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

// After the owner has mapped it: its mapping is the last that writes, if others are only to read.
bool seal(int fd, bool readable) noexcept {
  return ::fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | (readable ? F_SEAL_FUTURE_WRITE : 0)) == 0;
}

// `size` bytes at a multiple of `alignment`; null with errno set.
std::byte* map_aligned(std::size_t size, std::size_t alignment, PageKind kind, int fd) {
  const std::size_t reserved = size + alignment - page_size();
  void* const start = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  auto* const from = static_cast<std::byte*>(start);
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  std::byte* const at = from + (round_up(address, alignment) - address);
  int flags = MAP_FIXED | (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  if (is_huge(kind) && fd < 0)
    flags |= MAP_HUGETLB | static_cast<int>(kind == PageKind::kHuge1G ? MAP_HUGE_1GB : MAP_HUGE_2MB);
  if (::mmap(at, size, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED) {
    const int error = errno;
    ::munmap(start, reserved);
    errno = error;
    return nullptr;
  }
  if (at > from) ::munmap(from, static_cast<std::size_t>(at - from));
  std::byte* const end = at + size;
  if (end < from + reserved) ::munmap(end, static_cast<std::size_t>(from + reserved - end));
  return at;
}

}  // namespace

int make_present(std::span<std::byte> fresh, std::size_t page) noexcept {
  const int error = populate_until(fresh, {});
  return error == EINVAL ? touch_each(fresh, page) : error;  // a kernel before 5.14
}

void populate(std::span<std::byte> bytes, const std::stop_token& stop) noexcept { populate_until(bytes, stop); }

Result<Arena> Arena::map(std::size_t bytes, const ArenaOptions& options) {
  if (bytes == 0) return {Code::kInvalidArgument, "cannot map 0 bytes"};
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return exhausted(bytes, ENOMEM);
  constexpr std::uint32_t kMappings = 3;  // while it is cut to its alignment
  if (const Status room = MappingBudget::own().take(kMappings); !room.ok()) {
    return {room.code(), fmt::format("cannot map {} bytes: {}, or use larger pools", bytes, room.message())};
  }
  const bool is_file = options.shared || options.readable;
  const PageSupply supply = page_supply(options.node, is_file);
  std::string failed;
  for (PageKind best = options.best;;) {
    const PageChoice choice = choose_pages(bytes, supply, best);
    const std::size_t size = round_up(bytes, page_bytes(choice.kind));
    Arena arena;
    if (is_file) {
      arena.fd_ = make_file(size, choice.kind);
      if (!arena.fd_ && !is_huge(choice.kind)) return exhausted(size, errno);
    }
    std::byte* start = nullptr;
    if (!is_file || arena.fd_) {
      const std::size_t alignment =
          std::max(page_bytes(choice.kind), size >= kTransparentBytes ? kTransparentBytes : page_size());
      start = map_aligned(size, alignment, choice.kind, arena.fd_.get());
    }
    int error = start == nullptr ? errno : 0;
    arena.why_ = choice.why + failed;
    arena.pages_ = choice.kind;
    arena.readable_ = options.readable;
    if (start != nullptr) {
      arena.bytes_ = {start, size};
      if (is_file && !seal(arena.fd_.get(), options.readable)) return exhausted(size, errno);
      if (options.node >= 0) {
        const Status bound = bind_to_node(arena.bytes_, options.node);
        const bool may_be_elsewhere = options.node_is_wish && check_numa_node(options.node).ok();
        if (bound.code() == Code::kInvalidArgument && !may_be_elsewhere) return bound;
        if (!bound.ok()) arena.why_ += "; " + bound.message();
      }
      if (choice.kind == PageKind::kTransparent) ::madvise(start, size, MADV_HUGEPAGE);  // a hint
      // Now, when a page that is not there after all (a cgroup's limit, another process) is an error and no SIGBUS.
      if (is_huge(choice.kind)) error = make_present(arena.bytes_, page_bytes(choice.kind));
    }
    if (error == 0) return arena;
    if (!is_huge(choice.kind)) return exhausted(size, error);
    failed += fmt::format("; {} pages are free, but could not be had: {}", to_string(choice.kind), text_of(error));
    best = choice.kind == PageKind::kHuge1G ? PageKind::kHuge2M : PageKind::kTransparent;
  }
}

Arena::Arena(Arena&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      pages_(other.pages_),
      why_(std::move(other.why_)),
      fd_(std::move(other.fd_)),
      readable_(other.readable_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(pages_, other.pages_);
  std::swap(why_, other.why_);
  std::swap(fd_, other.fd_);
  std::swap(readable_, other.readable_);
  return *this;
}

Arena::~Arena() { shrink(0); }

void Arena::shrink(std::size_t bytes) noexcept {
  const std::size_t kept = round_up(bytes, page_bytes(pages_));
  if (kept >= bytes_.size()) return;
  ::munmap(bytes_.data() + kept, bytes_.size() - kept);
  bytes_ = bytes_.first(kept);
}

}  // namespace fairlead::memreg
