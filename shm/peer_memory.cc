#include "shm/peer_memory.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/guarded.h"

namespace fairlead::shm {
namespace {

constexpr std::size_t kLeastPage = 4096;

/// A write that changes nothing, which compilers take for one: of `fetch_or(0)` clang makes nothing at all.
void touch_to_write(std::byte* at) noexcept {
  auto* const byte = reinterpret_cast<volatile unsigned char*>(at);
  unsigned char same = *byte;
  __atomic_compare_exchange_n(byte, &same, same, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/// Whether all pages of the range can be written now. What is in them stays, whoever writes there meanwhile.
bool writable(std::byte* start, std::size_t length) noexcept {
  return attempt(start, length, [start, length] {
    for (std::size_t at = 0; at < length; at += kLeastPage) touch_to_write(start + at);
    touch_to_write(start + length - 1);
  });
}

bool kernel_reads(const std::byte& own) noexcept {
  std::byte byte{};
  const iovec here{&byte, 1};
  const iovec there{const_cast<std::byte*>(&own), 1};
  return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

}  // namespace

bool is_by_cpu_only(std::span<const std::byte> own) noexcept {
  for (const std::byte* at : {&own.front(), &own.back()}) {
    if (!kernel_reads(*at) && readable(at, 1)) return true;
  }
  return false;
}

void PeerMemory::meet(PeerProcess process, int socket) noexcept {
  process_ = std::move(process);
  socket_ = socket;
}

void PeerMemory::leave() noexcept {
  process_.life.reset();
  socket_ = -1;
}

bool PeerMemory::can_read(const Greeting& greeting) const noexcept {
  Token there{};
  return process_.id > 0 && copy(there.data(), greeting.own_address, there.size()) == Copied::kAll &&
         equal(there, greeting.own);
}

PeerMemory::Copied PeerMemory::copy(std::byte* to, std::uint64_t from, std::size_t bytes) const noexcept {
  while (bytes > 0) {
    const iovec here{to, bytes};
    const iovec there{reinterpret_cast<void*>(from), bytes};
    const ssize_t got = ::process_vm_readv(process_.id, &here, 1, &there, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != EFAULT) return Copied::kPeerGone;
    if (got <= 0) return writable(to, bytes) ? Copied::kSourceGone : Copied::kTargetGone;
    to += got;
    from += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
  return Copied::kAll;
}

bool PeerMemory::alive() const noexcept {
  std::array<pollfd, 2> looked_at = {pollfd{socket_, POLLRDHUP, 0}, pollfd{process_.life.get(), POLLIN, 0}};
  return socket_ >= 0 && ::poll(looked_at.data(), looked_at.size(), 0) == 0;
}

}  // namespace fairlead::shm
