// GIDs, P_Keys and what is derived from them.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>

#include "verbs/dropin/private_verbs.h"
#include "verbs/dropin/real_library.h"
#include "verbs/soft/api/api.h"
#include "verbs/soft/api/fill_known.h"

namespace soft = fairlead::soft::api;

extern "C" {

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  return soft::is_soft(context) ? soft::query_gid(context, port, index, gid)
                                : FAIRLEAD_FORWARD(ibv_query_gid, context, port, index, gid);
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t flags, std::size_t entry_size) {
  if (!soft::is_soft(context)) {
    return FAIRLEAD_FORWARD(_ibv_query_gid_ex, context, port, index, entry, flags, entry_size);
  }
  if (flags != 0) return EOPNOTSUPP;
  if (entry_size < sizeof(ibv_gid_entry)) return EINVAL;
  ibv_gid_entry known{};
  const int error = soft::query_gid_ex(context, port, index, &known);
  if (error == 0) soft::fill_known(entry, entry_size, known);
  return error;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries, std::uint32_t flags,
                             std::size_t entry_size) {
  if (!soft::is_soft(context)) {
    return FAIRLEAD_FORWARD(_ibv_query_gid_table, context, entries, max_entries, flags, entry_size);
  }
  if (flags != 0) return -EOPNOTSUPP;
  if (entry_size < sizeof(ibv_gid_entry)) return -EINVAL;
  ibv_port_attr port{};
  if (const int error = soft::query_port(context, 1, &port); error != 0) return -error;
  std::size_t count = 0;
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    ibv_gid_entry entry{};
    if (soft::query_gid_ex(context, 1, static_cast<std::uint32_t>(index), &entry) != 0) continue;
    if (count == max_entries) return -EINVAL;
    soft::fill_known(reinterpret_cast<std::byte*>(entries) + count * entry_size, entry_size, entry);
    ++count;
  }
  return static_cast<ssize_t>(count);
}

// An empty index answers as sysfs does.
int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned int index, ibv_gid_type_sysfs* type) {
  if (!soft::is_soft(context)) return FAIRLEAD_FORWARD(ibv_query_gid_type, context, port, index, type);
  ibv_gid_entry entry{};
  const int error = soft::query_gid_ex(context, port, index, &entry);
  if (error == 0 || error == ENODATA) {
    const bool v2 = error == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    *type = v2 ? IBV_GID_TYPE_SYSFS_ROCE_V2 : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
    return 0;
  }
  errno = error;
  return -1;
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  return soft::is_soft(context) ? soft::query_pkey(context, port, index, pkey)
                                : FAIRLEAD_FORWARD(ibv_query_pkey, context, port, index, pkey);
}

int ibv_get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
  if (!soft::is_soft(context)) return FAIRLEAD_FORWARD(ibv_get_pkey_index, context, port, pkey);
  __be16 found = 0;
  for (int index = 0; soft::query_pkey(context, port, index, &found) == 0; ++index) {
    if (found == pkey) return index;
  }
  errno = EINVAL;
  return -1;
}

// Sockets resolve neighbours themselves; nobody needs an Ethernet address of ours.
int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, std::uint8_t mac[6], std::uint16_t* vlan) {
  return soft::is_soft(context) ? EOPNOTSUPP : FAIRLEAD_FORWARD(ibv_resolve_eth_l2_from_gid, context, attr, mac, vlan);
}

}  // extern "C"
