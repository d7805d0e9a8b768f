// Verbs on protection domains and memory.
#include "verbs/soft/api.h"
#include "verbs/soft/guarded.h"
#include "verbs/soft/objects.h"
#include "verbs/soft/refuse.h"

namespace fairlead::soft::api {

ibv_pd* alloc_pd(ibv_context* context) {
  Pd* pd = make_or_errno("ibv_alloc_pd", [&] { return new Pd(context); });
  if (pd != nullptr) ++impl(context).objects;
  return pd;
}

int dealloc_pd(ibv_pd* base) {
  Pd* pd = &impl(base);
  Device& device = impl(pd->context);
  const DomainLock lock(device.domain());
  if (pd->users != 0) return EBUSY;
  --device.objects;
  delete pd;
  return 0;
}

ibv_mr* reg_mr(ibv_pd* base, void* address, std::size_t length, int access) {
  constexpr int kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_HUGETLB;
  if ((access & ~kKnown) != 0) {
    return refuse(EOPNOTSUPP, fmt::format("ibv_reg_mr: access flags {:#x} are not supported; use local write, remote "
                                          "write and remote read",
                                          static_cast<unsigned>(access & ~kKnown)));
  }
  // IBTA 10.6.3.1: a peer may write only what the owner may.
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) {
    return refuse(EINVAL, "ibv_reg_mr: remote write and remote atomic access require local write access");
  }
  if (reinterpret_cast<std::uintptr_t>(address) + length < length) {
    return refuse(EINVAL, fmt::format("ibv_reg_mr: {} bytes at {} wrap around the address space", length, address));
  }
  install_fault_handlers();
  Domain& domain = impl(base->context).domain();
  const DomainLock lock(domain);
  Mr* region = nullptr;
  try {
    region = domain.regions.add(impl(base), address, length, static_cast<unsigned>(access));
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM, "ibv_reg_mr: out of memory");
  }
  if (region == nullptr) {
    return refuse(ENOMEM, fmt::format("ibv_reg_mr: all {} memory regions are in use; register larger ranges",
                                      MrTable::kMaxRegions));
  }
  return region;
}

int dereg_mr(ibv_mr* region) {
  Domain& domain = impl(region->context).domain();
  const DomainLock lock(domain);
  domain.regions.remove(&impl(region));
  return 0;
}

}  // namespace fairlead::soft::api
