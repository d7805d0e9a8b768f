// Verbs on memory that is not an application's buffer: device memory, dma-bufs.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/api/registration.h"
#include "verbs/soft/observe/refuse.h"

namespace fairlead::soft::api {
namespace {

constexpr std::uint64_t kDmAlignment = 4;  // of offsets and lengths, as devices have it that own memory
constexpr std::uint32_t kMostLogAlign = 12;

Dm& impl(ibv_dm* dm) noexcept { return static_cast<Dm&>(*dm); }

bool inside(const Dm& dm, std::uint64_t offset, std::size_t length) noexcept {
  return offset % kDmAlignment == 0 && length % kDmAlignment == 0 && length <= dm.bytes && offset <= dm.bytes - length;
}

int copy_to(ibv_dm* dm, std::uint64_t offset, const void* from, std::size_t length) {
  if (!inside(impl(dm), offset, length)) return EINVAL;
  std::memcpy(impl(dm).start + offset, from, length);
  return 0;
}

int copy_from(void* to, ibv_dm* dm, std::uint64_t offset, std::size_t length) {
  if (!inside(impl(dm), offset, length)) return EINVAL;
  std::memcpy(to, impl(dm).start + offset, length);
  return 0;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  if (attr->comp_mask != 0 || attr->log_align_req > kMostLogAlign) {
    return refuse(EINVAL, fmt::format("ibv_alloc_dm: comp_mask {:#x}, log_align_req {}; legal: 0, at most {}",
                                      attr->comp_mask, attr->log_align_req, kMostLogAlign));
  }
  if (attr->length == 0 || attr->length > kMaxDeviceMemory) {
    return refuse(EINVAL, fmt::format("ibv_alloc_dm: {} bytes; legal: 1..{}", attr->length, kMaxDeviceMemory));
  }
  return make_or_errno("ibv_alloc_dm", [&]() -> ibv_dm* {
    auto dm = std::make_unique<Dm>();
    const std::uint64_t alignment = std::uint64_t{1} << attr->log_align_req;
    dm->memory = std::make_unique<std::byte[]>(attr->length + alignment);
    dm->start = dm->memory.get() + (-reinterpret_cast<std::uintptr_t>(dm->memory.get()) & (alignment - 1));
    dm->bytes = attr->length;
    dm->context = context;
    dm->memcpy_to_dm = &copy_to;
    dm->memcpy_from_dm = &copy_from;
    soft::impl(context).retain();
    return dm.release();
  });
}

int free_dm(ibv_dm* base) {
  Dm& dm = impl(base);
  Device& device = soft::impl(dm.context);
  {
    const DomainLock lock(device.domain());
    if (dm.users != 0) return EBUSY;
  }
  delete &dm;
  device.release();
  return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* base, std::uint64_t offset, std::size_t length, unsigned access) {
  Dm& dm = impl(base);
  if ((access & IBV_ACCESS_ZERO_BASED) == 0) {
    return refuse(EINVAL, "ibv_reg_dm_mr: device memory has no address; set IBV_ACCESS_ZERO_BASED");
  }
  if (!inside(dm, offset, length)) {
    return refuse(EINVAL, fmt::format("ibv_reg_dm_mr: {} bytes at {} of {} bytes; both must be multiples of {}", length,
                                      offset, dm.bytes, kDmAlignment));
  }
  Mr* region = register_region(soft::impl(pd), {"ibv_reg_dm_mr", dm.start + offset, length, 0, access});
  if (region == nullptr) return nullptr;
  region->addr = nullptr;
  region->device_memory = &dm;
  const DomainLock lock(soft::impl(dm.context).domain());
  ++dm.users;
  return region;
}

ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t skip = offset % page;
  const bool writes = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  void* pages = ::mmap(nullptr, length + skip, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd,
                       static_cast<off_t>(offset - skip));
  if (pages == MAP_FAILED) {
    const int error = errno;
    return refuse(
        error == EBADF || error == EINVAL ? error : EOPNOTSUPP,
        fmt::format("ibv_reg_dmabuf_mr: {} bytes of descriptor {} cannot be mapped: {}; softroce reaches only "
                    "memory that the processor can",
                    length, fd, std::strerror(error)));
  }
  Mapping mapping(pages, length + skip);
  Mr* region = register_region(soft::impl(pd), {"ibv_reg_dmabuf_mr", static_cast<std::byte*>(pages) + skip, length,
                                                iova, static_cast<unsigned>(access)});
  if (region == nullptr) return nullptr;
  region->addr = nullptr;
  region->mapping = std::move(mapping);
  return region;
}

}  // namespace fairlead::soft::api
