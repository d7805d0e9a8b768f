#include "verbs/soft/rc/memory_windows.h"

#include "verbs/soft/memory/mr_table.h"
#include "verbs/soft/qp/qp.h"
#include "verbs/soft/qp/qp_context.h"

namespace fairlead::soft {
namespace {

constexpr unsigned kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kMayAsk = kRemote | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
constexpr unsigned kNeedsLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

bool region_allows(const Mr& region, const Qp& qp, const SendWqe& wqe) noexcept {
  if (region.domain != &qp.pd_ref || (region.access & IBV_ACCESS_MW_BIND) == 0) return false;
  if ((region.access & IBV_ACCESS_ZERO_BASED) != 0) return false;
  if ((wqe.window_access & kNeedsLocalWrite) != 0 && (region.access & IBV_ACCESS_LOCAL_WRITE) == 0) return false;
  return wqe.remote_address >= region.base && wqe.window_length <= region.bytes &&
         wqe.remote_address - region.base <= region.bytes - wqe.window_length;
}

// The window and the region are found by their keys, as the application may have ended them since it asked.
Mw* window_of(const Qp& qp, const SendWqe& wqe) noexcept {
  Grant* grant = qp.domain.regions.grant_of_index(wqe.rkey);
  if (grant == nullptr || !grant->window || grant->domain != &qp.pd_ref) return nullptr;
  // The tag is free to choose, but not the one that the window had.
  return static_cast<Mw*>(grant) == wqe.window && grant->key != wqe.rkey ? static_cast<Mw*>(grant) : nullptr;
}

Mr* region_of(const Qp& qp, const SendWqe& wqe) noexcept {
  Grant* grant = qp.domain.regions.grant_of(wqe.window_region);
  return grant != nullptr && !grant->window ? static_cast<Mr*>(grant) : nullptr;
}

void clear(Mw& window) noexcept {
  if (window.region != nullptr) --window.region->windows;
  window.region = nullptr;
  window.start = nullptr;
  window.bytes = 0;
  window.access = 0;
  window.only_qp = 0;
}

}  // namespace

bool bind_window(Qp& qp, const SendWqe& wqe) noexcept {
  Mw* window = window_of(qp, wqe);
  if (window == nullptr) return false;
  const bool type_2 = window->type == IBV_MW_TYPE_2;
  if (wqe.window_length == 0 && !type_2) {
    unbind_window(qp.domain, *window);
    window->key = wqe.rkey;
    return true;
  }
  if (wqe.window_length == 0 || (wqe.window_access & ~kMayAsk) != 0) return false;
  const bool zero_based = (wqe.window_access & IBV_ACCESS_ZERO_BASED) != 0;
  if (type_2 ? window->region != nullptr : zero_based) return false;
  Mr* region = region_of(qp, wqe);
  if (region == nullptr || !region_allows(*region, qp, wqe)) return false;

  unbind_window(qp.domain, *window);
  window->start = region->at(wqe.remote_address);
  window->base = zero_based ? 0 : wqe.remote_address;
  window->bytes = wqe.window_length;
  window->access = wqe.window_access & kRemote;
  window->only_qp = type_2 ? qp.number() : 0;
  window->key = wqe.rkey;
  window->region = region;
  ++region->windows;
  return true;
}

bool invalidate_window(Qp& qp, std::uint32_t rkey) noexcept {
  Grant* grant = qp.domain.regions.grant_of(rkey);
  if (grant == nullptr || !grant->window || grant->domain != &qp.pd_ref || grant->only_qp != qp.number()) return false;
  unbind_window(qp.domain, static_cast<Mw&>(*grant));
  return true;
}

void unbind_window(QpContext& domain, Mw& window) noexcept {
  // An answer to a READ may refer to what the peer may not read from now on.
  if ((window.access & IBV_ACCESS_REMOTE_READ) != 0) domain.take_back(window.start, window.bytes);
  clear(window);
}

// What its queue pair's packets refer to is taken back with that.
void unbind_windows_of(MrTable& table, std::uint32_t qpn) noexcept {
  if (!table.has_windows()) return;
  table.for_each([qpn](Grant& grant) {
    if (grant.window && grant.only_qp == qpn) clear(static_cast<Mw&>(grant));
  });
}

}  // namespace fairlead::soft
