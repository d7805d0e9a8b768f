#include "doctor/probes.h"

#include <fcntl.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/unique_fd.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

namespace fairlead::doctor {
namespace {

int ask_userfaultfd() {
  const UniqueFd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  if (!fd) return errno;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP;
  return ::ioctl(fd.get(), UFFDIO_API, &api) == 0 ? 0 : errno;
}

constexpr std::size_t kAttribute = NLA_HDRLEN;

/// The first attribute of that type in `bytes`, without its header; empty where there is none.
std::span<const std::byte> attribute(std::span<const std::byte> bytes, std::uint16_t type) {
  while (bytes.size() >= kAttribute) {
    nlattr header{};
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.nla_len < kAttribute || header.nla_len > bytes.size()) return {};
    if ((header.nla_type & NLA_TYPE_MASK) == type) return bytes.subspan(kAttribute, header.nla_len - kAttribute);
    bytes = bytes.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
  }
  return {};
}

struct Question {
  nlmsghdr header{};
  dcbmsg dcb{};
  nlattr name{};
  char interface[16] = {};  // IFNAMSIZ
};

std::optional<std::uint8_t> ask_pfc(const std::string& interface) {
  Question question;
  if (interface.size() >= sizeof question.interface) return std::nullopt;
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket) return std::nullopt;
  const timeval limit{.tv_sec = 5, .tv_usec = 0};  // the kernel answers at once
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = RTM_GETDCB;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.dcb.cmd = DCB_CMD_IEEE_GET;
  question.name.nla_type = DCB_ATTR_IFNAME;
  question.name.nla_len = static_cast<std::uint16_t>(kAttribute + sizeof question.interface);
  std::copy(interface.begin(), interface.end(), question.interface);
  if (::send(socket.get(), &question, sizeof question, 0) < 0) return std::nullopt;
  alignas(nlmsghdr) std::byte answer[8192];
  const ssize_t got = ::recv(socket.get(), answer, sizeof answer, 0);
  constexpr std::size_t kHeaders = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(dcbmsg));
  if (got < static_cast<ssize_t>(kHeaders)) return std::nullopt;
  nlmsghdr header{};
  std::memcpy(&header, answer, sizeof header);
  if (header.nlmsg_type == NLMSG_ERROR || header.nlmsg_len > static_cast<std::size_t>(got)) return std::nullopt;
  const auto all = std::span<const std::byte>(answer, static_cast<std::size_t>(got)).subspan(kHeaders);
  const auto pfc = attribute(attribute(all, DCB_ATTR_IEEE), DCB_ATTR_IEEE_PFC);
  if (pfc.size() < sizeof(ieee_pfc)) return std::nullopt;
  ieee_pfc state{};
  std::memcpy(&state, pfc.data(), sizeof state);
  return state.pfc_en;
}

}  // namespace

Probes probes_of_this_machine() { return {.userfaultfd = ask_userfaultfd, .pfc = ask_pfc}; }

}  // namespace fairlead::doctor
