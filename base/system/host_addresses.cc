#include "base/system/host_addresses.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "base/unique_fd.h"

namespace fairlead {
namespace {

constexpr int kTries = 4;                         // a list that changed while it was made is asked for again
constexpr std::size_t kMostInOneMessage = 65536;  // bytes; the kernel fills 32 KiB at most
constexpr std::size_t kIpv4Bytes = 4;

bool ask(int socket, int family) noexcept {
  struct {
    nlmsghdr header;
    ifaddrmsg body;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETADDR;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.ifa_family = static_cast<std::uint8_t>(family);
  return ::send(socket, &request, sizeof request, 0) == sizeof request;
}

/// Of an interface that ends at a peer, IFA_ADDRESS is the peer's.
std::optional<HostAddress> address_in(const nlmsghdr& message) noexcept {
  const auto& body = *static_cast<const ifaddrmsg*>(NLMSG_DATA(&message));
  HostAddress found{.ipv4 = body.ifa_family == AF_INET, .interface = body.ifa_index};
  const std::size_t size = found.ipv4 ? kIpv4Bytes : found.bytes.size();
  const rtattr* own = nullptr;
  auto left = static_cast<unsigned>(message.nlmsg_len - NLMSG_LENGTH(sizeof body));
  for (const rtattr* each = IFA_RTA(&body); RTA_OK(each, left); each = RTA_NEXT(each, left)) {
    if (each->rta_type == IFA_LOCAL || (each->rta_type == IFA_ADDRESS && own == nullptr)) own = each;
  }
  if (own == nullptr || RTA_PAYLOAD(own) != size) return std::nullopt;
  if (found.ipv4) found.bytes[10] = found.bytes[11] = 0xff;
  std::memcpy(found.bytes.data() + found.bytes.size() - size, RTA_DATA(own), size);
  return found;
}

enum class Read { kMore, kEnd, kFailed };

Read read_messages(std::span<const std::byte> bytes, std::vector<HostAddress>& found, bool& changed) {
  auto left = static_cast<unsigned>(bytes.size());
  for (auto* each = reinterpret_cast<const nlmsghdr*>(bytes.data()); NLMSG_OK(each, left);
       each = NLMSG_NEXT(each, left)) {
    changed |= (each->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
    if (each->nlmsg_type == NLMSG_ERROR) {
      errno = -static_cast<const nlmsgerr*>(NLMSG_DATA(each))->error;
      return Read::kFailed;
    }
    if (each->nlmsg_type == NLMSG_DONE) return Read::kEnd;
    if (each->nlmsg_type != RTM_NEWADDR) continue;
    if (const std::optional<HostAddress> address = address_in(*each)) found.push_back(*address);
  }
  return Read::kMore;
}

/// To its end, whatever changes meanwhile; whether something did. Nothing, with errno: it cannot be told.
std::optional<bool> list(int family, std::vector<HostAddress>& found) {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket || !ask(socket.get(), family)) return std::nullopt;
  std::vector<std::byte> buffer(kMostInOneMessage);
  bool changed = false;
  Read read = Read::kMore;
  while (read == Read::kMore) {
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    read = read_messages(std::span(buffer).first(static_cast<std::size_t>(got)), found, changed);
  }
  if (read == Read::kEnd) return changed;
  if (errno == EOPNOTSUPP || errno == EAFNOSUPPORT) return false;  // the host has no such family
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<HostAddress>> list_host_addresses() {
  std::vector<HostAddress> found;
  for (const int family : {AF_INET, AF_INET6}) {
    const std::size_t before = found.size();
    for (int tries = 1;; ++tries) {
      const std::optional<bool> changed = list(family, found);
      if (!changed) return std::nullopt;
      if (!*changed || tries == kTries) break;
      found.resize(before);
    }
  }
  return found;
}

}  // namespace fairlead
