#include "verbs/soft/port/pcap_port.h"

#include <ctime>

#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/icrc.h"

namespace fairlead::soft {
namespace {

constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kUdpBytes = 8;

std::uint64_t wall_clock() noexcept {
  timespec time;
  ::clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

// RFC 791: the ones' complement sum of the header's 16-bit words.
std::uint16_t checksum(const std::byte* header) noexcept {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Bytes; i += 4) {
    const std::uint32_t word = load32(header + i);
    sum += (word >> 16) + (word & 0xffff);
  }
  while (sum > 0xffff) sum = (sum >> 16) + (sum & 0xffff);
  return static_cast<std::uint16_t>(~sum);
}

constexpr std::uint32_t kUdp = 17;

std::size_t put_ipv4(std::byte* at, const UdpFrame& frame, std::uint8_t traffic_class,
                     std::uint8_t hop_limit) noexcept {
  constexpr std::uint32_t kDontFragment = 0x4000;
  store32(at, 0x45U << 24 | std::uint32_t{traffic_class} << 16 |
                  static_cast<std::uint32_t>(frame.payload_bytes + kIpv4Bytes + kUdpBytes));
  store32(at + 4, std::uint32_t{frame.ipv4_id} << 16 | kDontFragment);
  store32(at + 8, std::uint32_t{hop_limit} << 24 | kUdp << 16);
  store32(at + 12, frame.source.ipv4());
  store32(at + 16, frame.destination.ipv4());
  store32(at + 8, load32(at + 8) | checksum(at));
  return kIpv4Bytes;
}

std::size_t put_ipv6(std::byte* at, const UdpFrame& frame, std::uint8_t traffic_class,
                     std::uint8_t hop_limit) noexcept {
  store32(at, 6U << 28 | std::uint32_t{traffic_class} << 20);
  store32(at + 4, static_cast<std::uint32_t>(frame.payload_bytes + kUdpBytes) << 16 | kUdp << 8 | hop_limit);
  std::memcpy(at + 8, frame.source.bytes.data(), frame.source.bytes.size());
  std::memcpy(at + 24, frame.destination.bytes.data(), frame.destination.bytes.size());
  return kIpv6Bytes;
}

// Begins a record with the IP and UDP headers of the frame.
void begin_frame(PcapRecords& records, std::uint64_t time, const UdpFrame& frame, std::uint8_t traffic_class,
                 std::uint8_t hop_limit) {
  std::array<std::byte, kIpv6Bytes + kUdpBytes> header{};
  const auto put_ip = frame.source.is_ipv4() ? &put_ipv4 : &put_ipv6;
  const std::size_t ip = put_ip(header.data(), frame, traffic_class, hop_limit);
  store32(&header[ip], std::uint32_t{frame.source_port} << 16 | frame.destination_port);
  store32(&header[ip + 4], static_cast<std::uint32_t>(frame.payload_bytes + kUdpBytes) << 16);
  records.begin(time, ip + kUdpBytes + frame.payload_bytes);
  records.append(std::span(header).first(ip + kUdpBytes));
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
    UdpFrame frame{packet.source,        address(),          packet.source_port, kRoceUdpPort,
                   packet.ipv4_id_guess, packet.bytes.size()};
    frame.ipv4_id = id_of(frame, packet.bytes);
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
    begin_frame(records_, time, {route.source, route.destination, route.source_port, kRoceUdpPort, 0, packet.size},
                route.traffic_class, route.hop_limit != 0 ? route.hop_limit : kDefaultHopLimit);
    if (!gather(packet, iovs, records_.extend(packet.size).data())) continue;  // it will not leave; zeroes stand for it
    store_icrc(records_.last(kIcrcBytes).data(), icrc_of(packet, iovs, 0));
  }
  file_.write(records_);
  inner_->tx_burst(batch);
}

}  // namespace fairlead::soft
