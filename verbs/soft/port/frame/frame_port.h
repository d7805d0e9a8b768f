// A port that owns its wire: RoCE over a FrameDevice, with Ethernet, IP and UDP headers of its own making; a route of
// version 1 has a GRH in place of the latter two, and stays within the link.
//
// It has one address, IPv4 or IPv6, that is nobody else's on the link: not one of the host's. It answers and asks for
// Ethernet addresses (ARP, neighbour discovery). Frames for a station that is being asked for wait a little, up to a
// limit; frames for its own address come back inside. The whole header is seen, so every ICRC is verified in full.
// It may be one lane of several (lanes.h), over one queue of the device.
// Threads: as PacketPort.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "verbs/soft/port/frame/frame_device.h"
#include "verbs/soft/port/frame/lanes.h"
#include "verbs/soft/port/frame/neighbours.h"
#include "verbs/soft/port/frame/roce_frame.h"
#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/port/urgent_way.h"
#include "verbs/soft/wire/ip.h"
#include "verbs/soft/wire/resolution.h"

namespace fairlead::soft {

struct FramePortConfig {
  Gid address;            // null: chosen by automatic_address()
  unsigned prefix = 0;    // bits; peers beyond it are reached through the gateway, if there is one
  Gid gateway;            // null: every peer is on the link
  std::string name = {};  // for messages
};

class FramePort final : public PacketPort, private UrgentWay {
 public:
  FramePort(std::unique_ptr<FrameDevice> device, const FramePortConfig& config, Nanos now,
            std::optional<Lane> lane = std::nullopt);
  ~FramePort() override;

  [[nodiscard]] const Gid& address() const noexcept override { return config_.address; }
  [[nodiscard]] Gid link_local() const noexcept override { return names_.link_local; }
  [[nodiscard]] std::uint32_t max_mtu() const noexcept override;
  [[nodiscard]] std::uint32_t max_v1_mtu() const noexcept override;
  [[nodiscard]] ReceiveWindow receive_window() const noexcept override { return {info_.receive_bytes}; }
  [[nodiscard]] std::size_t peer_window() const noexcept override;
  [[nodiscard]] std::uint32_t least_charge() const noexcept override;
  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t flow, std::uint8_t traffic_class,
                                 std::uint8_t hop_limit) override;
  [[nodiscard]] std::optional<Route> make_v1_route(const Gid& source, const Gid& destination, std::uint32_t flow_label,
                                                   std::uint8_t traffic_class, std::uint8_t hop_limit) override;
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override;
  void tx_burst(TxBatch& batch) noexcept override;
  void count_in(Counters& counters) noexcept override { counters_ = &counters; }
  [[nodiscard]] std::uint64_t refused() const noexcept override { return refused_; }
  [[nodiscard]] LinkState link() noexcept override;
  [[nodiscard]] bool lends() const noexcept override { return info_.attaches; }
  [[nodiscard]] Loans loans() noexcept override { return device_->loans(); }
  void end_loans() noexcept override { device_->end_loans(); }
  void map(const void* start, std::size_t bytes) noexcept override { device_->map(start, bytes); }
  void unmap(const void* start, std::size_t bytes) noexcept override { device_->unmap(start, bytes); }
  [[nodiscard]] int wait_fd() const noexcept override {
    return lane_ ? -1 : device_->wait_fd();  // other lanes wake nobody
  }
  bool on_wait(bool begins) noexcept override { return !begins || device_->prepare_to_wait(); }
  [[nodiscard]] Nanos next_event() const noexcept override;

 private:
  static constexpr std::size_t kBurst = 32;
  using Bytes = std::vector<std::byte>;
  struct Waiting {
    int neighbour;
    Gid station;
    Bytes frame;
  };

  [[nodiscard]] bool open() const noexcept override { return device_->sets_apart(); }
  std::size_t rx_urgent(std::span<RxPacket> packets, Nanos now) noexcept override;
  [[nodiscard]] std::size_t take_in(std::size_t got, std::span<RxPacket> packets) noexcept;
  [[nodiscard]] const Gid& next_hop(const Gid& destination) const noexcept;
  [[nodiscard]] std::size_t fetch_in_turn(std::span<std::span<const std::byte>> frames) noexcept;
  [[nodiscard]] bool hand_over(const RxPacket& packet, std::span<const std::byte> frame) noexcept;
  void take_control(std::span<const std::byte> shown) noexcept;
  [[nodiscard]] std::uint32_t build(TxBatch& batch, const TxPacket& packet, std::byte* room) noexcept;
  [[nodiscard]] std::uint32_t build_attached(TxBatch& batch, const TxPacket& packet, std::span<std::byte* const> rooms,
                                             std::size_t room) noexcept;
  void send(TxBatch& batch, std::span<const std::uint8_t> which, bool urgent) noexcept;
  void keep_order(Nanos now) noexcept;
  void watch_link(Nanos now) noexcept;
  void ask_neighbours() noexcept;
  void send_waiting() noexcept;
  bool send_frame(std::span<const std::byte> frame) noexcept;
  void part() noexcept;

  const std::unique_ptr<FrameDevice> device_;
  const FrameDeviceInfo info_;
  FramePortConfig config_;
  StationNames names_;
  std::optional<Lane> lane_;
  bool from_lanes_ = false;  // what was fetched last
  Counters* counters_ = nullptr;
  Neighbours neighbours_;
  Gid sent_to_;                    // the station that the last frame was for
  bool sent_unasked_ = false;      // that tells its Ethernet address itself, and answers no questions
  bool parting_answered_ = false;  // by that station
  std::deque<Waiting> waiting_;    // for their station's address; oldest first
  std::deque<Bytes> looped_;       // to our own address
  std::vector<Bytes> handed_out_;  // of looped_
  std::array<std::span<const std::byte>, kBurst> frames_;
  std::uint64_t refused_ = 0;
  bool link_up_ = false;
  bool missed_link_ = false;  // and said so
  Nanos down_since_;
  bool warned_ = false;  // that another station has our address
  Nanos now_;
  Nanos tended_at_ = 0;
  Nanos received_at_;
};

}  // namespace fairlead::soft
