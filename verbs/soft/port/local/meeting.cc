#include "verbs/soft/port/local/meeting.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system/own_user.h"
#include "verbs/soft/port/udp/group_names.h"

namespace fairlead::soft::local {
namespace {

constexpr std::array kMagic = {std::byte{'F'}, std::byte{'L'}, std::byte{'L'}, std::byte{'M'}};
constexpr std::byte kVersion{2};  // 2: references of up to 256 KiB
constexpr std::size_t kPlaceAt = 5, kGidAt = 8;
constexpr int kBacklog = 64;

std::optional<sockaddr_un> address_of(const std::string& name) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return std::nullopt;
  name.copy(address.sun_path, name.size());
  return address;
}

UniqueFd new_socket() noexcept { return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

}  // namespace

GreetingBytes encode(const Party& party) noexcept {
  GreetingBytes bytes{};
  std::ranges::copy(kMagic, bytes.begin());
  bytes[kMagic.size()] = kVersion;
  bytes[kPlaceAt] = std::byte{party.place};
  std::memcpy(&bytes[kGidAt], party.gid.bytes.data(), party.gid.bytes.size());
  return bytes;
}

std::optional<Party> decode(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kGreetingBytes || !std::ranges::equal(kMagic, bytes.first(kMagic.size())) ||
      bytes[kMagic.size()] != kVersion || bytes[6] != std::byte{0} || bytes[7] != std::byte{0}) {
    return std::nullopt;
  }
  Party party{.gid = {}, .place = std::to_integer<std::uint8_t>(bytes[kPlaceAt])};
  std::memcpy(party.gid.bytes.data(), &bytes[kGidAt], party.gid.bytes.size());
  return party;
}

Result<std::string> meeting_place() {
  const auto directory = meeting_directory();
  if (!directory) return directory.error();
  return names_in(*directory);
}

std::string meeting_of(const std::string& place, const Party& party) {
  const std::string name = fmt::format("{}{}.memory", place, to_string(party.gid));
  return party.place == Party::kAlone ? name : fmt::format("{}.{}", name, party.place);
}

Result<PrivateFd> listen_at(const std::string& name) {
  PrivateFd socket(new_socket());
  const auto address = address_of(name);
  if (!address) errno = ENAMETOOLONG;
  if (socket && address) {
    ::unlink(name.c_str());
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0 &&
        ::listen(socket.get(), kBacklog) == 0) {
      return socket;
    }
    const int error = errno;
    ::unlink(name.c_str());  // bound, and nobody listens there
    errno = error;
  }
  return {Code::kUnavailable, fmt::format("cannot listen at {}: {}; name another directory with "
                                          "FAIRLEAD_SOFT_DIRECTORY",
                                          name, std::strerror(errno))};
}

PrivateFd dial(const std::string& name) noexcept {
  UniqueFd socket = new_socket();
  const auto address = address_of(name);
  if (!socket || !address) return {};
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) return {};
  return is_own_user(peer_of(socket.get()).uid) ? PrivateFd(std::move(socket)) : PrivateFd();
}

PrivateFd accept_from(int listener, bool& more) noexcept {
  UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  more = socket.valid();
  if (!socket || !is_own_user(peer_of(socket.get()).uid)) return {};
  return PrivateFd(std::move(socket));
}

}  // namespace fairlead::soft::local
