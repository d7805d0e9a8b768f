#include "base/system/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace fairlead {
namespace {

constexpr unsigned kNoExecute = 8;  // MFD_NOEXEC_SEAL, since Linux 6.3

Status no_memory(std::string_view doing, std::size_t bytes) {
  return {Code::kResourceExhausted,
          fmt::format("cannot {} {} bytes of shared memory: {}; raise {}", doing, bytes, std::strerror(errno),
                      errno == EFBIG ? "`ulimit -f`" : "`ulimit -n`, or the memory limit")};
}

/// Where memory is promised strictly, pages that are not there yet may never be, and a touch of them ends the process.
bool have_pages(int file, std::size_t bytes) {
  static const bool strict = [] {
    int mode = 0;
    std::ifstream("/proc/sys/vm/overcommit_memory") >> mode;
    return mode == 2;
  }();
  int result = 0;
  while (strict && (result = ::fallocate(file, 0, 0, static_cast<off_t>(bytes))) != 0 && errno == EINTR) {
  }
  return result == 0;
}

}  // namespace

bool give_size(int file, std::size_t bytes) noexcept {
  rlimit most{};
  // The kernel would send SIGXFSZ, which ends the process.
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && bytes > most.rlim_cur) return errno = EFBIG, false;
  return ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
}

Result<UniqueFd> make_shared_memory(const char* name, std::size_t bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd descriptor(::memfd_create(name, kFlags | kNoExecute));
  if (!descriptor && errno == EINVAL) descriptor.reset(::memfd_create(name, kFlags));
  if (!descriptor || !give_size(descriptor.get(), bytes) || !have_pages(descriptor.get(), bytes) ||
      ::fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return no_memory("make", bytes);
  }
  return descriptor;
}

Result<std::size_t> size_of_shared_memory(int descriptor, int seals) {
  struct stat info{};
  const int has = ::fcntl(descriptor, F_GET_SEALS);
  if (has < 0 || (has & seals) != seals || ::fstat(descriptor, &info) != 0) {
    return {Code::kInvalidArgument, "the peer's memory is not sealed against a change of its size"};
  }
  // Of the reserved ones a fault may find none left; transparent ones, which shmem_enabled gives, are ordinary memory.
  struct statfs system{};
  if (::fstatfs(descriptor, &system) != 0 || system.f_type == HUGETLBFS_MAGIC) {
    return {Code::kInvalidArgument, "the peer's memory is of reserved huge pages"};
  }
  return static_cast<std::size_t>(info.st_size);
}

Result<SharedMapping> SharedMapping::map(int descriptor, std::size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED && (errno == EPERM || errno == EACCES)) {
    return {Code::kInvalidArgument, "the peer's memory is sealed against writing"};
  }
  if (at == MAP_FAILED) return no_memory("map", bytes);
  ::madvise(at, bytes, MADV_DONTFORK);
  ::madvise(at, bytes, MADV_DONTDUMP);
  SharedMapping mapping;
  mapping.at_ = static_cast<std::byte*>(at);
  mapping.bytes_ = bytes;
  return mapping;
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_), fork_mark_(other.fork_mark_) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(at_, other.at_);
  std::swap(bytes_, other.bytes_);
  std::swap(fork_mark_, other.fork_mark_);
  return *this;
}

bool SharedMapping::is_mine() const noexcept { return at_ != nullptr && fork_mark_.is_mine(); }

SharedMapping::~SharedMapping() {
  if (is_mine()) ::munmap(at_, bytes_);
}

}  // namespace fairlead
