// Whether a socket takes coalesced datagrams (UDP_GRO): it does for bulk, and does not while messages go to and fro.
//
// Coalescing doubles the bandwidth of large messages. But with it the system looks at each datagram's segment size,
// which moves a line between the two cores, a sixteenth of what a small message takes. Switched on at the first sign of
// bulk; then the system splits what is coalesced already. Switched off after a long conversation and only while
// the socket is empty: of what lies in it, nobody would learn the segment size.
// Threads: those of the port.
#pragma once

#include <cstddef>

namespace fairlead::soft {

class Coalescing {
 public:
  /// Over a socket that has it switched on.
  explicit Coalescing(int socket) noexcept : socket_(socket) {}

  /// Nothing was there to receive.
  void on_silence() noexcept { run_ = 0; }
  /// A datagram was received; `segments` says whether the system gave a segment size.
  void on_datagram(std::size_t bytes, bool segments) noexcept {
    const bool bulk = segments || bytes > kSmallBytes || ++run_ > kSmallRun;
    if (bulk == on_) {
      quiet_ = 0;
    } else if (bulk) {
      switch_on();
    } else if (++quiet_ == kConversation) {
      switch_off();
    }
  }
  [[nodiscard]] bool on() const noexcept { return on_; }

 private:
  static constexpr std::size_t kSmallBytes = 1024;
  static constexpr unsigned kSmallRun = 3;         // datagrams in a row
  static constexpr unsigned kConversation = 1000;  // datagrams without bulk between them

  void switch_on() noexcept;
  void switch_off() noexcept;

  int socket_;
  bool on_ = true;
  unsigned run_ = 0;
  unsigned quiet_ = 0;
};

}  // namespace fairlead::soft
