// Protection domains, memory regions, memory windows, and fork.
#include <infiniband/verbs.h>

#include "verbs/dropin/real_library.h"
#include "verbs/soft/api/api.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace soft = fairlead::soft::api;

namespace {

bool is_soft(const ibv_pd* pd) noexcept { return soft::is_soft(pd->context); }
bool is_soft(const ibv_mr* mr) noexcept { return soft::is_soft(mr->context); }

template <typename Answer = std::nullptr_t>
Answer refuse_import() noexcept {
  errno = EOPNOTSUPP;
  return Answer{};
}

}  // namespace

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return soft::is_soft(context) ? soft::alloc_pd(context) : FAIRLEAD_FORWARD(ibv_alloc_pd, context);
}

int ibv_dealloc_pd(ibv_pd* pd) { return is_soft(pd) ? soft::dealloc_pd(pd) : FAIRLEAD_FORWARD(ibv_dealloc_pd, pd); }

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return is_soft(pd) ? soft::reg_mr(pd, address, length, access)
                     : FAIRLEAD_FORWARD(ibv_reg_mr, pd, address, length, access);
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  return is_soft(pd) ? soft::reg_mr_iova(pd, address, length, iova, access)
                     : FAIRLEAD_FORWARD(ibv_reg_mr_iova, pd, address, length, iova, access);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned int access) {
  if (!is_soft(pd)) return FAIRLEAD_FORWARD(ibv_reg_mr_iova2, pd, address, length, iova, access);
  // Optional flags are wishes: one that the device does not know is ignored.
  constexpr unsigned kKnown = ~unsigned{IBV_ACCESS_OPTIONAL_RANGE} | IBV_ACCESS_RELAXED_ORDERING;
  const int flags = static_cast<int>(access & kKnown);
  return iova == reinterpret_cast<std::uintptr_t>(address) ? soft::reg_mr(pd, address, length, flags)
                                                           : soft::reg_mr_iova(pd, address, length, iova, flags);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                          int access) {
  return is_soft(pd) ? soft::reg_dmabuf_mr(pd, offset, length, iova, fd, access)
                     : FAIRLEAD_FORWARD(ibv_reg_dmabuf_mr, pd, offset, length, iova, fd, access);
}

int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  return is_soft(mr) ? soft::rereg_mr(mr, flags, pd, address, length, access)
                     : FAIRLEAD_FORWARD(ibv_rereg_mr, mr, flags, pd, address, length, access);
}

int ibv_dereg_mr(ibv_mr* mr) { return is_soft(mr) ? soft::dereg_mr(mr) : FAIRLEAD_FORWARD(ibv_dereg_mr, mr); }

// Handles are the kernel's names for objects, and ours have none.
ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
  return soft::is_soft(context) ? refuse_import() : FAIRLEAD_FORWARD(ibv_import_pd, context, handle);
}

void ibv_unimport_pd(ibv_pd* pd) {
  if (!is_soft(pd)) FAIRLEAD_FORWARD(ibv_unimport_pd, pd);
}

ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
  return is_soft(pd) ? refuse_import() : FAIRLEAD_FORWARD(ibv_import_mr, pd, handle);
}

void ibv_unimport_mr(ibv_mr* mr) {
  if (!is_soft(mr)) FAIRLEAD_FORWARD(ibv_unimport_mr, mr);
}

ibv_dm* ibv_import_dm(ibv_context* context, std::uint32_t handle) {
  return soft::is_soft(context) ? refuse_import() : FAIRLEAD_FORWARD(ibv_import_dm, context, handle);
}

void ibv_unimport_dm(ibv_dm* dm) {
  if (!soft::is_soft(dm->context)) FAIRLEAD_FORWARD(ibv_unimport_dm, dm);
}

// softroce reads and writes memory as the program does, so fork needs no care on its account; the system's devices may.
int ibv_fork_init() { return fairlead::dropin::real_library_path() != nullptr ? FAIRLEAD_FORWARD(ibv_fork_init) : 0; }

ibv_fork_status ibv_is_fork_initialized() {
  return fairlead::dropin::real_symbol("ibv_is_fork_initialized") != nullptr ? FAIRLEAD_FORWARD(ibv_is_fork_initialized)
                                                                             : IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void* base, std::size_t size) {
  return fairlead::dropin::real_library_path() != nullptr ? FAIRLEAD_FORWARD(ibv_dontfork_range, base, size) : 0;
}

int ibv_dofork_range(void* base, std::size_t size) {
  return fairlead::dropin::real_library_path() != nullptr ? FAIRLEAD_FORWARD(ibv_dofork_range, base, size) : 0;
}

}  // extern "C"
