#include "gpu/executor/host_range.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/stack_room.h"
#include "base/system/system_files.h"
#include "gpu/executor/refuse.h"

namespace fairlead::gpu {

using command::AddressRange;
using command::Handle;
using command::Outcome;

namespace {

constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// NOLINTNEXTLINE(performance-no-int-to-ptr): the range's addresses are numbers at both ends
std::byte* pointer_to(std::uint64_t address) noexcept { return reinterpret_cast<std::byte*>(address); }

std::uint64_t page() noexcept {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}
// Of all ranges of this process. Each piece cuts a mapping in three: where the kernel gives no more of them (two for
// each), nobody has a new thread, and free() fails. So all have a quarter of them, and one has at most half as many as
// are left then: whoever comes finds some, however many others there are. (Dynamic thresholds, Choudhury and Hahne,
// IEEE/ACM Transactions on Networking 6(2), 1998, with alpha 1/2.)
std::atomic<std::uint64_t> placed_pieces{0};
std::uint64_t most_mappings() noexcept {
  constexpr std::uint64_t kUsual = 65'530;  // of Linux
  static const std::uint64_t most = SystemFiles().number("/proc/sys/vm/max_map_count").value_or(kUsual);
  return most;
}

std::uint64_t in_pages(std::uint64_t bytes) noexcept { return (bytes + page() - 1) / page() * page(); }

}  // namespace

Result<std::unique_ptr<HostRange>> HostRange::reserve(std::uint64_t bytes, std::uint64_t wish) {
  const std::uint64_t whole = in_pages(bytes);
  void* got = MAP_FAILED;
  if (wish != 0 && wish % page() == 0 && is_clear_of_stack(wish, whole)) {
    // A kernel that does not know the flag takes the address for a hint, which is fine, too.
    got = ::mmap(pointer_to(wish), whole, PROT_NONE, kNothing | MAP_FIXED_NOREPLACE, -1, 0);
  }
  if (got == MAP_FAILED) got = ::mmap(nullptr, whole, PROT_NONE, kNothing, -1, 0);
  if (got == MAP_FAILED) {
    return Status(Code::kResourceExhausted,
                  fmt::format("the host has no {} bytes of addresses for a session: {}", bytes, std::strerror(errno)));
  }
  return std::unique_ptr<HostRange>(new HostRange(reinterpret_cast<std::uint64_t>(got), whole));
}

HostRange::~HostRange() {
  ::munmap(pointer_to(base_), bytes_);
  placed_pieces.fetch_sub(pieces_.size());
}

AddressRange HostRange::facts() const noexcept { return {base_, bytes_, static_cast<std::uint32_t>(page())}; }

std::byte* HostRange::place(Handle handle, std::uint64_t address, std::uint64_t bytes, Outcome& why) {
  const std::uint64_t offset = address - base_;
  if (address < base_ || offset > bytes_ || bytes > bytes_ - offset || address % page() != 0) {
    why = refuse(command::kInvalidValue,
                 fmt::format("{} bytes at {:#x}; the place is a multiple of {} within the session's {} bytes at {:#x}",
                             bytes, address, page(), bytes_, base_));
    return nullptr;
  }
  const std::uint64_t whole = in_pages(bytes);
  const auto next = pieces_.lower_bound(address);
  const bool in_next = next != pieces_.end() && next->first < address + whole;
  const auto before = next != pieces_.begin() ? std::prev(next) : pieces_.end();
  const bool in_before = before != pieces_.end() && before->first + in_pages(before->second.bytes) > address;
  if (in_next || in_before) {
    const auto& other = in_next ? *next : *before;
    why = refuse(command::kInvalidValue,
                 fmt::format("{} bytes at {:#x} overlap allocation {}, which has {} at {:#x}; what was released by "
                             "another channel is free behind a fence",
                             bytes, address, other.second.handle.bits, other.second.bytes, other.first));
    return nullptr;
  }
  const std::uint64_t before_this = placed_pieces.fetch_add(1), all = most_mappings() / 4;
  if (before_this >= all || pieces_.size() >= (all - before_this) / 2) {
    placed_pieces.fetch_sub(1);
    why = refuse(command::kOutOfMemory,
                 fmt::format("the session has {} allocations at addresses of its choice, half as many as are left of "
                             "the {} that sessions of one process have (a quarter of the host's vm.max_map_count): "
                             "release some, or raise it with `sysctl -w vm.max_map_count={}` before the service starts",
                             pieces_.size(), all, 4 * most_mappings()));
    return nullptr;
  }
  if (::mprotect(pointer_to(address), whole, PROT_READ | PROT_WRITE) != 0) {
    placed_pieces.fetch_sub(1);
    why = refuse(command::kOutOfMemory,
                 fmt::format("the host has no {} bytes at {:#x}: {}", bytes, address, std::strerror(errno)));
    return nullptr;
  }
  pieces_.emplace_hint(next, address, Piece{bytes, handle});
  return pointer_to(address);
}

void HostRange::give(const std::byte* at) noexcept {
  const auto found = pieces_.find(reinterpret_cast<std::uint64_t>(at));
  const std::uint64_t whole = in_pages(found->second.bytes);
  // Other pages, which nothing was written to. Where that cannot be, these are emptied.
  if (::mmap(pointer_to(found->first), whole, PROT_NONE, kNothing | MAP_FIXED, -1, 0) == MAP_FAILED) {
    ::madvise(pointer_to(found->first), whole, MADV_DONTNEED);
    ::mprotect(pointer_to(found->first), whole, PROT_NONE);
  }
  pieces_.erase(found);
  placed_pieces.fetch_sub(1);
}

HostRange::Pieces::const_iterator HostRange::piece_at(std::uint64_t address, std::uint64_t bytes) const noexcept {
  auto piece = pieces_.upper_bound(address);
  if (piece == pieces_.begin()) return pieces_.end();
  --piece;
  const std::uint64_t offset = address - piece->first;
  return offset <= piece->second.bytes && bytes <= piece->second.bytes - offset ? piece : pieces_.end();
}

std::byte* HostRange::find(std::uint64_t address, std::uint64_t bytes) const noexcept {
  return piece_at(address, bytes) != pieces_.end() ? pointer_to(address) : nullptr;
}

std::optional<Handle> HostRange::at(std::uint64_t address) const noexcept {
  const auto piece = piece_at(address, 0);
  return piece != pieces_.end() ? std::optional(piece->second.handle) : std::nullopt;
}

}  // namespace fairlead::gpu
