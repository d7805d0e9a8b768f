#include "bench/link/tap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

// Segments of UDP came with Linux 6.2, and with its headers.
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif
namespace fairlead::bench {
namespace {

// struct virtio_net_hdr of linux/virtio_net.h, which is no C++; in this machine's byte order.
struct VirtioNetHeader {
  std::uint8_t flags;
  std::uint8_t gso_type;
  std::uint16_t hdr_len;  // what lies in one piece in the kernel, which may be more than headers
  std::uint16_t gso_size;
  std::uint16_t csum_start;
  std::uint16_t csum_offset;
};
static_assert(sizeof(VirtioNetHeader) == kVirtioNetHeader);
constexpr std::uint8_t kGsoNone = 0, kGsoUdp = 5, kGsoEcn = 0x80;

constexpr std::size_t kUdpHeader = 8;
constexpr std::size_t kDataOffset = 12;  // in a TCP header: its own length in words, in the upper half of this byte

Status failed(const std::string& name, const char* what) {
  return {Code::kUnavailable, fmt::format("TAP device {}: {}: {}", name, what, std::strerror(errno))};
}

}  // namespace

Result<UniqueFd> make_tap(const std::string& name, bool segments) {
  ifreq request{};
  if (name.empty() || name.size() >= sizeof(request.ifr_name)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' names no interface: 1 to {} letters do", name, sizeof(request.ifr_name) - 1));
  }
  UniqueFd fd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return failed(name, "/dev/net/tun");
  std::copy(name.begin(), name.end(), request.ifr_name);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(fd.get(), TUNSETIFF, &request) != 0) return failed(name, "TUNSETIFF");
  const unsigned long plain = TUN_F_CSUM, tcp = plain | TUN_F_TSO4 | TUN_F_TSO6, all = tcp | TUN_F_USO4 | TUN_F_USO6;
  if (!segments) {
    if (::ioctl(fd.get(), TUNSETOFFLOAD, plain) != 0) return failed(name, "TUNSETOFFLOAD");
  } else if (::ioctl(fd.get(), TUNSETOFFLOAD, all) != 0 && ::ioctl(fd.get(), TUNSETOFFLOAD, tcp) != 0) {
    return failed(name, "TUNSETOFFLOAD");
  }
  return fd;
}

std::uint64_t bytes_on_the_line(std::span<const std::byte> frame, std::uint64_t* packets) noexcept {
  VirtioNetHeader header;
  if (packets != nullptr) *packets = 1;
  if (frame.size() <= sizeof(header)) return 0;
  std::memcpy(&header, frame.data(), sizeof(header));
  const auto packet = frame.subspan(sizeof(header));
  if (header.gso_type == kGsoNone || header.gso_size == 0) return packet.size();
  std::size_t headers = std::size_t{header.csum_start} + kUdpHeader;
  if ((header.gso_type & ~kGsoEcn) != kGsoUdp) {
    const std::size_t at = std::size_t{header.csum_start} + kDataOffset;
    if (at >= packet.size()) return packet.size();
    headers = header.csum_start + (std::to_integer<std::size_t>(packet[at]) >> 4) * 4;
  }
  if (headers >= packet.size()) return packet.size();
  const std::size_t data = packet.size() - headers, segments = (data + header.gso_size - 1) / header.gso_size;
  if (packets != nullptr) *packets = segments;
  return data + segments * headers;
}

}  // namespace fairlead::bench
