// Verbs on protection domains and memory.
#include <span>

#include "base/system/prefetch.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/api/registration.h"
#include "verbs/soft/observe/refuse.h"

namespace fairlead::soft::api {

ibv_pd* alloc_pd(ibv_context* context) {
  Pd* pd = make_or_errno("ibv_alloc_pd", [&] { return new Pd(context); });
  if (pd != nullptr) impl(context).retain();
  return pd;
}

int dealloc_pd(ibv_pd* base) {
  Pd* pd = &impl(base);
  Device& device = impl(pd->context);
  {
    const DomainLock lock(device.domain());
    if (pd->users != 0) return EBUSY;
    delete pd;
  }
  device.release();
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return reg_mr_iova(pd, address, length, reinterpret_cast<std::uintptr_t>(address), access);
}

ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  const bool zero_based = (access & IBV_ACCESS_ZERO_BASED) != 0;
  // All of the address space (implicit on-demand paging): nothing tells its owner from any other.
  if (address == nullptr && length == SIZE_MAX && (access & IBV_ACCESS_ON_DEMAND) == 0) {
    return refuse(EINVAL, "ibv_reg_mr: the whole address space can be registered with IBV_ACCESS_ON_DEMAND only");
  }
  return register_region(impl(pd), {"ibv_reg_mr", static_cast<std::byte*>(address), length, zero_based ? 0 : iova,
                                    static_cast<unsigned>(access)});
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  if (impl(pd->context).profile() == Profile::kPvrdma) {
    return refuse(EOPNOTSUPP, "ibv_alloc_null_mr: profile pvrdma has no null regions");
  }
  Mr* region = register_region(impl(pd), {"ibv_alloc_null_mr", nullptr, SIZE_MAX, 0, IBV_ACCESS_LOCAL_WRITE});
  if (region == nullptr) return nullptr;
  region->null = true;  // nobody has the key yet
  region->length = 0;
  return region;
}

int rereg_mr(ibv_mr* base, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  constexpr std::string_view kVerb = "ibv_rereg_mr";
  Mr& region = impl(base);
  Device& device = impl(base->context);
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  const auto input_error = [&](int error, std::string_view why) {
    refuse(error, fmt::format("{}: {}", kVerb, why));
    return IBV_REREG_MR_ERR_INPUT;
  };
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) return input_error(EINVAL, "unknown flags, or none");
  if (moves && (address == nullptr || length == 0)) return input_error(EINVAL, "no address or no length");
  if (changes_pd && (pd == nullptr || pd->context != base->context))
    return input_error(EINVAL, "no domain of the device");
  if (changes_access && check_access(kVerb, static_cast<unsigned>(access), device.profile()) != 0) {
    return IBV_REREG_MR_ERR_INPUT;
  }
  if (moves && (region.addr == nullptr || region.null)) {
    return input_error(EINVAL, "device memory, dma-bufs and null regions cannot be moved");
  }
  // Behind its key is memory of the device's own, and a window of it would be one of all that the process has.
  constexpr unsigned kOfNull = IBV_ACCESS_LOCAL_WRITE | unsigned{IBV_ACCESS_OPTIONAL_RANGE};
  if (changes_access && region.null && (static_cast<unsigned>(access) & ~kOfNull) != 0) {
    return input_error(EINVAL, "a null region can grant local access only");
  }
  if (moves && reinterpret_cast<std::uintptr_t>(address) + length < length) {
    return input_error(EINVAL, "the range wraps around the address space");
  }
  const DomainLock lock(device.domain());
  if (region.windows != 0) {
    refuse(EBUSY, fmt::format("{}: {} memory windows are bound to the region", kVerb, region.windows));
    return IBV_REREG_MR_ERR_CMD;
  }
  if (changes_access || changes_pd)
    device.domain().take_back(region.start, region.bytes);  // who might may read no more
  if (changes_access) region.access = static_cast<unsigned>(access) | kLocalRead;
  if (moves) {
    device.domain().lender.unmap(region);
    region.start = static_cast<std::byte*>(address);
    region.bytes = length;
    region.addr = address;
    region.length = length;
    device.domain().lender.map(region);
  }
  if (moves || changes_access) {
    const bool zero_based = (region.access & IBV_ACCESS_ZERO_BASED) != 0;
    if (moves || zero_based) region.base = zero_based ? 0 : reinterpret_cast<std::uintptr_t>(address);
  }
  if (changes_pd) {
    --impl(region.pd).users;
    ++impl(pd).users;
    region.pd = pd;
    region.domain = &impl(pd).root();
  }
  return 0;
}

int dereg_mr(ibv_mr* base) {
  Mr* region = &impl(base);
  Domain& domain = impl(base->context).domain();
  {
    const DomainLock lock(domain);
    if (region->windows != 0) {
      return refuse_with(EBUSY, fmt::format("ibv_dereg_mr: {} memory windows are bound to the region; deallocate or "
                                            "invalidate them first",
                                            region->windows));
    }
    domain.regions.remove(*region);
    domain.lender.unmap(*region);
    --impl(region->pd).users;
    if (region->device_memory != nullptr) --region->device_memory->users;
  }
  delete region;
  return 0;
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t count) {
  const bool writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const bool faults = advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
    return refuse_with(EOPNOTSUPP, fmt::format("ibv_advise_mr: advice {} is unknown", static_cast<int>(advice)));
  }
  if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || list == nullptr || count == 0) return EINVAL;
  const std::span<const ibv_sge> segments(list, count);
  for (const ibv_sge& segment : segments) {
    const std::byte* start = nullptr;
    {
      Domain& domain = impl(pd->context).domain();
      const DomainLock lock(domain);
      const unsigned access = kLocalRead | IBV_ACCESS_ON_DEMAND | (writes ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U);
      start = domain.regions.find(&impl(pd).root(), segment.lkey, segment.addr, segment.length, access, 0);
    }
    if (start == nullptr || (faults && !prefetch(start, segment.length, writes))) {
      return refuse_with(EFAULT,
                         fmt::format("ibv_advise_mr: {} bytes at {:#x} are not all memory of an on-demand region",
                                     segment.length, segment.addr));
    }
  }
  return 0;
}

}  // namespace fairlead::soft::api
