#include "shm/peer_memory.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/guarded.h"
#include "base/stream_copy.h"
#include "base/system/unix_packets.h"

namespace fairlead::shm {
namespace {

constexpr std::size_t kLeastPage = 4096;
constexpr int kPacketsPerLook = 4 * kMostArenas;  // more than anybody means to send before it is answered

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
  arenas_.stop();
}

void PeerMemory::listen() noexcept {
  std::array<std::byte, 64> packet;
  for (int i = 0; i < kPacketsPerLook && reason_.empty(); ++i) {
    UniqueFd descriptor;
    bool lost = false;
    const auto got = receive_packet(socket_, packet, descriptor, &lost);
    if (!got || *got == 0) {
      hung_up_ = got || (errno != EAGAIN && errno != EWOULDBLOCK) || !alive();
      return;
    }
    if (*got > 1) reason_ = arenas_.take(std::span(packet).first(*got), descriptor, lost);  // one byte woke us
  }
}

bool PeerMemory::can_read(const Greeting& greeting) const noexcept {
  Token there{};
  // Without a descriptor nobody says when the id is another's.
  return process_.id > 0 && process_.life &&
         copy_by_id(there.data(), greeting.own_address, there.size()) == Copied::kAll && equal(there, greeting.own);
}

PeerMemory::Copied PeerMemory::copy(std::byte* to, std::uint64_t from, std::size_t bytes) noexcept {
  if (!reason_.empty()) return Copied::kPeerGone;
  if (const std::byte* const here = arenas_.find(from, bytes); here != nullptr) return copy_mapped(to, here, bytes);
  if (!pulls_) return Copied::kNotOffered;
  copied_by_id_ = true;
  copies_.by_kernel.add(bytes);
  const Copied copied = copy_by_id(to, from, bytes);
  denied_ = copied == Copied::kPeerGone && errno == EPERM;
  return copied;
}

PeerMemory::Copied PeerMemory::copy_mapped(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (to != next_) after_long_ = std::exchange(run_, 0) > kStreamedFrom;
  run_ += bytes;
  next_ = to + bytes;
  const bool streamed = after_long_ || run_ > kStreamedFrom;
  (streamed ? copies_.streamed : copies_.mapped).add(bytes);
  // Either range may be gone: what is ours the application may have unmapped, what is the peer's has no page any more.
  const bool copied = attempt(nullptr, std::numeric_limits<std::size_t>::max(), [=] {
    streamed ? stream_copy(to, from, bytes) : static_cast<void>(std::memcpy(to, from, bytes));
  });
  if (copied) return Copied::kAll;
  return writable(to, bytes) ? Copied::kSourceGone : Copied::kTargetGone;
}

PeerMemory::Copied PeerMemory::copy_by_id(std::byte* to, std::uint64_t from, std::size_t bytes) const noexcept {
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

bool PeerMemory::stands() noexcept {
  copied_by_id_ = copied_by_id_ && !alive();
  return !copied_by_id_;
}

bool PeerMemory::alive() const noexcept {
  if (socket_ < 0) return false;
  std::array<pollfd, 2> looked_at = {pollfd{socket_, POLLRDHUP, 0}, pollfd{process_.life.get(), POLLIN, 0}};
  int count = -1;
  do {
    count = ::poll(looked_at.data(), looked_at.size(), 0);
  } while (count < 0 && errno == EINTR);
  return count == 0;
}

}  // namespace fairlead::shm
