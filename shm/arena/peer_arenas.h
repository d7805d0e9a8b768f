// Arenas of the peer's that are mapped here, to read.
//
// Nothing that a peer gives is trusted: it must be sealed against every change of its size, so that a mapping of it
// stays whole, and against everybody's writing but its owner's, so that it is what it was agreed to be. What cannot be
// mapped, or would take more addresses than is for peers, is copied by other ways. A child of fork() does not have the
// mappings.
// Threads: the driving thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/unique_fd.h"
#include "shm/arena/packet.h"
#include "shm/ring/segment.h"

namespace fairlead::shm {

class PeerArenas {
 public:
  PeerArenas() noexcept = default;
  PeerArenas(const PeerArenas&) = delete;
  PeerArenas& operator=(const PeerArenas&) = delete;
  ~PeerArenas() { stop(); }

  /// `allowed`: this end maps arenas. Both sides stay until stop(), which unmaps all.
  void start(const Side* theirs, Side* ours, bool allowed) noexcept;
  void stop() noexcept;

  /// The peer has sent packets that were not taken yet.
  [[nodiscard]] bool is_behind() const noexcept {
    return theirs_ != nullptr && theirs_->arenas.told.load(std::memory_order_acquire) != taken_;
  }
  /// What came over the socket. `lost`: its descriptor could not be had here. Not empty: why the peer is not to be
  /// trusted; static.
  std::string_view take(std::span<const std::byte> packet, const UniqueFd& descriptor, bool lost) noexcept;
  /// Where the peer's bytes from `address` on lie here; null: not all of them do.
  [[nodiscard]] const std::byte* find(std::uint64_t address, std::uint64_t bytes) noexcept;

 private:
  struct Mapped {
    const std::byte* here = nullptr;  // null: none
    std::uint64_t address = 0;        // in the peer
    std::uint64_t bytes = 0;

    [[nodiscard]] bool holds(std::uint64_t from, std::uint64_t length) const noexcept {
      return here != nullptr && from >= address && from - address <= bytes && length <= bytes - (from - address);
    }
  };
  std::string_view take_given(const ArenaPacket& packet, const UniqueFd& descriptor) noexcept;
  void warn_of_limit() noexcept;
  void unmap(std::size_t index) noexcept;
  void say() noexcept;

  const Side* theirs_ = nullptr;
  Side* ours_ = nullptr;
  bool allowed_ = false;
  bool warned_ = false;
  int owner_ = 0;             // the process that has them
  std::uint64_t taken_ = 0;   // packets
  std::uint64_t known_ = 0;   // a bit for each that the peer has given, mapped or not
  std::uint64_t mapped_ = 0;  // and for each that is mapped
  std::array<Mapped, kMostArenas> all_{};
  std::size_t last_ = 0;  // which was found last
};

}  // namespace fairlead::shm
