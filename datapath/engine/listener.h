// The socket that peers connect to. Owner: the engine. Threads: the driver, after open().
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

#include "base/private_fd.h"
#include "base/unique_fd.h"
#include "datapath/lane/lane.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

class Listener {
 public:
  /// Listens on "HOST:PORT", and shows in `epoll` with a null data.ptr. Errors name the address.
  Status open(const std::string& listen, int epoll);
  void close() noexcept { socket_.reset(); }
  /// "HOST:PORT" with the port that it became; empty: it does not listen.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

  /// Gives `take` those who wait, a few at a time: who is left comes with the next round, so that those who are
  /// connected have their turns between. Out of descriptors it looks away for a while; `sessions` is for the log line.
  void accept(std::size_t sessions, const std::function<void(UniqueFd)>& take);
  /// Ends the time of looking away.
  void advance(Clock::time_point now) {
    if (now >= again_at_) look_again();
  }

 private:
  Status watch();
  void look_again();

  PrivateFd socket_;
  std::string address_;
  int epoll_ = -1;
  Clock::time_point again_at_ = Clock::time_point::max();
};

}  // namespace fairlead::datapath
