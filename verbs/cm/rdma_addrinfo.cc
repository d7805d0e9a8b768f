#include <netdb.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "verbs/cm/rdma_calls.h"

namespace fairlead::cm::api {
namespace {

// Allocated piece by piece with malloc, as freeaddrinfo gives it back.
sockaddr* copy(const sockaddr& from, socklen_t length) {
  void* to = std::malloc(length);
  if (to != nullptr) std::memcpy(to, &from, length);
  return static_cast<sockaddr*>(to);
}

rdma_port_space space_of(int qp_type) noexcept { return qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP; }

// A hint names the queue pair's type, the port space, or neither.
void choose_type(const rdma_addrinfo* hints, rdma_addrinfo& info) noexcept {
  info.ai_qp_type = hints != nullptr ? hints->ai_qp_type : 0;
  info.ai_port_space = hints != nullptr ? hints->ai_port_space : 0;
  if (info.ai_qp_type == 0) {
    info.ai_qp_type =
        info.ai_port_space == RDMA_PS_UDP || info.ai_port_space == RDMA_PS_IPOIB ? IBV_QPT_UD : IBV_QPT_RC;
  }
  if (info.ai_port_space == 0) info.ai_port_space = space_of(info.ai_qp_type);
}

}  // namespace

int getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo** result) {
  if (node == nullptr && service == nullptr && hints == nullptr) {
    return refuse(EINVAL, "rdma_getaddrinfo: neither a node nor a service nor hints");
  }
  const int flags = hints != nullptr ? hints->ai_flags : 0;
  const bool passive = (flags & RAI_PASSIVE) != 0;
  const auto fail = [](rdma_addrinfo* info) {
    freeaddrinfo(info);
    return refuse(ENOMEM, "rdma_getaddrinfo: out of memory");
  };
  auto* info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (info == nullptr) return fail(info);
  info->ai_flags = flags;
  choose_type(hints, *info);

  if (node != nullptr || service != nullptr) {
    addrinfo wanted{};
    wanted.ai_flags = (passive ? AI_PASSIVE : 0) | ((flags & RAI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0);
    wanted.ai_family = (flags & RAI_FAMILY) != 0 ? hints->ai_family : AF_UNSPEC;
    wanted.ai_socktype = info->ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = ::getaddrinfo(node, service, &wanted, &found); error != 0) {
      freeaddrinfo(info);
      return error;  // EAI_*, as librdmacm does
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
    // An IPv4 answer where there is one: RoCE GIDs of most hosts are IPv4-mapped.
    while (found->ai_next != nullptr && found->ai_family != AF_INET && (flags & RAI_FAMILY) == 0) {
      found = found->ai_next;
    }
    info->ai_family = found->ai_family;
    sockaddr*& address = passive ? info->ai_src_addr : info->ai_dst_addr;
    (passive ? info->ai_src_len : info->ai_dst_len) = found->ai_addrlen;
    address = copy(*found->ai_addr, found->ai_addrlen);
    if (address == nullptr) return fail(info);
  } else if (hints->ai_dst_addr != nullptr) {
    info->ai_family = hints->ai_dst_addr->sa_family;
    info->ai_dst_len = hints->ai_dst_len;
    info->ai_dst_addr = copy(*hints->ai_dst_addr, hints->ai_dst_len);
    if (info->ai_dst_addr == nullptr) return fail(info);
  }
  if (info->ai_src_addr == nullptr && hints != nullptr && hints->ai_src_addr != nullptr) {
    if (info->ai_family == 0) info->ai_family = hints->ai_src_addr->sa_family;
    info->ai_src_len = hints->ai_src_len;
    info->ai_src_addr = copy(*hints->ai_src_addr, hints->ai_src_len);
    if (info->ai_src_addr == nullptr) return fail(info);
  }
  *result = info;
  return 0;
}

void freeaddrinfo(rdma_addrinfo* info) {
  while (info != nullptr) {
    rdma_addrinfo* next = info->ai_next;
    std::free(info->ai_src_addr);
    std::free(info->ai_dst_addr);
    std::free(info);
    info = next;
  }
}

}  // namespace fairlead::cm::api
