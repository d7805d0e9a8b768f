// A decorator that writes what a device sends and receives to a capture file, with the IP and UDP headers rebuilt.
//
// It stands outermost, so the file shows the device's view: what a fault decorator drops on the way out is in it, what
// it drops on the way in is not. What a socket does not show is filled in: the hop limit of received frames is 64, UDP
// checksums are 0 (none), and the IPv4 id of a sent frame is 0. The id of a received frame is the one that explains its
// ICRC, so that every ICRC in the file is right, but for frames that were damaged on the way.
// Threads: as PacketPort.
#pragma once

#include <memory>

#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/port/pcap_file.h"

namespace fairlead::soft {

class PcapPort final : public PacketPort {
 public:
  PcapPort(std::unique_ptr<PacketPort> inner, PcapFile& file) : inner_(std::move(inner)), file_(file) {}

  [[nodiscard]] const Gid& address() const noexcept override { return inner_->address(); }
  [[nodiscard]] std::uint32_t max_mtu() const noexcept override { return inner_->max_mtu(); }
  [[nodiscard]] std::size_t receive_window() const noexcept override { return inner_->receive_window(); }
  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                                 std::uint8_t hop_limit) override {
    return inner_->make_route(destination, flow, traffic_class, hop_limit);
  }
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override;
  void tx_burst(TxBatch& batch) noexcept override;
  [[nodiscard]] std::uint64_t refused() const noexcept override { return inner_->refused(); }
  [[nodiscard]] int wait_fd() const noexcept override { return inner_->wait_fd(); }
  [[nodiscard]] Nanos next_event() const noexcept override { return inner_->next_event(); }

 private:
  std::unique_ptr<PacketPort> inner_;
  PcapFile& file_;
  PcapRecords records_;
};

}  // namespace fairlead::soft
