#include "verbs/soft/port/wrap/loopback_port.h"

#include "verbs/soft/wire/icrc.h"

namespace fairlead::soft {

std::pair<std::unique_ptr<LoopbackPort>, std::unique_ptr<LoopbackPort>> LoopbackPort::make_pair() {
  const auto to_first = std::make_shared<Queue>();
  const auto to_second = std::make_shared<Queue>();
  return {std::unique_ptr<LoopbackPort>(new LoopbackPort(Gid::from_ipv4(0x0a000001), to_first, to_second)),
          std::unique_ptr<LoopbackPort>(new LoopbackPort(Gid::from_ipv4(0x0a000002), to_second, to_first))};
}

Route LoopbackPort::make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                               std::uint8_t hop_limit) {
  return {address_, destination, static_cast<std::uint16_t>(0xc000 | (flow & 0x3fff)), traffic_class, hop_limit, -1};
}

std::size_t LoopbackPort::rx_burst(std::span<RxPacket> packets, Nanos) noexcept {
  handed_out_.clear();
  std::size_t count = 0;
  for (; count < packets.size() && !in_->empty(); ++count) {
    handed_out_.push_back(std::move(in_->front()));
    in_->pop_front();
    const Frame& frame = handed_out_.back();
    packets[count] = {frame.bytes, frame.source, frame.source_port, 0};
  }
  return count;
}

void LoopbackPort::tx_burst(TxBatch& batch) noexcept {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const TxPacket& packet = batch.packet(i);
    const iovec* iovs = batch.iovs(packet);
    store_icrc(packet.icrc, icrc_of(packet, iovs, next_id_ == 0 ? std::uint16_t{0} : next_id_++).value_or(0));
    Frame frame{{}, address_, packet.route->source_port};
    frame.bytes.resize(packet.size);
    if (gather(packet, iovs, frame.bytes.data())) out_->push_back(std::move(frame));
  }
  batch.clear();
}

}  // namespace fairlead::soft
