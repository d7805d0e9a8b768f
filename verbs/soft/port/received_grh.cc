#include "verbs/soft/port/received_grh.h"

namespace fairlead::soft {

std::array<std::byte, kGrhBytes> make_grh(const RxPacket& raw, const Gid& destination) noexcept {
  std::array<std::byte, kGrhBytes> bytes{};
  IpHeader ip{raw.source, destination};
  if (raw.version == RoceVersion::kV1) {
    ip.traffic_class = raw.traffic_class;
    ip.hop_limit = raw.hop_limit;
    ip.flow_label = raw.flow_label;
    ip.payload_bytes = raw.bytes.size();
    encode_grh(ip, bytes.data());
    return bytes;
  }
  if (!destination.is_ipv4()) ip.traffic_class = raw.traffic_class;
  ip.ipv4_id = raw.ipv4_id_guess;
  ip.payload_bytes = kUdpHeaderBytes + raw.bytes.size();
  ip.encode(bytes.data() + bytes.size() - ip.bytes());
  return bytes;
}

}  // namespace fairlead::soft
