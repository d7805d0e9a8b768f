// Which arenas of ours one peer has been given, so that it copies from them without a system call.
//
// One is given when the peer is first to copy from it, and taken back when it is gone: before anything else at those
// addresses is named to the peer. Threads: the driving thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "shm/arena/own_arenas.h"
#include "shm/arena/packet.h"
#include "shm/ring/segment.h"

namespace fairlead::shm {

class GivenArenas {
 public:
  explicit GivenArenas(const OwnArenas& own) noexcept : own_(own) {}

  /// `socket` and both sides stay until stop(). `allowed`: the peer takes arenas, and this end gives some.
  void start(const Side* theirs, Side* ours, int socket, bool allowed) noexcept;
  void stop() noexcept { allowed_ = false; }

  /// Takes back what is gone. False: the peer cannot be told now, and no address may be named to it.
  [[nodiscard]] bool settle() noexcept { return is_settled() || take_back(); }
  [[nodiscard]] bool is_settled() const noexcept { return own_.removed() == settled_; }
  /// Gives the arena if need be. Whether the peer has it mapped: it says so only when it has looked.
  [[nodiscard]] bool reaches(ArenaNumber arena) noexcept;
  /// The same of the arena that holds these bytes, if there is one.
  [[nodiscard]] bool reaches(std::span<const std::byte> bytes) noexcept {
    return allowed_ && reaches(own_.holding(bytes));
  }

 private:
  struct Given {
    ArenaNumber arena = 0;  // 0: free, once the peer has taken so many packets:
    std::uint64_t free_from = 0;
  };
  [[nodiscard]] bool take_back() noexcept;
  bool give(ArenaNumber arena, std::size_t index) noexcept;
  bool send(const ArenaPacket& packet, int descriptor) noexcept;

  const OwnArenas& own_;
  const Side* theirs_ = nullptr;
  Side* ours_ = nullptr;
  int socket_ = -1;
  bool allowed_ = false;
  std::uint64_t settled_ = 0;  // OwnArenas::removed()
  std::array<Given, kMostArenas> given_{};
  std::size_t last_ = 0;  // which was asked for last
};

}  // namespace fairlead::shm
