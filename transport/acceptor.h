// A socket that listens, and those who came to it and have not said who they are: their owner sleeps on one descriptor
// over all of them.
//
// Where somebody came and there are no descriptors left nobody is accepted for 100 ms; the socket would stay readable
// meanwhile, and who sleeps on wait_fd() would spin. Nor for another 100 ms where there is no room to watch it again.
// Threads: one at a time. fork(): as PrivateFd.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/private_fd.h"

namespace fairlead::datapath {

class Acceptor {
 public:
  Acceptor() noexcept = default;
  /// False, and errno says why: they cannot be watched.
  [[nodiscard]] bool open(PrivateFd listening) noexcept;
  /// The same with another that listens, for those who come from now on.
  [[nodiscard]] bool replace(PrivateFd listening) noexcept;

  [[nodiscard]] int listening() const noexcept { return listening_.get(); }
  /// Readable while somebody has come, or said something; for poll and epoll.
  [[nodiscard]] int wait_fd() const noexcept { return watch_.get(); }
  /// Who came next, not watched yet. Nothing: nobody, or not now. `cannot(errno)`: there are no descriptors for who
  /// came, which is so until paused_until().
  template <typename Cannot>
  [[nodiscard]] std::optional<PrivateFd> accept(Nanos now, Cannot cannot) noexcept {
    if (!may_accept(now)) return std::nullopt;
    PrivateFd guest = accept_one();
    if (guest) return guest;
    if (const int error = pause_if_full(now); error != 0) cannot(error);
    return std::nullopt;  // other errors belong to a connection that is gone already (accept(2))
  }
  [[nodiscard]] std::optional<Nanos> paused_until() const noexcept { return paused_until_; }

  /// False, and errno says why: wait_fd() will not tell of it.
  bool watch(int fd) noexcept;
  void unwatch(int fd) noexcept;

 private:
  [[nodiscard]] bool may_accept(Nanos now) noexcept;
  [[nodiscard]] PrivateFd accept_one() noexcept;
  /// After accept_one() gave none: the error, or 0: nobody is kept waiting.
  [[nodiscard]] int pause_if_full(Nanos now) noexcept;

  PrivateFd listening_;
  PrivateFd watch_;  // an epoll
  std::optional<Nanos> paused_until_;
};

}  // namespace fairlead::datapath
