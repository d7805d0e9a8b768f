#include "shm/ring/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace fairlead::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr unsigned kNoExecute = 8;  // MFD_NOEXEC_SEAL, since Linux 6.3
constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytes = (sizeof(Shared) + kPage - 1) / kPage * kPage;

Status no_memory(std::string_view doing) {
  return {Code::kResourceExhausted,
          fmt::format("cannot {} {} bytes of shared memory: {}; raise `ulimit -n`, or the memory limit", doing, kBytes,
                      std::strerror(errno))};
}

}  // namespace

Result<Segment> Segment::make(UniqueFd& descriptor) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  descriptor.reset(::memfd_create("fairlead-shm", kFlags | kNoExecute));
  if (!descriptor && errno == EINVAL) descriptor.reset(::memfd_create("fairlead-shm", kFlags));
  if (!descriptor || ::ftruncate(descriptor.get(), static_cast<off_t>(kBytes)) != 0 ||
      ::fcntl(descriptor.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    return no_memory("make");
  }
  return map(descriptor.get());
}

Result<Segment> Segment::adopt(const UniqueFd& descriptor) {
  struct stat info{};
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(descriptor.get(), &info) != 0) {
    return {Code::kInvalidArgument, "the peer's memory is not sealed against a change of its size"};
  }
  if (static_cast<std::size_t>(info.st_size) != kBytes) {
    return {Code::kInvalidArgument, fmt::format("the peer's memory has {} bytes instead of {}", info.st_size, kBytes)};
  }
  // Of the reserved ones a fault may find none left; transparent ones, which shmem_enabled gives, are ordinary memory.
  struct statfs system{};
  if (::fstatfs(descriptor.get(), &system) != 0 || system.f_type == HUGETLBFS_MAGIC) {
    return {Code::kInvalidArgument, "the peer's memory is of reserved huge pages"};
  }
  return map(descriptor.get());
}

Result<Segment> Segment::map(int descriptor) {
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) return no_memory("map");
  ::madvise(at, kBytes, MADV_DONTFORK);
  ::madvise(at, kBytes, MADV_DONTDUMP);
  Segment segment;
  segment.shared_ = static_cast<Shared*>(at);
  segment.owner_ = ::getpid();
  return segment;
}

Segment::Segment(Segment&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)), owner_(other.owner_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(shared_, other.shared_);
  std::swap(owner_, other.owner_);
  return *this;
}

bool Segment::is_mine() const noexcept { return shared_ != nullptr && owner_ == ::getpid(); }

Segment::~Segment() {
  if (is_mine()) ::munmap(shared_, kBytes);
}

}  // namespace fairlead::shm
