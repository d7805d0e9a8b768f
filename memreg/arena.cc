#include "memreg/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "memreg/limits.h"

namespace fairlead::memreg {
namespace {

Status exhausted(std::size_t bytes, int error) {
  return {Code::kResourceExhausted,
          fmt::format("cannot map {} bytes: {}; {}", bytes, std::generic_category().message(error),
                      mapping_limit(bytes, Mapped::kMemory, error))};
}

}  // namespace

std::size_t page_size() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

void populate(std::span<std::byte> bytes, const std::stop_token& stop) noexcept {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  while (!bytes.empty() && !stop.stop_requested()) {
    const std::size_t piece = std::min(bytes.size(), kPiece);
    ::madvise(bytes.data(), piece, MADV_POPULATE_WRITE);
    bytes = bytes.subspan(piece);
  }
}

Result<Arena> Arena::map(std::size_t bytes) {
  if (bytes == 0) return {Code::kInvalidArgument, "cannot map 0 bytes"};
  if (bytes > std::numeric_limits<std::size_t>::max() - page_size()) return exhausted(bytes, ENOMEM);
  const std::size_t size = (bytes + page_size() - 1) / page_size() * page_size();
  void* start = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return exhausted(size, errno);
  ::madvise(start, size, MADV_HUGEPAGE);  // a hint: kernels without huge pages refuse it, which is no harm
  return Arena(std::span(static_cast<std::byte*>(start), size));
}

Arena::Arena(Arena&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

Arena::~Arena() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace fairlead::memreg
