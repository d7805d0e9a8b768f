#include "datapath/command/range/local_range.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/stack_room.h"

namespace fairlead::datapath::command {
namespace {

// NOLINTNEXTLINE(performance-no-int-to-ptr): addresses of nothing
void* pointer_to(std::uint64_t address) noexcept { return reinterpret_cast<void*>(address); }

/// 0: not to be had.
std::uint64_t map(std::uint64_t at, std::uint64_t bytes, int flags) noexcept {
  void* const got =
      ::mmap(pointer_to(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  return got == MAP_FAILED ? 0 : reinterpret_cast<std::uint64_t>(got);
}
void unmap(std::uint64_t at, std::uint64_t bytes) noexcept {
  if (bytes != 0) ::munmap(pointer_to(at), bytes);
}
std::uint64_t in_pages(std::uint64_t bytes) noexcept {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

LocalRange::~LocalRange() { unmap(base_, bytes_); }

Result<LocalRange> LocalRange::reserve(std::uint64_t bytes) {
  const std::uint64_t whole = in_pages(bytes), more = whole + kAlignment;
  const std::uint64_t got = whole >= bytes && more > whole ? map(0, more, 0) : 0;
  if (got == 0) {
    return Status(
        Code::kResourceExhausted,
        fmt::format("this process has no {} bytes of free addresses in one piece; ask for a smaller range", bytes));
  }
  const std::uint64_t base = (got + kAlignment - 1) / kAlignment * kAlignment;
  unmap(got, base - got);
  unmap(base + whole, got + more - base - whole);
  return LocalRange(base, whole);
}

Result<LocalRange> LocalRange::reserve_at(std::uint64_t base, std::uint64_t bytes) {
  const std::uint64_t whole = in_pages(bytes);
  const bool is_legal = whole >= bytes && is_clear_of_stack(base, whole);
  const std::uint64_t got = is_legal ? map(base, whole, MAP_FIXED_NOREPLACE) : 0;
  if (got == base && got != 0) return LocalRange(base, whole);
  unmap(got, got != 0 ? whole : 0);  // a kernel that takes the address for a hint
  return Status(Code::kUnavailable,
                fmt::format("the addresses from {:#x} to {:#x} are not free in this process", base, base + bytes));
}

}  // namespace fairlead::datapath::command
