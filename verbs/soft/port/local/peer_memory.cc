#include "verbs/soft/port/local/peer_memory.h"

#include <array>

#include "verbs/soft/wire/payload_source.h"

namespace fairlead::soft::local {

bool PeerMemory::meet(pid_t process, const Witness& witness) noexcept {
  process_ = process;
  witness_ = witness;
  std::uint64_t word = 0;
  const iovec here{&word, sizeof word};
  const iovec there{reinterpret_cast<void*>(witness.address), sizeof word};  // NOLINT(performance-no-int-to-ptr)
  return process > 0 && ::process_vm_readv(process, &here, 1, &there, 1, 0) == sizeof word && word == witness.word;
}

bool PeerMemory::copy(const Reference& from, std::span<const iovec> to, std::byte& last) const noexcept {
  if (to.empty() || to.size() > PayloadSource::kMostPlaces) return false;
  std::array<iovec, PayloadSource::kMostPlaces + 2> here;
  std::size_t count = 0;
  for (const iovec& piece : to) here[count++] = piece;
  here[count - 1].iov_len -= 1;
  here[count++] = {&last, 1};
  std::uint64_t word = 0;
  here[count++] = {&word, sizeof word};
  const std::array there = {
      iovec{reinterpret_cast<void*>(from.address), from.bytes},        // NOLINT(performance-no-int-to-ptr)
      iovec{reinterpret_cast<void*>(witness_.address), sizeof word}};  // NOLINT
  const ssize_t got = ::process_vm_readv(process_, here.data(), count, there.data(), there.size(), 0);
  return got == static_cast<ssize_t>(from.bytes + sizeof word) && word == witness_.word;
}

}  // namespace fairlead::soft::local
