// A decorator that writes what a device sends and receives to a capture file, with the IP and UDP headers rebuilt.
//
// It stands outermost, so the file shows the device's view: what a fault decorator drops on the way out is in it, what
// it drops on the way in is not. What a socket does not show is filled in: the hop limit of received frames is 64, UDP
// checksums are 0 (none), and the IPv4 id of a sent frame is 0. The id of a received frame is the one that explains its
// ICRC, so that every ICRC in the file is right, but for frames that were damaged on the way.
// Threads: as PacketPort.
#pragma once

#include <memory>

#include "verbs/soft/port/port_decorator.h"
#include "verbs/soft/port/wrap/pcap_file.h"

namespace fairlead::soft {

class PcapPort final : public PortDecorator {
 public:
  PcapPort(std::unique_ptr<PacketPort> inner, PcapFile& file) : PortDecorator(std::move(inner)), file_(file) {
    inner_->report_traffic_class();
  }

  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override;
  void tx_burst(TxBatch& batch) noexcept override;

 private:
  PcapFile& file_;
  PcapRecords records_;
};

}  // namespace fairlead::soft
