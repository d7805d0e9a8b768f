#include "verbs/soft/port/udp/group_names.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/system/no_descriptor.h"
#include "base/system/own_user.h"
#include "verbs/soft/port/interfaces.h"

namespace fairlead::soft {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostSockets = 253;  // SCM_MAX_FD
constexpr timeval kPatience{10, 0};        // beside programs that leave none of it a core for seconds, too
constexpr auto kLockPatience = 30s;
constexpr int kBacklog = 64;
constexpr int kNetnsCookie = 71;  // SO_NETNS_COOKIE, which older headers lack
constexpr int kLocksFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
constexpr long kFirstAddressLock = 1 << 16;
constexpr const char* kLocksName = "locks";  // bytes of it: those of device numbers, then one for each address
constexpr const char* kServiceName = "service-";
constexpr const char* kAddressOfItsOwn = "give this process an address of its own with FAIRLEAD_SOFT_ADDRESS";
constexpr std::size_t kMostServices = 512;  // each takes two steps of a program that the system limits to 4,096

// Of processes that could have the same addresses, and of no others that live.
Result<std::uint64_t> network_namespace() {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd && is_descriptor_limit(errno)) return no_descriptor("softroce to see its network namespace by", errno);
  if (fd && ::getsockopt(fd.get(), SOL_SOCKET, kNetnsCookie, &cookie, &size) == 0) return cookie;
  struct stat info{};  // of kernels before 5.14
  return ::stat("/proc/thread-self/ns/net", &info) == 0 ? info.st_ino : 0;
}

bool try_lock(int fd, long byte) noexcept {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

struct UnixAddress {
  explicit UnixAddress(const std::string& path) noexcept : size_(path.size()) {
    at_.sun_family = AF_UNIX;
    path.copy(at_.sun_path, sizeof(at_.sun_path) - 1);
    if (!fits()) errno = ENAMETOOLONG;
  }
  [[nodiscard]] bool fits() const noexcept { return size_ < sizeof(at_.sun_path); }
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&at_); }

 private:
  std::size_t size_;
  sockaddr_un at_{};
};

Status cannot_use(const std::string& path) {
  if (is_descriptor_limit(errno)) return no_descriptor("softroce's " + path, errno);
  return {Code::kUnavailable, fmt::format("softroce cannot use {}: {}; name another directory with "
                                          "FAIRLEAD_SOFT_DIRECTORY",
                                          path, std::strerror(errno))};
}

void be_patient(int fd) noexcept {
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
}

std::optional<unsigned> place_of_link(const std::string& path) {
  std::array<char, 8> text{};
  const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
  unsigned place = 0;
  if (length <= 0 || std::from_chars(text.data(), text.data() + length, place).ec != std::errc()) return std::nullopt;
  return place;
}

// A message of one byte, with room for descriptors.
struct Message {
  Message() noexcept {
    header.msg_iov = &iov;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  char byte = 0;
  iovec iov{&byte, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostSockets * sizeof(int))> control{};
  msghdr header{};
};

}  // namespace

Result<std::string> names_in(const std::string& directory) {
  const auto space = network_namespace();
  if (!space) return space.error();
  return fmt::format("{}/{}.", directory, *space);
}

GroupNames::GroupNames(const std::string& names, const Gid& address)
    : locks_(names + kLocksName),
      lock_(kFirstAddressLock + static_cast<long>(stable_hash(address) >> 2)),
      prefix_(fmt::format("{}{}.", names, to_string(address))) {}

Result<GroupNames> GroupNames::open(const Gid& address) {
  const auto directory = meeting_directory();
  if (!directory) return directory.error();
  const auto names = names_in(*directory);
  if (!names) return names.error();
  return GroupNames(*names, address);
}

std::string GroupNames::path_of(unsigned place) const { return prefix_ + std::to_string(place); }

Result<PrivateFd> GroupNames::lock() const {
  PrivateFd file(UniqueFd(::open(locks_.c_str(), kLocksFlags, 0600)));
  if (!file) return cannot_use(locks_);
  const auto end = std::chrono::steady_clock::now() + kLockPatience;
  while (!try_lock(file.get(), lock_)) {
    if ((errno != EAGAIN && errno != EACCES) || std::chrono::steady_clock::now() > end) {
      return {Code::kUnavailable, fmt::format("cannot lock {}: {}; another process of this user seems to hang while it "
                                              "opens its device",
                                              locks_, std::strerror(errno))};
    }
    std::this_thread::sleep_for(1ms);
  }
  return file;
}

Result<UniqueFd> GroupNames::connect_to(unsigned place) const {
  const std::string path = path_of(place);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (fd) be_patient(fd.get());
  UnixAddress where(path);
  if (!fd || !where.fits() || ::connect(fd.get(), where.get(), sizeof(sockaddr_un)) != 0) {
    // A socket that nobody listens on is a dead process's.
    if (fd && where.fits() && (errno == ENOENT || errno == ECONNREFUSED)) return UniqueFd();
    if (errno == EAGAIN) {
      return {Code::kDeadlineExceeded,
              fmt::format("the process that shares the address by {} does not answer; continue or end it", path)};
    }
    return cannot_use(path);
  }
  const ucred peer = peer_of(fd.get());
  if (is_own_user(peer.uid)) return fd;
  return {Code::kPermissionDenied,
          fmt::format("softroce: process {} of uid {} holds {}, which only uid {} may; end it and remove that",
                      peer.pid, peer.uid, path, ::geteuid())};
}

Result<UniqueFd> GroupNames::listen_as(unsigned place) const {
  const std::string path = path_of(place);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  UnixAddress where(path);
  if (fd && where.fits()) {
    ::unlink(path.c_str());
    if (::bind(fd.get(), where.get(), sizeof(sockaddr_un)) == 0 && ::listen(fd.get(), kBacklog) == 0) return fd;
  }
  return cannot_use(path);
}

bool GroupNames::lives(unsigned place) const {
  const auto member = connect_to(place);
  return !member || *member;
}

// A link says it, for members' places say nothing of their age.
unsigned GroupNames::first(unsigned joining) const {
  const std::string path = prefix_ + "first";
  const unsigned place = place_of_link(path).value_or(joining);
  if (place != joining && lives(place)) return place;
  ::unlink(path.c_str());
  static_cast<void>(::symlink(std::to_string(joining).c_str(), path.c_str()) == 0);
  return joining;
}

std::string GroupNames::path_of_service(std::uint32_t number) const {
  return fmt::format("{}{}{:08x}", prefix_, kServiceName, number);
}

Result<std::vector<GroupNames::Service>> GroupNames::services() const {
  const std::string prefix = prefix_ + kServiceName;
  const std::string directory = std::filesystem::path(prefix).parent_path();
  std::vector<Service> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path();
    std::uint32_t number = 0;
    if (!path.starts_with(prefix) ||
        std::from_chars(path.data() + prefix.size(), path.data() + path.size(), number, 16).ec != std::errc()) {
      continue;
    }
    const auto place = place_of_link(path);
    const auto same_place = [place](const Service& each) { return each.place == place; };
    if (place && (std::ranges::any_of(found, same_place) || lives(*place))) {
      found.push_back({number, *place});
    } else {
      ::unlink(path.c_str());
    }
  }
  if (!error) return found;
  errno = error.value();
  return cannot_use(directory);
}

Status GroupNames::take_service(std::uint32_t number, unsigned place) const {
  const auto taken = services();
  if (!taken) return taken.error();
  const auto own = std::ranges::find(*taken, number, &Service::number);
  const std::string path = path_of_service(number);
  if (own == taken->end()) {
    if (taken->size() >= kMostServices) {
      return {Code::kUnavailable,
              fmt::format("{} ports have listeners there, the most; {}", kMostServices, kAddressOfItsOwn)};
    }
    return ::symlink(std::to_string(place).c_str(), path.c_str()) == 0 ? Status() : cannot_use(path);
  }
  if (own->place == place) return {};
  const auto holder = connect_to(own->place);
  return {Code::kAlreadyExists,
          fmt::format("process {} listens at port {} there (service {:#x}); choose another port, or {}",
                      holder && *holder ? peer_of(holder->get()).pid : 0, number & 0xffff, number, kAddressOfItsOwn)};
}

void GroupNames::leave_service(std::uint32_t number) const noexcept { ::unlink(path_of_service(number).c_str()); }

void GroupNames::leave(unsigned place) const noexcept { ::unlink(path_of(place).c_str()); }

Result<DeviceNumber> claim_device_number(unsigned most) {
  const auto directory = meeting_directory();
  if (!directory) return directory.error();
  const auto names = names_in(*directory);
  if (!names) return names.error();
  const std::string path = *names + kLocksName;
  DeviceNumber number{0, PrivateFd(UniqueFd(::open(path.c_str(), kLocksFlags, 0600)))};
  if (!number.held) return cannot_use(path);
  while (++number.value <= most) {
    if (try_lock(number.held.get(), number.value)) return number;
    if (errno != EAGAIN && errno != EACCES) return cannot_use(path);
  }
  return {Code::kResourceExhausted, fmt::format("{} devices of this user are open", most)};
}

Result<std::vector<PrivateFd>> ask_for_sockets(int connection, std::size_t count) {
  const char question = '?';
  Message answer;
  ssize_t got = ::send(connection, &question, 1, MSG_NOSIGNAL);
  if (got == 1) got = ::recvmsg(connection, &answer.header, MSG_CMSG_CLOEXEC);
  const int error = errno;
  std::vector<PrivateFd> sockets;
  for (cmsghdr* at = CMSG_FIRSTHDR(&answer.header); got == 1 && at != nullptr; at = CMSG_NXTHDR(&answer.header, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> fds((at->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(fds.data(), CMSG_DATA(at), fds.size() * sizeof(int));
    for (const int fd : fds) sockets.emplace_back(UniqueFd(fd));
  }
  if (sockets.size() == count) return sockets;
  const pid_t process = peer_of(connection).pid;
  if (got == 1) {
    return {Code::kResourceExhausted,
            fmt::format("softroce got {} of the {} sockets that process {} shares; raise the limit of open files "
                        "(ulimit -n)",
                        sockets.size(), count, process)};
  }
  if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK)) {
    return {Code::kDeadlineExceeded,
            fmt::format("process {}, which shares the address, does not answer; continue or end it", process)};
  }
  return {Code::kUnavailable, fmt::format("process {}, which shared the address, ended", process)};
}

void answer_with_sockets(int connection, std::span<const int> sockets) noexcept {
  be_patient(connection);
  char question = 0;
  if (!is_own_user(peer_of(connection).uid) || ::recv(connection, &question, 1, 0) != 1) return;
  Message answer;
  cmsghdr* control = CMSG_FIRSTHDR(&answer.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sockets.size_bytes());
  std::memcpy(CMSG_DATA(control), sockets.data(), sockets.size_bytes());
  answer.header.msg_controllen = CMSG_SPACE(sockets.size_bytes());
  ::sendmsg(connection, &answer.header, MSG_NOSIGNAL);
}

}  // namespace fairlead::soft
