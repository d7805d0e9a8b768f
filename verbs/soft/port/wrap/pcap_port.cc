#include "verbs/soft/port/wrap/pcap_port.h"

#include <ctime>

#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

std::uint64_t wall_clock() noexcept {
  timespec time;
  ::clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// Begins a record with the IP and UDP headers of the frame.
void begin_frame(PcapRecords& records, std::uint64_t time, const UdpFrame& frame, std::uint8_t traffic_class,
                 std::uint8_t hop_limit) {
  IpHeader ip{frame.source, frame.destination};
  ip.traffic_class = traffic_class;
  ip.hop_limit = hop_limit;
  ip.ipv4_id = frame.ipv4_id;
  ip.ipv4_flags = frame.ipv4_flags;
  ip.payload_bytes = kUdpHeaderBytes + frame.payload_bytes;
  std::array<std::byte, kIpv6HeaderBytes + kUdpHeaderBytes> header{};
  if (frame.version == RoceVersion::kV1) {  // has no IP header; its GRH stands in that one's place
    ip.payload_bytes = frame.payload_bytes;
    encode_grh(ip, header.data());
    records.begin(time, kGrhBytes + ip.payload_bytes);
    return records.append(std::span(header).first(kGrhBytes));
  }
  ip.encode(header.data());
  UdpHeader{frame.source_port, frame.destination_port, static_cast<std::uint16_t>(ip.payload_bytes)}.encode(
      &header[ip.bytes()]);
  records.begin(time, ip.bytes() + ip.payload_bytes);
  records.append(std::span(header).first(ip.bytes() + kUdpHeaderBytes));
}

// The id with which the frame's ICRC is right, if there is one.
std::uint16_t id_of(const UdpFrame& frame, std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < Bth::kBytes + kIcrcBytes || !frame.source.is_ipv4()) return frame.ipv4_id;
  const auto covered = bytes.first(bytes.size() - kIcrcBytes);
  const std::uint32_t difference = icrc(frame, covered) ^ load_icrc(covered.data() + covered.size());
  return static_cast<std::uint16_t>(frame.ipv4_id ^ explain_by_ipv4_id(difference, bytes.size()).value_or(0));
}

}  // namespace

std::size_t PcapPort::rx_burst(std::span<RxPacket> packets, Nanos now) noexcept {
  const std::size_t count = inner_->rx_burst(packets, now);
  if (count == 0) return 0;
  const std::uint64_t time = wall_clock();
  records_.clear();
  for (const RxPacket& packet : packets.first(count)) {
    UdpFrame frame = headers_of(packet, *this);
    if (!packet.ipv4_id_known) frame.ipv4_id = id_of(frame, packet.bytes);
    begin_frame(records_, time, frame, packet.traffic_class, kDefaultHopLimit);
    records_.append(packet.bytes);
  }
  file_.write(records_);
  return count;
}

void PcapPort::tx_burst(TxBatch& batch) noexcept {
  const std::uint64_t time = wall_clock();
  records_.clear();
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const TxPacket& packet = batch.packet(i);
    const Route& route = *packet.route;
    const iovec* iovs = batch.iovs(packet);
    UdpFrame frame{route.source, route.destination, route.source_port, kRoceUdpPort, 0, packet.size};
    frame.version = route.version;
    begin_frame(records_, time, frame, route.traffic_class, route.hop_limit != 0 ? route.hop_limit : kDefaultHopLimit);
    if (!gather(packet, iovs, records_.extend(packet.size).data())) continue;  // it will not leave; zeroes stand for it
    store_icrc(records_.last(kIcrcBytes).data(), icrc_of(packet, iovs, 0).value_or(0));
  }
  file_.write(records_);
  inner_->tx_burst(batch);
}

}  // namespace fairlead::soft
