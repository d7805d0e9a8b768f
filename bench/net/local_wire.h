// Both ends of a wire for `bench --local`: what the short packet ports memif, dpdk:memif, dpdk:vhost, dpdk:af_packet
// and dpdk:af_xdp stand for.
//
// memif and vhost need nothing; the other two get a veth pair, which takes CAP_NET_ADMIN and CAP_NET_RAW (in a
// namespace of one's own, `unshare -Urn`, everybody has them) and `ip`. What was made for the wire goes with this
// object.
#pragma once

#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::bench {

class LocalWire {
 public:
  /// `packet_io` itself for both ends, unless it is one of the above, with or without options behind it.
  static Result<LocalWire> make(std::string_view packet_io);
  LocalWire(LocalWire&& other) noexcept;
  LocalWire& operator=(LocalWire&&) = delete;
  ~LocalWire();

  /// The end that must be opened first.
  [[nodiscard]] const std::string& target() const noexcept { return target_; }
  [[nodiscard]] const std::string& initiator() const noexcept { return initiator_; }

 private:
  LocalWire() = default;

  std::string target_, initiator_;
  std::string folder_;     // of a socket; empty: none
  std::string interface_;  // one end of a veth pair; empty: none
};

}  // namespace fairlead::bench
