// Verbs on thread domains and parent domains.
//
// A thread domain promises that its objects are used by one thread; there is little to gain from it here, as protocol
// state is under the device's lock anyway. A parent domain is a protection domain by another name: keys and queue pairs
// made through it are those of the domain that it stands for. Its allocators are not called: queues are ordinary memory
// of the process, which no hardware needs to reach.
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/observe/refuse.h"

namespace fairlead::soft {
namespace {

struct ThreadDomain : ibv_td {
  explicit ThreadDomain(ibv_context* owner) : ibv_td{owner} {}
  std::atomic<int> users{0};
};

struct ParentDomain : Pd {
  ParentDomain(Pd& original, ThreadDomain* threads) : Pd(original.context, &original), thread_domain(threads) {
    if (thread_domain != nullptr) ++thread_domain->users;
  }
  ~ParentDomain() override {
    if (thread_domain != nullptr) --thread_domain->users;
  }
  ThreadDomain* const thread_domain;
};

}  // namespace

namespace api {

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* init) {
  if (init->comp_mask != 0) {
    return refuse(EOPNOTSUPP, fmt::format("ibv_alloc_td: comp_mask {:#x}; only 0 is known", init->comp_mask));
  }
  ThreadDomain* made = make_or_errno("ibv_alloc_td", [&] { return new ThreadDomain(context); });
  if (made != nullptr) impl(context).retain();
  return made;
}

int dealloc_td(ibv_td* base) {
  auto* domain = static_cast<ThreadDomain*>(base);
  if (domain->users.load() != 0) return EBUSY;
  Device& device = impl(domain->context);
  delete domain;
  device.release();
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* init) {
  constexpr std::uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if ((init->comp_mask & ~kKnown) != 0) {
    return refuse(EOPNOTSUPP,
                  fmt::format("ibv_alloc_parent_domain: comp_mask {:#x}; known: {:#x}", init->comp_mask, kKnown));
  }
  if (init->pd == nullptr || init->pd->context != context || (init->td != nullptr && init->td->context != context)) {
    return refuse(EINVAL, "ibv_alloc_parent_domain: pd, and td if given, must be of this context");
  }
  const bool allocators = (init->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (allocators && (init->alloc == nullptr || init->free == nullptr)) {
    return refuse(EINVAL, "ibv_alloc_parent_domain: alloc and free must both be given");
  }
  Pd& original = impl(init->pd);
  if (&original.root() != &original) {
    return refuse(EINVAL, "ibv_alloc_parent_domain: pd is a parent domain itself; give the one that it stands for");
  }
  ParentDomain* made = make_or_errno("ibv_alloc_parent_domain", [&] {
    const DomainLock lock(impl(context).domain());
    return new ParentDomain(original, static_cast<ThreadDomain*>(init->td));
  });
  if (made != nullptr) impl(context).retain();
  return made;
}

}  // namespace api
}  // namespace fairlead::soft
